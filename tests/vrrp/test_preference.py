"""Preferred nodes: the levels of a node, the order that follows, and the spread over preferred nodes."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import GroupPlacement, Instances, PreferredNodes
from kavip.vrrp.members import Peer
from kavip.vrrp.preference import (
    MOST_TERMS,
    MOST_WEIGHT,
    OF_SERVICE,
    levels_of,
    matching,
    note_of,
    preference_of,
    preferred_among,
    unmatched,
)
from kavip.vrrp.priorities import BOTTOM, TOP, priorities
from kavip.vrrp.spread import SpreadVIP, leads, most
from tests.support import build

PLACEMENT = GroupPlacement(
    preferred=[
        PreferredNodes(weight=80, node_selector={"zone": "a"}),
        PreferredNodes(weight=30, node_selector={"disk": "ssd"}),
        PreferredNodes(weight=10, node_selector={"zone": "b", "disk": "ssd"}),
    ]
)
LEVELS = st.dictionaries(st.sampled_from([f"n{number}" for number in range(12)]), st.sampled_from([0, 1, 50, 3300]))


def order_of(instance: str, nodes: list[str], levels: Mapping[str, int], lead: tuple[str, ...] = ()) -> list[str]:
    """*nodes* by priority, as keepalived elects."""
    drawn = dict(priorities(instance, nodes, lead=lead, preference=levels))
    return sorted(drawn, key=lambda node: -drawn[node])


@pytest.mark.parametrize(
    ("labels", "level"),
    [
        (None, 0),
        ({"zone": "c"}, 0),
        ({"zone": "a"}, 80),
        ({"zone": "a", "disk": "ssd"}, 110),
        ({"zone": "b", "disk": "ssd"}, 40),
    ],
)
def test_weights_of_matching_terms_add_up(labels: dict[str, str] | None, level: int) -> None:
    """As those of ``preferredDuringSchedulingIgnoredDuringExecution``."""
    assert preference_of(PLACEMENT, labels) == level


def test_the_service_comes_before_the_group() -> None:
    """No sum of the group's weights outweighs the nodes that a Service prefers."""
    assert MOST_TERMS * MOST_WEIGHT < OF_SERVICE
    peers = [Peer("n1", preference=MOST_TERMS * MOST_WEIGHT), Peer("n2"), Peer("n3", preference=1)]
    assert levels_of(peers) == {"n1": 3200, "n3": 1}
    levels = levels_of(peers, {"n2"})
    assert order_of("a/web", ["n1", "n2", "n3"], levels) == ["n2", "n1", "n3"]
    assert preferred_among(["n1", "n2", "n3"], levels) == {"n2"}
    assert preferred_among(["n1", "n3"], levels) == {"n1", "n3"}
    assert preferred_among(["n4", "n5"], levels) == {"n4", "n5"}


def test_terms_and_selectors_without_a_node_are_named() -> None:
    """By index, for a message."""
    assert unmatched(PLACEMENT, [{"zone": "a"}, None]) == [1, 2]
    nodes = [build.node("n1", labels={"zone": "a"}), build.node("n2")]
    assert matching("zone in (a,b)", nodes) == {"n1"}
    assert matching("!zone", nodes) == {"n2"}
    assert matching("zone in (", nodes) == frozenset()


def test_only_the_permitted_number_of_terms_is_compared() -> None:
    """A longer list is refused; what is stored all the same costs no more."""
    term = PreferredNodes(weight=1, node_selector={"zone": "a"})
    assert preference_of(GroupPlacement(preferred=[term] * 1000), {"zone": "a"}) == MOST_TERMS
    assert len(unmatched(GroupPlacement(preferred=[term] * 1000), [{"zone": "b"}])) == MOST_TERMS


@pytest.mark.parametrize(
    ("wish", "mode", "annotations", "note"),
    [
        ("", "PerService", {}, ""),
        ("zone=a", "PerService", {}, ""),
        ("zone=c", "PerService", {}, "matches no node of KeepalivedGroup lb/edge"),
        ("zone in", "PerService", {}, "'zone in': want label=value, label!=value, "),
        ("zone=a", "Shared", {}, "has no effect: the VIPs share instances of KeepalivedGroup lb/edge; spreadvips"),
        ("zone=a", "Shared", {"keepalived-operator.redhat-cop.io/spreadvips": "true"}, ""),
    ],
)
def test_why_a_wish_has_no_effect(wish: str, mode: str, annotations: dict[str, str], note: str) -> None:
    """In words for a warning and for a condition."""
    group = build.group(instances=Instances(mode=mode))
    service = build.service("shop/web", group="lb/edge", annotations={"kavip.io/preferred-nodes": wish, **annotations})
    found = note_of(service, group, [build.node("n1", labels={"zone": "a"})])
    assert found.startswith(note) and bool(found) == bool(note)
    assert "matches" not in note_of(service, group, [])


@given(LEVELS, st.integers(1, 12), st.integers(0, 10**6))
def test_preferred_nodes_rank_first(levels: dict[str, int], size: int, number: int) -> None:
    """By level, and within a level by hash; the priorities stay distinct and in their band."""
    nodes = [f"n{index}" for index in range(size)]
    found = order_of(f"a/s{number}", nodes, levels)
    hashed = order_of(f"a/s{number}", nodes, {})
    assert found == sorted(hashed, key=lambda node: -levels.get(node, 0))
    drawn = [priority for _, priority in priorities(f"a/s{number}", nodes, preference=levels)]
    assert len(set(drawn)) == size and all(BOTTOM <= each <= TOP for each in drawn)


@given(LEVELS, st.integers(1, 11), st.integers(0, 10**6))
def test_a_node_that_joins_moves_vips_only_to_itself(levels: dict[str, int], size: int, number: int) -> None:
    """It changes the order of no two others."""
    nodes = [f"n{index}" for index in range(size)]
    before = order_of(f"a/s{number}", nodes, levels)
    after = order_of(f"a/s{number}", [*nodes, "n11"], levels)
    assert [node for node in after if node != "n11"] == before


@given(LEVELS, st.integers(1, 8), st.integers(2, 12), st.integers(0, 10**6), st.data())
def test_vips_are_spread_over_preferred_nodes(
    levels: dict[str, int], count: int, size: int, number: int, data: st.DataObject
) -> None:
    """While one is up, after any one death too, and with several nodes dead."""
    nodes = [f"n{index}" for index in range(size)]
    vips = [SpreadVIP(f"lb/edge a/s{number}/192.0.2.{index}", 4) for index in range(count)]
    settled = leads(vips, {4: nodes}, levels=levels)
    for lost in ["", *nodes]:
        alive = preferred_among([node for node in nodes if node != lost], levels)
        holders = [
            next(node for node in order_of(vip.seed, nodes, levels, settled.get(vip.seed, ())) if node != lost)
            for vip in vips
        ]
        assert alive.issuperset(holders)
        assert max(Counter(holders).values()) <= most(count, len(alive))
    dead = frozenset(data.draw(st.sets(st.sampled_from(nodes), max_size=size - 1)))
    chosen = leads(vips, {4: nodes}, dead, levels)
    alive = preferred_among([node for node in nodes if node not in dead], levels)
    holders = [
        next(node for node in order_of(vip.seed, nodes, levels, chosen.get(vip.seed, ())) if node not in dead)
        for vip in vips
    ]
    assert alive.issuperset(holders)
    assert max(Counter(holders).values()) <= most(count, len(alive))


def test_the_highest_level_is_used_first() -> None:
    """Two VIPs and three preferred nodes: one VIP is on the node with the highest weight, always."""
    levels = {"n1": 100, "n2": 50, "n3": 50}
    for number in range(50):
        vips = [SpreadVIP(f"lb/edge a/s{number}/192.0.2.{index}", 4) for index in range(2)]
        chosen = leads(vips, {4: ["n1", "n2", "n3", "n4"]}, levels=levels)
        first = {order_of(vip.seed, ["n1", "n2", "n3", "n4"], levels, chosen.get(vip.seed, ()))[0] for vip in vips}
        assert "n1" in first and len(first) == 2 and "n4" not in first
