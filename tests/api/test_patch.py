"""JSON patches: right by an independent implementation, and minimal."""

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api import patch
from kavip.api.patch import Action, Step
from kavip.errors import BadInput

NAMES = st.sampled_from(["a", "b", "kavip.io/pool", "til~de", ""])
FRACTIONS = st.floats(-1, 1).filter(lambda number: not number.is_integer())  # 0 and 0.0 are one number in JSON
LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | FRACTIONS | st.text("ab", max_size=2)
DOCUMENTS = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


@pytest.mark.slow
@given(DOCUMENTS, DOCUMENTS)
def test_a_patch_makes_the_one_document_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    """The patch, applied by the jsonpatch library, gives the wanted document, bytes and all."""
    steps = json.loads(patch.encode(patch.diff(before, after)))
    result = jsonpatch.apply_patch(before, steps)
    assert json.dumps(result, sort_keys=True) == json.dumps(after, sort_keys=True)


@pytest.mark.slow
@given(DOCUMENTS)
def test_equal_documents_need_no_patch(document: dict[str, Any]) -> None:
    """Nothing to do is an empty patch."""
    assert patch.diff(document, json.loads(json.dumps(document))) == ()


def test_siblings_are_not_replaced() -> None:
    """Only the member that differs is named."""
    before = {"spec": {"interface": "eth0", "image": "x"}, "metadata": {"name": "edge"}}
    after = {"spec": {"interface": "eth0", "image": "x", "segment": "default"}, "metadata": {"name": "edge"}}
    assert patch.diff(before, after) == (Step(Action.ADD, "/spec/segment", "default"),)


def test_a_boolean_is_no_number() -> None:
    """True and 1 are equal to Python and differ in JSON."""
    assert patch.diff({"a": [1]}, {"a": [True]}) == (Step(Action.REPLACE, "/a", [True]),)


def test_a_number_keeps_its_value_through_a_float() -> None:
    """1 and 1.0 are the same number in JSON."""
    assert patch.diff({"a": 1}, {"a": 1.0}) == ()


def test_a_member_may_become_null() -> None:
    """Null is a value, and is sent as one."""
    assert patch.encode(patch.diff({"a": 1}, {"a": None})) == b'[{"op":"replace","path":"/a","value":null}]'


def test_a_removal_carries_no_value() -> None:
    """A removal names its path alone."""
    assert patch.encode(patch.diff({"a": 1}, {})) == b'[{"op":"remove","path":"/a"}]'


def test_put_makes_the_objects_on_its_way() -> None:
    """Absent and null parents become objects, and the document given stays as it was."""
    document: dict[str, Any] = {"metadata": {"annotations": None}}
    assert patch.put(document, ("metadata", "annotations", "kavip.io/pool"), "edge") == {
        "metadata": {"annotations": {"kavip.io/pool": "edge"}}
    }
    assert document == {"metadata": {"annotations": None}}


def test_put_refuses_a_list_on_its_way() -> None:
    """A parent of another type is an error that names it."""
    with pytest.raises(BadInput, match="spec: 'list': want an object"):
        patch.put({"spec": []}, ("spec", "segment"), "default")
