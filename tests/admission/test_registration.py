"""The webhook configurations: which requests the API server sends."""

from datetime import timedelta
from typing import Any

import pytest

from kavip import names
from kavip.admission import registration
from kavip.admission.registration import ServiceClientConfig, URLClientConfig


def configured(**more: Any) -> dict[str, dict[str, Any]]:
    """All webhooks by name, as the chart installs them."""
    reached = more.pop("reached", ServiceClientConfig("kavip", "kavip-webhook"))
    both = registration.configurations("kavip", reached, namespace="kavip", **more)
    return {webhook["name"]: webhook for body in both for webhook in body["webhooks"]}


def test_every_path_has_one_webhook() -> None:
    """Each of the five paths has one webhook; a sixth webhook uses a path again, for deleted groups."""
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
        ("mutate-service.kavip.io", "Ignore", 2, ["UPDATE"]),
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
    """Failure policy, timeout and operations are as documented, and there are no side effects."""
    webhook = configured()[name]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == (policy, seconds)
    assert [rule["operations"] for rule in webhook["rules"]] == [operations]
    assert (webhook["sideEffects"], webhook["matchPolicy"]) == ("None", "Equivalent")


def test_only_service_webhooks_skip_namespaces() -> None:
    """Services in kube-system and in kavip's namespace are skipped; groups and pools never are."""
    skipped = {
        name: webhook["namespaceSelector"]["matchExpressions"][0]["values"]
        for name, webhook in configured().items()
        if "namespaceSelector" in webhook
    }
    own = ["kavip", "kube-system"]
    assert skipped == {"mutate-service.kavip.io": own, "validate-service.kavip.io": own}


def test_no_subresource_is_reviewed() -> None:
    """Writes of status and scale need no review."""
    resources = [
        resource for webhook in configured().values() for rule in webhook["rules"] for resource in rule["resources"]
    ]
    assert all("/" not in resource and resource != "*" for resource in resources)


def test_a_url_replaces_the_service() -> None:
    """Outside a cluster each webhook has a URL, and the CA bundle from the start."""
    hooks = configured(reached=URLClientConfig("https://192.0.2.1:9443/"), ca_bundle="QQ==")
    assert hooks["validate-vippool.kavip.io"]["clientConfig"] == {
        "url": "https://192.0.2.1:9443/validate-vippool",
        "caBundle": "QQ==",
    }


def test_under_olm_only_service_webhooks_are_registered() -> None:
    """OLM registers the others; the labels are those by which it deletes what belongs to a version."""
    client, options = (
        registration.ServiceClientConfig("ns", "hook"),
        registration.RegistrationOptions(services_only=True),
    )
    found = registration.configurations("kavip", client, namespace="ns", labels={"a": "b"}, options=options)
    assert [each["metadata"] for each in found] == [{"name": "kavip", "labels": {"a": "b"}}] * 2
    assert {tuple(each["rules"][0]["resources"]) for one in found for each in one["webhooks"]} == {("services",)}
    assert all(each["matchConditions"] for one in found for each in one["webhooks"])


def test_the_ca_bundle_is_omitted_in_a_cluster() -> None:
    """kavip writes ``caBundle`` with its own field manager."""
    assert not any("caBundle" in webhook["clientConfig"] for webhook in configured().values())


def test_a_mistyped_class_is_sent_to_the_validator_only() -> None:
    """The validator warns about it; the mutator is called for Services that name a group."""
    expressions = {name: webhook["matchConditions"][-1]["expression"] for name, webhook in configured().items()}
    prefix = "spec.loadBalancerClass.startsWith('kavip.io/')"
    assert expressions["validate-service.kavip.io"].count(prefix) == 2
    assert prefix not in expressions["mutate-service.kavip.io"]


@pytest.mark.parametrize(
    ("endpoint_age", "is_due"),
    [
        (None, False),
        (timedelta(), False),
        (registration.SETTLED - timedelta(seconds=1), False),
        (registration.SETTLED, True),
        (timedelta.max, True),
    ],
)
def test_a_webhook_is_registered_when_something_answers(endpoint_age: timedelta | None, *, is_due: bool) -> None:
    """A missing configuration waits until an endpoint has been ready for some seconds."""
    assert registration.is_due(endpoint_age) is is_due
