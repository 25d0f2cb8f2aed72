"""What drains a node, and that the last nodes keep their VIPs."""

from collections.abc import Mapping
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.vrrp.drain import CORDON, EXCLUDE, EXCLUDE_LABEL, OUT_OF_SERVICE, drain_signal, drained_among
from kavip.vrrp.members import behind_of
from kavip.vrrp.preference import MOST_TERMS, MOST_WEIGHT, OF_SERVICE
from kavip.vrrp.priorities import BOTTOM, STEP_DOWN, TOP, priorities
from kavip.vrrp.spread import SpreadVIP, leads
from tests.support import build
from tests.support.examples import examples

DRAIN = "kavip.io/drain"
FOUR = ("n1", "n2", "n3", "n4")
BOTH = GroupSpec(drain_on=[CORDON, EXCLUDE])


def node(name: str = "n1", *, note: str = "", cordoned: bool = False, taint: str = "", label: str = "") -> Node:
    """A Node with these signals."""
    found = build.node(name, labels={label: ""} if label else None, taints=[taint] if taint else ())
    metadata = msgspec.structs.replace(found.metadata, annotations={DRAIN: note} if note else None)
    return msgspec.structs.replace(
        found, metadata=metadata, spec=msgspec.structs.replace(found.spec, unschedulable=cordoned)
    )


@pytest.mark.parametrize(
    ("subject", "alone", "with_both"),
    [
        (node(), "", ""),
        (node(note="true"), DRAIN, DRAIN),
        (node(note="disk is broken"), DRAIN, DRAIN),
        (node(note="false"), "", ""),
        (node(taint=f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"), OUT_OF_SERVICE, OUT_OF_SERVICE),
        (node(taint="other=x:NoSchedule"), "", ""),
        (node(cordoned=True), "", CORDON),
        (node(label=EXCLUDE_LABEL), "", EXCLUDE_LABEL),
    ],
)
def test_what_drains_a_node(subject: Node, alone: str, with_both: str) -> None:
    """Cordoning and the label count only where the group says so."""
    assert drain_signal(subject, GroupSpec()) == alone
    assert drain_signal(subject, BOTH) == with_both


def test_the_last_node_is_not_drained() -> None:
    """The nodes that the published text does not drain keep their rank; all at once drains none."""
    drained = [node("n1", note="true"), node("n2", note="true")]
    spec = GroupSpec()
    assert drained_among([*drained, node("n3")], spec, {}) == {"n1": 1, "n2": 1}
    last = [*drained, node("n3", note="true")]
    assert drained_among(last, spec, {"n1": 1, "n2": 2}) == {"n1": 1, "n2": 2}
    assert drained_among(last, spec, {"n1": 1}) == {"n1": 1}
    assert drained_among(last, spec, {}) == {}
    assert drained_among(last, spec, {"n1": 1, "n2": 1, "n3": 1}) == {}
    assert drained_among(last, spec, {"n1": 2, "n2": 1, "n3": 1}) == {"n2": 1, "n3": 1}
    assert drained_among([node("n1", note="true")], spec, {}) == {}


def test_a_node_keeps_its_turn_while_it_is_drained() -> None:
    """A node that is drained again gets the last turn."""
    spec, one, two, three = GroupSpec(), node("n1", note="true"), node("n2", note="true"), node("n3")
    assert drained_among([one, two, three], spec, {"n1": 1}) == {"n1": 1, "n2": 2}
    assert drained_among([node("n1"), two, three], spec, {"n1": 1, "n2": 2}) == {"n2": 2}
    assert drained_among([one, two, three], spec, {"n2": 2}) == {"n1": 3, "n2": 2}


def test_nodes_behind_the_others_are_in_order() -> None:
    """Those without the interface, then the drained ones; the last ones that can hold the VIPs keep their rank."""
    turns = {"n1": 1, "n2": 2}
    assert behind_of(FOUR, turns) == {"n1": 3, "n2": 2}
    assert behind_of(FOUR, {}, {"n3"}) == {"n3": 1}
    assert behind_of({"n1", "n2", "n4"}, turns, {"n3"}) == {"n1": 3, "n2": 2, "n3": 1}
    assert behind_of({"n1", "n2"}, turns, {"n3", "n4"}) == {"n1": 3, "n3": 1, "n4": 1}
    assert behind_of({"n1"}, turns, {"n2", "n3", "n4"}) == {"n2": 2, "n3": 1, "n4": 1}
    assert behind_of((), turns, FOUR) == {"n1": 3, "n2": 2, "n3": 1, "n4": 1}


def test_a_drained_node_ranks_last() -> None:
    """Also if it is the most preferred one; among drained nodes the order stays."""
    levels = {"n1": MOST_TERMS * MOST_WEIGHT, "n3": OF_SERVICE, "n4": 1}
    for number in range(20):
        drawn = dict(priorities(f"a/s{number}", FOUR, preference=levels, behind={"n1": 1, "n3": 1}))
        assert sorted(drawn, key=lambda name: -drawn[name]) == ["n4", "n2", "n3", "n1"]


@pytest.mark.parametrize("count", [2, 3, 7, 40, 100, 250])
@pytest.mark.parametrize("levels", [{}, {"n1": 2, "n5": 1}])
def test_a_drain_changes_no_other_priority(count: int, levels: Mapping[str, int]) -> None:
    """But by the number of drained nodes at most, at the bottom; the order of the others stays in any case."""
    nodes = [f"n{number}" for number in range(count)]
    for number in range(30):
        before = dict(priorities(f"a/s{number}", nodes, lead=nodes[-2:], preference=levels))
        drained = set(sorted(before, key=lambda node: (-before[node], node))[: count // 3 + 1 : 2])
        after = dict(
            priorities(f"a/s{number}", nodes, lead=nodes[-2:], preference=levels, behind=dict.fromkeys(drained, 1))
        )
        others = [node for node in nodes if node not in drained]
        moved = {node: after[node] - before[node] for node in others if after[node] != before[node]}
        assert all(0 < by <= len(drained) and before[node] <= BOTTOM + count for node, by in moved.items()), moved
        for one, other in combinations(others, 2):
            assert (before[one] < before[other]) is (after[one] < after[other]) or count > STEP_DOWN
        assert max(after[node] for node in drained) <= min(after[node] for node in others)
        assert count > STEP_DOWN or len(set(after.values())) == count
        assert min(after.values()) >= BOTTOM and max(after.values()) <= TOP


@examples(200)
@given(
    st.integers(0, 50),
    st.sets(st.sampled_from(FOUR), max_size=3),
    st.sets(st.sampled_from(FOUR)),
    st.lists(st.sampled_from(FOUR), min_size=1, max_size=6),
)
def test_no_drain_makes_a_third_node_master_meanwhile(
    number: int, lacking: set[str], failing: set[str], steps: list[str]
) -> None:
    """
    Nodes reload one after the other: until all have, the node before or the node after the drain is master.

    Of nodes that have the interface, and that pass their checks or have an endpoint, none that is drained takes a VIP.
    """
    turns: Mapping[str, int] = {}
    able, drained = sorted(set(FOUR) - lacking), set[str]()
    up = [each for each in able if each not in failing] or able
    before = dict(priorities(f"a/s{number}", FOUR, behind=behind_of(able, turns, lacking)))
    for name in steps:
        drained ^= {name}
        turns = drained_among([node(each, note="true" if each in drained else "") for each in FOUR], GroupSpec(), turns)
        after = dict(priorities(f"a/s{number}", FOUR, behind=behind_of(able, turns, lacking)))
        first, last = (max(up, key=numbers.__getitem__) for numbers in (before, after))
        if name in drained and first != last:
            assert first == name and last not in drained
        for count in range(len(up) + 1):
            for reloaded in combinations(up, count):
                mixed = {each: (after if each in reloaded else before)[each] for each in up}
                assert max(mixed.values()) == max(mixed[first], mixed[last])  # a master stays if another is equal
        before = after


def test_a_spread_service_keeps_its_other_vips_in_place_during_a_drain() -> None:
    """The VIP of the drained node goes to the node that ranks next, as after a death, within the bound."""
    nodes = {4: frozenset(FOUR)}
    for number in range(50):
        vips = [SpreadVIP(f"a/s{number}/{index}", 4) for index in range(3)]
        chosen = {drained: leads(vips, nodes, frozenset(drained)) for drained in ((), ("n1",))}
        drawn = {
            (vip, drained): dict(
                priorities(vip.seed, FOUR, lead=lead.get(vip.seed, ()), behind=dict.fromkeys(drained, 1))
            )
            for drained, lead in chosen.items()
            for vip in vips
        }
        first = {key: max(each, key=lambda name: each[name]) for key, each in drawn.items()}
        assert len({first[vip, ("n1",)] for vip in vips}) == len(vips)
        for vip in vips:
            if first[vip, ()] != "n1":
                assert first[vip, ("n1",)] == first[vip, ()]
