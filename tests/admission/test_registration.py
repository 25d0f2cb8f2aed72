"""The webhook configurations: what is asked, and what is not."""

from typing import Any

import pytest

from kavip import names
from kavip.admission import registration
from kavip.admission.registration import ByService, ByURL


def configured(**more: Any) -> dict[str, dict[str, Any]]:
    """All webhooks by name, as the chart installs them."""
    reached = more.pop("reached", ByService("kavip", "kavip-webhook"))
    both = registration.configurations("kavip", reached, namespace="kavip", **more)
    return {webhook["name"]: webhook for body in both for webhook in body["webhooks"]}


def test_every_path_is_asked_once() -> None:
    """The five paths are five webhooks; a sixth asks one of them of groups that go."""
    hooks = configured()
    del hooks["warn-keepalivedgroup.kavip.io"]
    paths = [webhook["clientConfig"]["service"]["path"] for webhook in hooks.values()]
    assert sorted(paths) == sorted(
        [
            names.MUTATE_SERVICE_PATH,
            names.MUTATE_GROUP_PATH,
            names.VALIDATE_SERVICE_PATH,
            names.VALIDATE_GROUP_PATH,
            names.VALIDATE_POOL_PATH,
        ]
    )


@pytest.mark.parametrize(
    ("name", "policy", "seconds", "operations"),
    [
        ("mutate-service.kavip.io", "Ignore", 2, ["CREATE", "UPDATE"]),
        ("mutate-keepalivedgroup.kavip.io", "Ignore", 2, ["CREATE", "UPDATE"]),
        ("validate-service.kavip.io", "Fail", 3, ["CREATE", "UPDATE"]),
        ("validate-keepalivedgroup.kavip.io", "Fail", 3, ["CREATE", "UPDATE"]),
        ("warn-keepalivedgroup.kavip.io", "Ignore", 2, ["DELETE"]),
        ("validate-vippool.kavip.io", "Fail", 3, ["CREATE", "UPDATE", "DELETE"]),
    ],
)
def test_a_mutator_may_fail_and_a_validator_may_not(
    name: str, policy: str, seconds: int, operations: list[str]
) -> None:
    """Failure policy, time limit and operations are as documented; no side effects, whatever is asked."""
    webhook = configured()[name]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == (policy, seconds)
    assert [rule["operations"] for rule in webhook["rules"]] == [operations]
    assert (webhook["sideEffects"], webhook["matchPolicy"]) == ("None", "Equivalent")


def test_only_service_webhooks_skip_namespaces() -> None:
    """Services of kube-system and of kavip's own namespace are left alone; groups and pools are judged everywhere."""
    skipped = {
        name: webhook["namespaceSelector"]["matchExpressions"][0]["values"]
        for name, webhook in configured().items()
        if "namespaceSelector" in webhook
    }
    own = ["kavip", "kube-system"]
    assert skipped == {"mutate-service.kavip.io": own, "validate-service.kavip.io": own}


def test_no_subresource_is_asked_about() -> None:
    """Status and scale always pass."""
    asked = [
        resource for webhook in configured().values() for rule in webhook["rules"] for resource in rule["resources"]
    ]
    assert all("/" not in resource and resource != "*" for resource in asked)


def test_a_url_replaces_the_service() -> None:
    """Outside a cluster each webhook has its own URL, and the bundle from the start."""
    hooks = configured(reached=ByURL("https://192.0.2.1:9443/"), ca_bundle="QQ==")
    assert hooks["validate-vippool.kavip.io"]["clientConfig"] == {
        "url": "https://192.0.2.1:9443/validate-vippool",
        "caBundle": "QQ==",
    }


def test_the_bundle_is_left_to_kavip() -> None:
    """In a cluster no caBundle is written here: another field manager owns it."""
    assert not any("caBundle" in webhook["clientConfig"] for webhook in configured().values())


def test_a_class_that_is_almost_ours_is_asked_of_the_validator_alone() -> None:
    """Only a mistyped class is told there; nothing is to be written into a Service that kavip does not manage."""
    said = {name: webhook["matchConditions"][-1]["expression"] for name, webhook in configured().items()}
    prefix = "spec.loadBalancerClass.startsWith('kavip.io/')"
    assert said["validate-service.kavip.io"].count(prefix) == 2
    assert prefix not in said["mutate-service.kavip.io"]
