"""VRIDs are assigned once and kept."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.names import SPREAD_ANNOTATION
from kavip.vrrp import routerids
from kavip.vrrp.routerids import ALL, assign
from tests.support import build
from tests.vrrp.samples import shared

NONE: frozenset[int] = frozenset()
KEYS = st.lists(st.sampled_from([f"shop/s{number}" for number in range(300)]), unique=True)
IDS = st.frozensets(st.integers(1, 255))


def test_the_lowest_free_numbers_in_the_order_of_keys() -> None:
    """New VRIDs are the lowest free numbers, in the order of the keys."""
    found = assign({}, ["a/y", "a/x"], blacklist=frozenset({1}), taken=frozenset({2}))
    assert found == {"a/y": 3, "a/x": 4}


def test_persisted_vrids_are_kept() -> None:
    """Persisted VRIDs are kept, and the number of a removed key is free."""
    found = assign({"a/x": 9, "a/gone": 1}, ["a/new", "a/x"], blacklist=NONE, taken=NONE)
    assert found == {"a/new": 1, "a/x": 9}


@pytest.mark.parametrize("bad", [0, 256, -5, 999])
def test_invalid_numbers_are_replaced(bad: int) -> None:
    """A number that is no VRID is replaced, and no other VRID changes."""
    assert assign({"a/x": bad, "a/y": 1}, ["a/x", "a/y"], blacklist=NONE, taken=NONE) == {"a/x": 2, "a/y": 1}


def test_blacklisted_and_taken_numbers_are_replaced() -> None:
    """A number on the blacklist, or of another group of the segment, is replaced."""
    found = assign({"a/x": 7, "a/y": 8}, ["a/x", "a/y"], blacklist=frozenset({7}), taken=frozenset({8}))
    assert found == {"a/x": 1, "a/y": 2}


def test_reserved_numbers_bind_new_keys_only() -> None:
    """A reserved number is given to no new key, and stays where it is; a key may pin it."""
    reserved = frozenset({1, 2, 3})
    found = assign({"a/x": 2}, ["a/x", "a/y"], blacklist=NONE, taken=NONE, reserved=reserved)
    assert found == {"a/x": 2, "a/y": 4}
    assert assign({}, ["a/x"], blacklist=NONE, taken=NONE, reserved=reserved, pinned={"a/x": 3}) == {"a/x": 3}


def test_a_number_held_twice_stays_with_the_first_key() -> None:
    """Of two keys with the same number, the first one keeps it."""
    assert assign({"a/y": 5, "a/x": 5}, ["a/y", "a/x"], blacklist=NONE, taken=NONE) == {"a/x": 5, "a/y": 1}


def test_overflow_affects_the_last_keys_only() -> None:
    """The 256th key gets none; the 255 before it do not change."""
    keys = [f"a/s{number}" for number in range(255)]
    before = assign({}, keys, blacklist=NONE, taken=NONE)
    after = assign(before, [*keys, "a/late"], blacklist=NONE, taken=NONE)
    assert len(before) == 255 and "a/late" not in after
    assert after == before


def test_a_pinned_number_is_given_although_another_key_holds_it() -> None:
    """The other key gets another number; a pinned number that others take is given to no key."""
    held = {"a/x": 10, "lb/edge/virtualips": 3}
    pinned = {"lb/edge/virtualips/10": 10, "lb/edge/virtualips/20": 20}
    wanted = [*pinned, "lb/edge/virtualips", "a/x", "a/y"]
    found = assign(held, wanted, blacklist=NONE, taken=frozenset({20}), pinned=pinned)
    assert found == {"a/x": 1, "a/y": 2, "lb/edge/virtualips": 3, "lb/edge/virtualips/10": 10}


@given(held=st.dictionaries(st.sampled_from(["shop/s1", "shop/s2", "b/x"]), st.integers(-1, 257)), wanted=KEYS)
def test_vrids_are_valid_and_unique(held: dict[str, int], wanted: list[str]) -> None:
    """With any persisted state, each key gets a VRID from 1 to 255 while there is one, and no VRID is used twice."""
    found = assign(held, wanted, blacklist=frozenset({3}), taken=frozenset({4}))
    assert len(set(found.values())) == len(found)
    assert set(found.values()) <= ALL - {3, 4}
    assert set(found) == set(wanted) if len(wanted) <= 253 else len(found) == 253


@given(first=KEYS, second=KEYS, blacklist=IDS, taken=IDS)
def test_vrids_do_not_change(
    first: list[str], second: list[str], blacklist: frozenset[int], taken: frozenset[int]
) -> None:
    """No VRID changes because other keys are added or removed, and a second pass changes nothing."""
    before = assign({}, first, blacklist=blacklist, taken=taken)
    after = assign(before, second, blacklist=blacklist, taken=taken)
    assert all(after[key] == before[key] for key in before.keys() & set(second))
    assert assign(after, second, blacklist=blacklist, taken=taken) == after


def test_the_blacklist_and_the_segment_reduce_the_capacity() -> None:
    """The blacklist and the segment reduce the same 255 numbers."""
    assert routerids.capacity(frozenset({1, 2}), frozenset({2, 3})) == 252


def test_the_blacklist_contains_the_vrids_of_openshift() -> None:
    """The VRIDs of the OpenShift cluster that a group names are never used; a bad name adds none."""
    group = build.group(blacklist_router_ids=[5, 0, 300], openshift_cluster_name="ostest")
    assert routerids.blacklist_of(group.spec) == {5, 14, 93, 10}
    assert routerids.blacklist_of(build.group(openshift_cluster_name="No!").spec) == frozenset()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 1),
        ({"holds": ["192.0.2.1", "2001:db8::1"]}, 2),
        ({"families": ["IPv4", "IPv6"]}, 2),
        ({"families": [], "ip_family_policy": "RequireDualStack"}, 2),
        ({"families": ["IPv4", "IPv6"], "holds": ["192.0.2.1"]}, 2),
        ({"external_ips": ["192.0.2.7", "192.0.2.8"]}, 3),
        ({"external_ips": ["192.0.2.7", "192.0.2.8"], "type": "ClusterIP"}, 2),
        ({"external_ips": ["192.0.2.7"], "wants": "192.0.2.7"}, 1),
        ({"external_ips": ["192.0.2.7"], "load_balancer_ip": "192.0.2.7"}, 1),
        ({"external_ips": ["192.0.2.7"], "wants": "192.0.2.7", "type": "ClusterIP"}, 1),
    ],
)
def test_needed_with_spreadvips(spec: dict[str, Any], expected: int) -> None:
    """With spreadvips a Service needs one VRID per address, including addresses that it has yet to get."""
    service = build.service("a/web", annotations={SPREAD_ANNOTATION: "true"}, **spec)
    assert routerids.needed(service) == expected


def test_needed_without_spreadvips() -> None:
    """Otherwise it needs one for both families."""
    assert routerids.needed(build.service("a/web", holds=["192.0.2.1", "2001:db8::1"])) == 1


def test_needed_in_shared_mode() -> None:
    """In Shared mode a Service needs none, except with instances of its own."""
    group = build.group(instances=shared())
    assert routerids.needed(build.service("a/web"), group) == 0
    assert routerids.needed(build.service("a/web", external_traffic_policy="Local"), group) == 1
