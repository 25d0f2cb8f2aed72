"""Properties of the mutation: it never fails, touches only what kavip writes or wrote, and is idempotent."""

import json
from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from fuzz import shapes
from kavip import names
from kavip.admission import mutation
from kavip.admission.verdict import Verdict
from kavip.api import patch, review
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.snapshot import Snapshot
from tests.support.build import group, namespace
from tests.support.examples import examples

PATHS = (names.MUTATE_SERVICE_PATH, names.MUTATE_GROUP_PATH)
CLUSTER = Snapshot.from_objects([group("lb/edge", default=True), namespace("shop")])
ANNOTATION = ("metadata", "annotations", names.GROUP_ANNOTATION)
FILLED: dict[str, set[tuple[str, ...]]] = {
    names.MUTATE_SERVICE_PATH: {ANNOTATION},
    names.MUTATE_GROUP_PATH: {
        ("spec", name) for name in ("unicastEnabled", "segment", "vrrpVersion", "advertIntervalMilliseconds")
    },
}
UNKNOWN = st.dictionaries(st.sampled_from(["future", "x-1", "a/b~c"]), shapes.JSON, max_size=2)

Objects = dict[str, Any]


def mutated(path: str, body: bytes) -> Verdict:
    """The mutation of *path*; the empty verdict for an object that cannot be read."""
    try:
        request = review.decode_request(body)
        return (
            mutation.mutate_service(request, CLUSTER)
            if path == names.MUTATE_SERVICE_PATH
            else mutation.mutate_group(request)
        )
    except BadInput:
        return Verdict()


def review_of(new: Objects, old: Objects | None) -> bytes:
    """The body of the review of *new*."""
    request = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "namespace": "shop", "object": new}
    return json.dumps(
        {"apiVersion": review.API_VERSION, "kind": review.KIND, "request": {**request, "oldObject": old}}
    ).encode()


def patched(new: Objects, found: Verdict) -> Objects:
    """*new* as an independent implementation patches it."""
    result: Objects = jsonpatch.apply_patch(deepcopy(new), json.loads(patch.encode(found.patch)))
    return result


def differing(one: Any, other: Any, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths at which two objects differ; an absent parent counts as an empty one."""
    if isinstance(one, dict) or isinstance(other, dict):
        left, right = ({} if each is None else each for each in (one, other))
        if isinstance(left, dict) and isinstance(right, dict):
            keys = left.keys() | right.keys()
            return {place for key in keys for place in differing(left.get(key), right.get(key), (*at, key))}
    return set() if one == other else {at}


@st.composite
def noted(draw: st.DrawFn) -> Objects:
    """A Service with a group annotation that a user or a webhook wrote, with unknown fields."""
    found: Objects = draw(shapes.OBJECTS[Service])
    spec, metadata = found.get("spec", {}), found.get("metadata", {})
    notes = {
        **(metadata.get("annotations") or {}),
        names.GROUP_ANNOTATION: draw(st.sampled_from(["lb/edge", "lb/gone"])),
    }
    spec = {**spec, "type": draw(st.sampled_from(["LoadBalancer", "ClusterIP"]))}
    owned: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{names.GROUP_ANNOTATION}": {}}}}
    fields = draw(st.sampled_from([{}, owned, {"f:metadata": {"f:annotations": {".": {}}}}, None]))
    managers = draw(st.sampled_from([None, [], [{"manager": "m", "fieldsV1": fields}]]))
    metadata = {**metadata, "namespace": "shop", "annotations": notes, "managedFields": managers}
    metadata.pop("deletionTimestamp", None)
    return {**draw(UNKNOWN), "metadata": {**draw(UNKNOWN), **metadata}, "spec": {**draw(UNKNOWN), **spec}}


@st.composite
def a_group(draw: st.DrawFn) -> Objects:
    """A group with any of its fields, and unknown ones."""
    found: Objects = draw(shapes.OBJECTS[KeepalivedGroup])
    found.get("metadata", {}).pop("deletionTimestamp", None)
    return {**draw(UNKNOWN), **found, "spec": {**draw(UNKNOWN), **found.get("spec", {})}}


OBJECTS = {names.MUTATE_SERVICE_PATH: noted(), names.MUTATE_GROUP_PATH: a_group()}


@pytest.mark.parametrize("path", PATHS)
@examples(25)
@given(st.data())
def test_no_request_fails(path: str, data: st.DataObject) -> None:
    """Every object is allowed, and the patch can be applied."""
    body = data.draw(shapes.bodies(path))
    found = mutated(path, body)
    assert found.allowed
    if found.patch:
        patched(json.loads(body)["request"]["object"], found)


@pytest.mark.parametrize("path", PATHS)
@examples(25)
@given(st.data())
def test_only_defaults_are_touched_and_only_once(path: str, data: st.DataObject) -> None:
    """One step for each changed field, no other change, and no patch for the patched object."""
    new = data.draw(OBJECTS[path])
    old = data.draw(st.none() | OBJECTS[path])
    found = mutated(path, review_of(new, old))
    after = patched(new, found)
    changed = differing(new, after)
    assert changed <= FILLED[path]
    assert len(found.patch) <= len(changed)
    assert mutated(path, review_of(after, old)).patch == ()


@pytest.mark.parametrize("path", PATHS)
def test_some_generated_objects_are_patched(path: str) -> None:
    """The generated objects include some that need a patch."""
    quickly = settings(phases=[Phase.generate], database=None)
    is_service = path == names.MUTATE_SERVICE_PATH  # only updates of these are reviewed

    def steps(new: Objects) -> tuple[patch.Step, ...]:
        return mutated(path, review_of(new, new if is_service else None)).patch

    assert steps(find(OBJECTS[path], lambda new: bool(steps(new)), settings=quickly))
