"""Objects of a review are counted before they are decoded, and each part costs what its items cost."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api import rawobject
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.rawobject import MAX_ITEMS, OverBudget, RawObject, has_more_items
from kavip.api.service import Service
from kavip.errors import BadInput

MANY = MAX_ITEMS + 1
JSON = st.recursive(
    st.sampled_from((None, 0, -7, "", ",:", '"[{}]\\')) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=6),
)


def raw(value: Any) -> bytes:
    """*value* as JSON."""
    return json.dumps(value).encode()


def values_in(value: Any) -> int:
    """How many JSON values *value* has, itself not counted."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(1 + values_in(each) for each in inner)


@given(JSON)
def test_the_count_is_an_upper_bound(value: Any) -> None:
    """No JSON has more values than its bytes let count."""
    assert values_in(value) == 0 or has_more_items(raw(value), than=values_in(value) - 1)


def test_counting_stops_at_the_limit() -> None:
    """The rest of a large part is not looked at."""
    assert has_more_items(b"," * 10, than=9)
    assert not has_more_items(b"," * 5, b"," * 5, than=10)


@pytest.mark.parametrize(
    ("kind", "large"),
    [
        (Service, {"spec": {"ports": [{}] * MANY}}),
        (Service, {"metadata": {"labels": {f"k{number}": "" for number in range(MANY)}}}),
        (Service, {"metadata": {"annotations": {f"k{number}": "" for number in range(MANY)}}}),
        (KeepalivedGroup, {"spec": {"tolerations": [{}] * MANY}}),
        (VIPPool, {"spec": {"addresses": [""] * MANY}}),
    ],
)
def test_too_many_items_are_not_decoded(kind: Any, large: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec, labels and annotations count together; nothing of them is decoded."""
    monkeypatch.setattr(rawobject, "_DECODERS", {})
    monkeypatch.setattr(rawobject, "_TEXTS", None)
    with pytest.raises(OverBudget, match="more than 32,768 items"):
        RawObject(raw(large), kind).decode()


@pytest.mark.parametrize("name", ["managedFields", "ownerReferences", "finalizers"])
def test_metadata_that_no_decision_reads_does_not_count(name: str) -> None:
    """However much of it there is."""
    found = RawObject(raw({"metadata": {"name": "web", "labels": {"a": "b"}, name: [{}] * MANY}}), Service).decode()
    assert (found.metadata.name, found.metadata.labels, found.metadata.annotations) == ("web", {"a": "b"}, None)


def test_a_service_with_too_many_addresses_belongs_to_another_controller() -> None:
    """kavip writes at most 32, so the status is not read."""
    spec = {"type": "LoadBalancer"}
    large = {"spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}] * 10_000}}}
    found = RawObject(raw(large), Service).decode()
    assert found.is_load_balancer
    assert found.ingress_addresses == ()
    assert [bool(entry.hostname) for entry in found.status.load_balancer.ingress or ()] == [True]


@pytest.mark.parametrize("kind", [KeepalivedGroup, VIPPool])
def test_a_large_status_is_skipped(kind: Any) -> None:
    """It is no error: the object is stored already."""
    large = {"spec": {"addresses": []}, "status": {"conditions": [{"type": "a", "status": "b"}] * MANY}}
    found = RawObject(raw(large), kind).decode()
    assert found.status.conditions is None


@given(st.booleans())
def test_large_and_small_objects_are_read_alike(is_large: bool) -> None:
    """The two ways of decoding give the same object."""
    value = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 3, "annotations": {"a": "b"}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": number} for number in range(600 if is_large else 3)]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    }
    assert RawObject(raw(value), Service).decode() == msgspec.convert(value, Service)


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ({"spec": {"ports": 80}}, r"\$.spec.ports"),
        ({"metadata": {"labels": {"a": 1}}}, r"\$.metadata.labels\[...\]"),
        ({"metadata": {"name": 7}}, r"\$.metadata.name"),
        ({"metadata": None}, r"\$.metadata"),
        ({"status": {"conditions": 1}}, r"\$.status.conditions"),
    ],
)
def test_an_error_in_a_large_object_has_its_path(broken: dict[str, Any], path: str) -> None:
    """As in a small one."""
    for padding in ("", "x" * (1 << 17)):
        with pytest.raises(BadInput, match=path):
            RawObject(raw({**broken, "unknown": padding}), Service).decode()
