"""What drains a node, and that the last nodes keep their VIPs."""

from collections.abc import Mapping
from itertools import combinations

import msgspec
import pytest

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.vrrp.drain import CORDON, EXCLUDE, EXCLUDE_LABEL, OUT_OF_SERVICE, drain_signal, drained_among
from kavip.vrrp.preference import MOST_TERMS, MOST_WEIGHT, OF_SERVICE
from kavip.vrrp.priorities import BOTTOM, STEP_DOWN, TOP, priorities
from kavip.vrrp.spread import SpreadVIP, leads
from tests.support import build

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
    assert drained_among([*drained, node("n3")], spec, ()) == {"n1", "n2"}
    last = [*drained, node("n3", note="true")]
    assert drained_among(last, spec, {"n1", "n2"}) == {"n1", "n2"}
    assert drained_among(last, spec, {"n1"}) == {"n1"}
    assert drained_among(last, spec, ()) == frozenset()
    assert drained_among(last, spec, {"n1", "n2", "n3"}) == frozenset()
    assert drained_among([node("n1", note="true")], spec, ()) == frozenset()


def test_a_drained_node_ranks_last() -> None:
    """Also if it is the most preferred one; among drained nodes the order stays."""
    levels = {"n1": MOST_TERMS * MOST_WEIGHT, "n3": OF_SERVICE, "n4": 1}
    for number in range(20):
        drawn = dict(priorities(f"a/s{number}", FOUR, preference=levels, drained={"n1", "n3"}))
        assert sorted(drawn, key=lambda name: -drawn[name]) == ["n4", "n2", "n3", "n1"]


@pytest.mark.parametrize("count", [2, 3, 7, 40, 100, 250])
@pytest.mark.parametrize("levels", [{}, {"n1": 2, "n5": 1}])
def test_a_drain_changes_no_other_priority(count: int, levels: Mapping[str, int]) -> None:
    """But by the number of drained nodes at most, at the bottom; the order of the others stays in any case."""
    nodes = [f"n{number}" for number in range(count)]
    for number in range(30):
        before = dict(priorities(f"a/s{number}", nodes, lead=nodes[-2:], preference=levels))
        drained = set(sorted(before, key=lambda node: (-before[node], node))[: count // 3 + 1 : 2])
        after = dict(priorities(f"a/s{number}", nodes, lead=nodes[-2:], preference=levels, drained=drained))
        others = [node for node in nodes if node not in drained]
        moved = {node: after[node] - before[node] for node in others if after[node] != before[node]}
        assert all(0 < by <= len(drained) and before[node] <= BOTTOM + count for node, by in moved.items()), moved
        for one, other in combinations(others, 2):
            assert (before[one] < before[other]) is (after[one] < after[other]) or count > STEP_DOWN
        assert max(after[node] for node in drained) <= min(after[node] for node in others)
        assert count > STEP_DOWN or len(set(after.values())) == count
        assert min(after.values()) >= BOTTOM and max(after.values()) <= TOP


def test_a_spread_service_keeps_its_other_vips_in_place_during_a_drain() -> None:
    """The VIP of the drained node goes to the node that ranks next, as after a death, within the bound."""
    nodes = {4: frozenset(FOUR)}
    for number in range(50):
        vips = [SpreadVIP(f"a/s{number}/{index}", 4) for index in range(3)]
        chosen = {drained: leads(vips, nodes, frozenset(drained)) for drained in ((), ("n1",))}
        drawn = {
            (vip, drained): dict(priorities(vip.seed, FOUR, lead=lead.get(vip.seed, ()), drained=drained))
            for drained, lead in chosen.items()
            for vip in vips
        }
        first = {key: max(each, key=lambda name: each[name]) for key, each in drawn.items()}
        assert len({first[vip, ("n1",)] for vip in vips}) == len(vips)
        for vip in vips:
            if first[vip, ()] != "n1":
                assert first[vip, ("n1",)] == first[vip, ()]
