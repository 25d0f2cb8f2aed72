"""What drains a node, and that the last nodes keep their VIPs."""

import msgspec
import pytest

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.vrrp.drain import CORDON, EXCLUDE, EXCLUDE_LABEL, OUT_OF_SERVICE, drain_signal, drained_among
from kavip.vrrp.members import Peer
from kavip.vrrp.preference import MOST_TERMS, MOST_WEIGHT, levels_of, preferred_among
from kavip.vrrp.priorities import priorities
from tests.support import build

DRAIN = "kavip.io/drain"
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
    peers = [
        Peer("n1", preference=MOST_TERMS * MOST_WEIGHT, is_drained=True),
        Peer("n2"),
        Peer("n3", is_drained=True),
        Peer("n4", preference=1),
    ]
    levels = levels_of(peers, {"n3"})
    for number in range(20):
        drawn = dict(priorities(f"a/s{number}", ["n1", "n2", "n3", "n4"], preference=levels))
        order = sorted(drawn, key=lambda name: -drawn[name])
        assert order[:2] == ["n4", "n2"] and set(order[2:]) == {"n1", "n3"}
    assert preferred_among(["n1", "n2", "n3"], levels) == {"n2"}
    assert preferred_among(["n1", "n3"], levels) == {"n1", "n3"}
