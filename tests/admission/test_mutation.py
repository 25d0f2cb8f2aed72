"""The mutation: what is filled in, how little is touched, and that twice is once."""

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.admission import mutation
from kavip.api import patch, review
from kavip.api.meta import LabelSelector
from kavip.api.review import AdmissionRequest
from kavip.snapshot import Snapshot
from tests.support.build import group, namespace

DEFAULTS = {
    "unicastEnabled": True,
    "segment": "default",
    "vrrpVersion": 3,
    "advertIntervalMilliseconds": 200,
}
DEFAULT_GROUP = Snapshot.from_objects([group("lb/edge", default=True), namespace("shop")])


def request(new: Any, old: Any = None) -> AdmissionRequest:
    """The request that creates *new*, or makes it of *old*."""
    asked = {"uid": "u1", "operation": "UPDATE" if old else "CREATE", "namespace": "shop", "object": new}
    body = {"apiVersion": review.API_VERSION, "kind": review.KIND, "request": {**asked, "oldObject": old}}
    return review.read(json.dumps(body).encode())


def patched(new: Any, steps: tuple[patch.Step, ...]) -> Any:
    """*new* as an independent implementation patches it."""
    return jsonpatch.apply_patch(new, json.loads(patch.encode(steps)))


def a_group(**spec: Any) -> dict[str, Any]:
    """A group as users write it, with a field that kavip does not know."""
    return {"metadata": {"name": "edge"}, "spec": {"interface": "eth0", "future": {"a": [1]}, **spec}}


def test_a_new_group_gets_the_defaults_and_nothing_else() -> None:
    """Four fields are added, each by one operation; the rest of the object is not named."""
    found = mutation.group(request(a_group()))
    assert sorted((step.op, step.path, step.value) for step in found.patch) == sorted(
        ("add", f"/spec/{name}", value) for name, value in DEFAULTS.items()
    )


@pytest.mark.parametrize(
    ("given_", "added"),
    [
        ({"unicastEnabled": False}, {"segment", "vrrpVersion", "advertIntervalMilliseconds"}),
        ({"vrrpVersion": 2}, {"unicastEnabled", "segment"}),
        ({"advertIntervalMilliseconds": 500}, {"unicastEnabled", "segment", "vrrpVersion"}),
        ({"passwordAuth": {"secretRef": {"name": "s"}}}, {"unicastEnabled", "segment"}),
    ],
)
def test_what_the_user_says_stays(given_: dict[str, Any], added: set[str]) -> None:
    """A default never replaces a value, and versions, intervals and passwords go together."""
    found = mutation.group(request(a_group(**given_)))
    assert {step.path.rpartition("/")[2] for step in found.patch} == added


@pytest.mark.parametrize("spec", [None, "absent"])
def test_a_group_without_a_spec_gets_one(spec: object) -> None:
    """Shapes that the API server will refuse or fill do not trouble the mutator."""
    new: dict[str, Any] = {"metadata": {"name": "edge"}}
    if spec is None:
        new["spec"] = {}
    assert patched(new, mutation.group(request(new)).patch)["spec"] == DEFAULTS


def test_applying_the_same_manifest_again_changes_nothing() -> None:
    """A defaulted field that the manifest lacks is put back as it stands, so that the object stays the same."""
    manifest = a_group()
    stored = patched(manifest, mutation.group(request(manifest)).patch)
    replaced = mutation.group(request(manifest, stored))
    assert patched(manifest, replaced.patch) == stored


def test_a_group_from_before_kavip_keeps_its_meaning() -> None:
    """Absent fields of an existing group stay absent: nobody is switched behind his back."""
    assert mutation.group(request(a_group(image="x"), a_group())).patch == ()


def test_the_other_version_leaves_the_interval_behind() -> None:
    """Who writes vrrpVersion: 2 leaves version 3's interval too; the rest is put back."""
    stored = a_group(**DEFAULTS)
    found = mutation.group(request(a_group(vrrpVersion=2), stored))
    assert {step.path for step in found.patch} == {"/spec/unicastEnabled", "/spec/segment"}
    merged = a_group(**{**DEFAULTS, "vrrpVersion": 2})  # what kubectl apply makes of it
    assert patched(merged, mutation.group(request(merged, stored)).patch) == a_group(
        unicastEnabled=True, segment="default", vrrpVersion=2
    )


@pytest.mark.parametrize(("new", "old"), [(200, 1000), (1000, 200), (1000, 1000)])
def test_an_interval_of_the_users_own_stays_beside_another_version(new: int, old: int) -> None:
    """Only the default that kavip wrote goes with its version."""
    merged = a_group(**{**DEFAULTS, "vrrpVersion": 2, "advertIntervalMilliseconds": new})
    assert mutation.group(request(merged, a_group(**{**DEFAULTS, "advertIntervalMilliseconds": old}))).patch == ()


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "unicastEnabled": st.sampled_from([True, False, None]),
        "segment": st.sampled_from(["default", "s", None]),
        "vrrpVersion": st.sampled_from([2, 3, None]),
        "advertIntervalMilliseconds": st.sampled_from([200, 1000, None]),
        "passwordAuth": st.just({"secretRef": {"name": "s"}}),
        "verbatimConfig": st.sampled_from([{"vrrp_version": "3"}, {"vrrp_version": "2"}, {}]),
        "future": st.just([{"a": 1}]),
    },
)


@given(SPECS, st.none() | SPECS)
def test_mutating_twice_is_mutating_once(spec: dict[str, Any], before: dict[str, Any] | None) -> None:
    """mutate(mutate(x)) = mutate(x), and no field that was given changes, but for a default of the version left."""
    new, old = a_group(**spec), None if before is None else a_group(**before)
    once = patched(new, mutation.group(request(new, old)).patch)
    assert mutation.group(request(once, old)).patch == ()
    if (spec.get("vrrpVersion"), (before or {}).get("vrrpVersion")) == (2, 3):
        spec = {name: value for name, value in spec.items() if name != "advertIntervalMilliseconds"}
    assert {name: once["spec"][name] for name, value in spec.items() if value is not None} == {
        name: value for name, value in spec.items() if value is not None
    }


def a_service(**spec: Any) -> dict[str, Any]:
    """A plain LoadBalancer Service."""
    return {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", **spec}}


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {}}, {"annotations": {"a": "b"}}])
@pytest.mark.parametrize("spec", [{}, {"loadBalancerClass": names.LOAD_BALANCER_CLASS}])
def test_a_plain_service_gets_the_default_group(metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    """The annotation of the default group is added beside whatever is there; a second pass adds nothing."""
    new = a_service(**spec)
    new["metadata"].update(metadata)
    result = patched(new, mutation.service(request(new), DEFAULT_GROUP).patch)
    assert result["metadata"]["annotations"] == {
        **(metadata.get("annotations") or {}),
        names.GROUP_ANNOTATION: "lb/edge",
    }
    assert mutation.service(request(result), DEFAULT_GROUP).patch == ()


@pytest.mark.parametrize(
    ("new", "cluster"),
    [
        (a_service(), Snapshot()),
        (a_service(type="ClusterIP"), DEFAULT_GROUP),
        (a_service(loadBalancerClass="example.com/other"), DEFAULT_GROUP),
        (a_service(loadBalancerClass=names.LOAD_BALANCER_CLASS), Snapshot()),
        (
            a_service(),
            Snapshot.from_objects(
                [group("lb/edge", default=True, allowed_namespaces=LabelSelector(match_labels={"team": "net"}))]
            ),
        ),
        (
            {"metadata": {"name": "web", "deletionTimestamp": "2026-05-01T00:00:00Z"}, "spec": a_service()["spec"]},
            DEFAULT_GROUP,
        ),
    ],
    ids=["no default", "no VIP", "another's class", "no group at all", "closed namespace", "leaving"],
)
def test_other_services_are_left_alone(new: dict[str, Any], cluster: Snapshot) -> None:
    """What the default group does not take gets no annotation."""
    assert mutation.service(request(new), cluster).patch == ()


@pytest.mark.parametrize("claimed", [{}, {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}])
def test_a_status_in_the_manifest_decides_nothing(claimed: dict[str, Any]) -> None:
    """The API server drops it: a new Service has none, and one that is replaced keeps what another controller wrote."""
    new = {**a_service(), **claimed}
    served = {**a_service(), "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}}
    assert [step.op for step in mutation.service(request(new), DEFAULT_GROUP).patch] == ["add"]
    assert [step.op for step in mutation.service(request(new, a_service()), DEFAULT_GROUP).patch] == ["add"]
    assert mutation.service(request(new, served), DEFAULT_GROUP).patch == ()
