"""With ``kavip.io/rebalance`` one VIP moves after the other; without it, no VIP moves."""

from collections import Counter

import msgspec
import pytest

from hack.testbed import process
from kavip import names
from kavip.api import conditions
from kavip.api.group import KeepalivedGroup
from tests.agent.pod import PATIENCE
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import INTERVAL, LiveGroup, group, service
from tests.transitions.recording import count_moves, record

pytestmark = pytest.mark.netns

VIPS = {f"shop/s{number}": f"192.0.2.{130 + number}" for number in range(12)}


def rebalanced(live: LiveGroup) -> KeepalivedGroup:
    """The group with the annotation."""
    found = live.simulation.snapshot.groups[GROUP]
    metadata = msgspec.structs.replace(found.metadata, annotations={names.REBALANCE_ANNOTATION: "true"})
    return msgspec.structs.replace(found, metadata=metadata)


def ready_message(live: LiveGroup) -> str:
    """What Ready says of the group."""
    found = conditions.find(live.simulation.snapshot.groups[GROUP].status.conditions, "Ready")
    return found.message if found else ""


def test_vips_move_one_after_the_other(make_live_group: MakeLiveGroup) -> None:
    """Twelve VIPs on three nodes: four each. Only the four of n1 stay, and two of them move, but only on request."""
    live = make_live_group(3)
    live.apply(group(), *(service(name, vip) for name, vip in VIPS.items()))
    before = live.wait_for_masters()
    assert Counter(before.values()) == {"n1": 4, "n2": 4, "n3": 4}
    left = {name: vip for name, vip in VIPS.items() if before[name] == "n1"}
    with record(live, tuple(left.values())) as recorded:
        for name in VIPS.keys() - left.keys():
            live.simulation.snapshot.drop(names.SERVICE, name)
        live.settle()
        live.wait_until_stable()
        assert set(live.wait_for_masters().values()) == {"n1"}
        live.apply(rebalanced(live))

        def is_done() -> bool:
            live.step()
            return "; balanced: no node ranks first for more than 2 of 4 instances" in ready_message(live)

        process.wait_for("the group is balanced", is_done, timeout=PATIENCE)
        after = live.wait_for_masters()
    assert Counter(after.values()) == {"n1": 2, "n2": 1, "n3": 1}
    moved = {name for name in left if before[name] != after[name]}
    assert count_moves(recorded.transitions) == dict.fromkeys(moved, 1), recorded.timeline()
    assert recorded.double_masters == (), recorded.timeline()
    for name, vip in left.items():
        assert recorded.moved_cleanly(vip, moves=int(name in moved)), recorded.timeline()
    first, second = sorted(recorded.master_periods(left[name])[1].began for name in moved)
    assert second - first > INTERVAL, recorded.timeline()
