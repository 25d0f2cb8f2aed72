"""Whatever is asked, the mutation fails no request, touches only what it fills in, and twice is once."""

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
    """What stands behind *path*; an object that cannot be read is for the validator to refuse."""
    try:
        request = review.read(body)
        return mutation.service(request, CLUSTER) if path == names.MUTATE_SERVICE_PATH else mutation.group(request)
    except BadInput:
        return Verdict()


def asked(new: Objects, old: Objects | None) -> bytes:
    """The review of *new*."""
    request = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "namespace": "shop", "object": new}
    return json.dumps(
        {"apiVersion": review.API_VERSION, "kind": review.KIND, "request": {**request, "oldObject": old}}
    ).encode()


def patched(new: Objects, found: Verdict) -> Objects:
    """*new* as an independent implementation patches it."""
    result: Objects = jsonpatch.apply_patch(deepcopy(new), json.loads(patch.encode(found.patch)))
    return result


def differing(one: Any, other: Any, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The places where two objects differ, absent and empty parents looked into."""
    if isinstance(one, dict) or isinstance(other, dict):
        left, right = ({} if each is None else each for each in (one, other))
        if isinstance(left, dict) and isinstance(right, dict):
            keys = left.keys() | right.keys()
            return {place for key in keys for place in differing(left.get(key), right.get(key), (*at, key))}
    return set() if one == other else {at}


@st.composite
def plain(draw: st.DrawFn) -> Objects:
    """A LoadBalancer Service that the default group may take, with parts that kavip does not know."""
    found: Objects = draw(shapes.OBJECTS[Service])
    spec, metadata = found.get("spec", {}), found.get("metadata", {})
    notes = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != names.GROUP_ANNOTATION}
    spec = {**spec, "type": "LoadBalancer", "loadBalancerClass": draw(st.sampled_from([None, "kavip.io/keepalived"]))}
    metadata = {**metadata, "namespace": "shop", "annotations": draw(st.sampled_from([notes, None, {}]))}
    metadata.pop("deletionTimestamp", None)
    return {**draw(UNKNOWN), "metadata": {**draw(UNKNOWN), **metadata}, "spec": {**draw(UNKNOWN), **spec}}


@st.composite
def a_group(draw: st.DrawFn) -> Objects:
    """A group with any of its fields, and some that kavip does not know."""
    found: Objects = draw(shapes.OBJECTS[KeepalivedGroup])
    found.get("metadata", {}).pop("deletionTimestamp", None)
    return {**draw(UNKNOWN), **found, "spec": {**draw(UNKNOWN), **found.get("spec", {})}}


OBJECTS = {names.MUTATE_SERVICE_PATH: plain(), names.MUTATE_GROUP_PATH: a_group()}


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=25)
@given(st.data())
def test_no_request_fails(path: str, data: st.DataObject) -> None:
    """Whatever the objects are, the answer is yes, and its patch one that can be applied."""
    body = data.draw(shapes.bodies(path))
    found = mutated(path, body)
    assert found.allowed
    if found.patch:
        patched(json.loads(body)["request"]["object"], found)


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=25)
@given(st.data())
def test_only_what_is_filled_in_is_touched_and_only_once(path: str, data: st.DataObject) -> None:
    """A step for each field that changes, all others as they were; the patched object is left as it is."""
    new = data.draw(OBJECTS[path])
    old = data.draw(st.none() | OBJECTS[path])
    found = mutated(path, asked(new, old))
    after = patched(new, found)
    changed = differing(new, after)
    assert changed <= FILLED[path]
    assert len(found.patch) <= len(changed)
    assert mutated(path, asked(after, old)).patch == ()


@pytest.mark.parametrize("path", PATHS)
def test_the_properties_are_of_patches_and_not_of_nothing(path: str) -> None:
    """Among the objects are such that something is filled in."""
    quickly = settings(phases=[Phase.generate], database=None)
    found = find(OBJECTS[path], lambda new: bool(mutated(path, asked(new, None)).patch), settings=quickly)
    assert mutated(path, asked(found, None)).patch
