"""The mutation: the defaults that it writes, minimal patches, and idempotence."""

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.admission import mutation
from kavip.api import patch, review
from kavip.api.review import AdmissionRequest
from kavip.snapshot import Snapshot
from tests.support.build import group, namespace

DEFAULTS = {
    "unicastEnabled": True,
    "segment": "default",
    "vrrpVersion": 3,
    "advertIntervalMilliseconds": 200,
}


def request(new: Any, old: Any = None) -> AdmissionRequest:
    """The review of the creation of *new*, or of the update of *old*."""
    submitted = {"uid": "u1", "operation": "UPDATE" if old else "CREATE", "namespace": "shop", "object": new}
    body = {"apiVersion": review.API_VERSION, "kind": review.KIND, "request": {**submitted, "oldObject": old}}
    return review.decode_request(json.dumps(body).encode())


def patched(new: Any, steps: tuple[patch.Step, ...]) -> Any:
    """*new* as an independent implementation patches it."""
    return jsonpatch.apply_patch(new, json.loads(patch.encode(steps)))


def a_group(**spec: Any) -> dict[str, Any]:
    """A group as users write it, with a field that kavip does not declare."""
    return {"metadata": {"name": "edge"}, "spec": {"interface": "eth0", "future": {"a": [1]}, **spec}}


def test_a_new_group_gets_the_defaults_and_nothing_else() -> None:
    """Four fields are added by one operation each; the patch touches nothing else."""
    found = mutation.mutate_group(request(a_group()))
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
def test_user_values_stay(given_: dict[str, Any], added: set[str]) -> None:
    """A default never replaces a value, and it agrees with the given version, interval and password."""
    found = mutation.mutate_group(request(a_group(**given_)))
    assert {step.path.rpartition("/")[2] for step in found.patch} == added


@pytest.mark.parametrize("spec", [None, "absent"])
def test_a_group_without_a_spec_gets_one(spec: object) -> None:
    """A missing or null ``spec`` causes no error; the API server validates it later."""
    new: dict[str, Any] = {"metadata": {"name": "edge"}}
    if spec is None:
        new["spec"] = {}
    assert patched(new, mutation.mutate_group(request(new)).patch)["spec"] == DEFAULTS


def test_applying_the_same_manifest_again_changes_nothing() -> None:
    """A defaulted field that the manifest lacks is restored, so the object stays the same."""
    manifest = a_group()
    stored = patched(manifest, mutation.mutate_group(request(manifest)).patch)
    replaced = mutation.mutate_group(request(manifest, stored))
    assert patched(manifest, replaced.patch) == stored


def test_a_group_from_before_kavip_keeps_its_meaning() -> None:
    """Absent fields of an existing group stay absent."""
    assert mutation.mutate_group(request(a_group(image="x"), a_group())).patch == ()


def test_version_2_removes_the_default_interval_of_version_3() -> None:
    """A change to ``vrrpVersion: 2`` drops version 3's interval; the other defaults are restored."""
    stored = a_group(**DEFAULTS)
    found = mutation.mutate_group(request(a_group(vrrpVersion=2), stored))
    assert {step.path for step in found.patch} == {"/spec/unicastEnabled", "/spec/segment"}
    merged = a_group(**{**DEFAULTS, "vrrpVersion": 2})  # the result of kubectl apply
    assert patched(merged, mutation.mutate_group(request(merged, stored)).patch) == a_group(
        unicastEnabled=True, segment="default", vrrpVersion=2
    )


@pytest.mark.parametrize(("new", "old"), [(200, 1000), (1000, 200), (1000, 1000)])
def test_the_interval_of_the_user_stays_with_another_version(new: int, old: int) -> None:
    """Only the default interval that kavip wrote is removed with its version."""
    merged = a_group(**{**DEFAULTS, "vrrpVersion": 2, "advertIntervalMilliseconds": new})
    assert (
        mutation.mutate_group(request(merged, a_group(**{**DEFAULTS, "advertIntervalMilliseconds": old}))).patch == ()
    )


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
def test_the_mutation_is_idempotent(spec: dict[str, Any], before: dict[str, Any] | None) -> None:
    """mutate(mutate(x)) = mutate(x), and no given field changes, except the default interval of version 3."""
    new, old = a_group(**spec), None if before is None else a_group(**before)
    once = patched(new, mutation.mutate_group(request(new, old)).patch)
    assert mutation.mutate_group(request(once, old)).patch == ()
    if (spec.get("vrrpVersion"), (before or {}).get("vrrpVersion")) == (2, 3):
        spec = {name: value for name, value in spec.items() if name != "advertIntervalMilliseconds"}
    assert {name: once["spec"][name] for name, value in spec.items() if value is not None} == {
        name: value for name, value in spec.items() if value is not None
    }


USERS: dict[str, Any] = {"f:metadata": {"f:annotations": {".": {}, f"f:{names.GROUP_ANNOTATION}": {}}}}
OTHERS: dict[str, Any] = {"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}, "f:spec": {}}
EXISTING = Snapshot.from_objects([group("lb/edge", default=True), group("lb/inner"), namespace("shop")])


def a_service(note: str | None = "lb/edge", fields: Any = OTHERS, **spec: Any) -> dict[str, Any]:
    """A Service with the group annotation *note*; the manager of *fields* is the only one."""
    annotations = {"a": "b", **({names.GROUP_ANNOTATION: note} if note is not None else {})}
    managers = [{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}]
    metadata = {"name": "web", "annotations": annotations, "managedFields": managers if fields else None}
    return {"metadata": metadata, "spec": {"type": "LoadBalancer", **spec}}


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {}}, {"annotations": {"a": "b"}}])
@pytest.mark.parametrize("spec", [{}, {"loadBalancerClass": names.LOAD_BALANCER_CLASS}])
def test_a_plain_service_gets_no_annotation(metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    """The controller records the default group in its own condition; nothing is written to what users wrote."""
    new = {"metadata": {"name": "web", **metadata}, "spec": {"type": "LoadBalancer", **spec}}
    assert mutation.mutate_service(request(new), EXISTING).patch == ()
    assert mutation.mutate_service(request(new, new), EXISTING).patch == ()


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (a_service(type="ClusterIP"), a_service()),
        (a_service(type="ClusterIP"), a_service(type="ClusterIP")),
        (a_service(type="ClusterIP", externalIPs=["192.0.2.1"]), a_service()),
        (a_service("lb/gone"), a_service("lb/gone")),
    ],
    ids=["no longer a LoadBalancer", "an edit later", "external IPs alone", "the group is gone"],
)
def test_the_annotation_that_kavip_wrote_goes_with_its_use(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Release 0.1.0 wrote it in admission, so it has no manager; other annotations stay, a second pass does nothing."""
    found = mutation.mutate_service(request(new, old), EXISTING)
    after = patched(new, found.patch)
    assert after["metadata"]["annotations"] == {"a": "b"}
    assert {**after, "metadata": new["metadata"]} == new
    assert mutation.mutate_service(request(after, old), EXISTING).patch == ()


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (a_service(), a_service()),
        (a_service("lb/inner"), a_service("lb/inner")),
        (a_service(fields=USERS, type="ClusterIP"), a_service(fields=USERS)),
        (a_service(fields=None, type="ClusterIP"), a_service(fields=None)),
        (a_service("lb/gone", fields=USERS), a_service("lb/gone", fields=USERS)),
        (a_service("lb/gone"), a_service("lb/edge")),
        (a_service(type="ClusterIP"), None),
        (
            {**a_service(type="ClusterIP"), "metadata": {**a_service()["metadata"], "deletionTimestamp": "x"}},
            a_service(),
        ),
    ],
    ids=[
        "still served",
        "served by a group that is not the default one",
        "written by a user",
        "of unknown origin",
        "a user's group that is gone",
        "written right now",
        "a creation",
        "leaving",
    ],
)
def test_any_other_annotation_stays(new: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Only what kavip wrote and what has no use any more is removed."""
    assert mutation.mutate_service(request(new, old), EXISTING).patch == ()
