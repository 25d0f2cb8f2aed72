"""Nodes that join and leave: only the VIPs that they should hold, or held, move, and only once."""

from itertools import count

import pytest

from kavip.vrrp.priorities import priorities
from tests.support import build
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import INTERVAL, LiveGroup, group, service
from tests.transitions.recording import Recording, count_moves, record

pytestmark = pytest.mark.netns

NODES = ("n1", "n2", "n3", "n4")
CLEAR = 70
LATE = 4 * INTERVAL
"""Seconds by which one node lags behind: enough for a newcomer without a master to become master."""


def by_priority(number: int, *nodes: str) -> list[str]:
    """*nodes* in the order of their priorities for the Service of that *number*."""
    drawn = dict(priorities(f"lb/edge shop/s{number}", nodes))
    return sorted(nodes, key=lambda node: -drawn[node])


def numbers(*orders: tuple[str, ...]) -> list[int]:
    """
    For each of *orders*, the first Service for which the nodes have this order of priorities.

    The second node is clearly ahead of the third: where the first one dies, a busy machine does not make two masters.
    """
    found: list[int] = []
    for order in orders:
        found.append(next(n for n in count() if n not in found and _ranks(n, order)))
    return found


def _ranks(number: int, order: tuple[str, ...]) -> bool:
    drawn = sorted((priority for _, priority in priorities(f"lb/edge shop/s{number}", NODES)), reverse=True)
    return tuple(by_priority(number, *NODES))[: len(order)] == order and drawn[1] - drawn[2] > CLEAR


def start(live: LiveGroup, services: list[int], **spec: object) -> list[str]:
    """Roll the group out with these Services, wait for their masters, and return the VIPs."""
    vips = [f"192.0.2.{130 + index}" for index in range(len(services))]
    live.apply(group(**spec), *(service(f"shop/s{n}", vip) for n, vip in zip(services, vips, strict=True)))
    live.load()
    live.wait_for_masters()
    return vips


def assert_moved(recorded: Recording, number: int, vip: str) -> None:
    """The VIP of one Service moved once, and no other VIP lost a request."""
    assert recorded.failures.keys() | recorded.resets.keys() <= {vip}, recorded.timeline()
    assert recorded.double_masters == (), recorded.timeline()
    assert count_moves(recorded.transitions) == {f"shop/s{number}": 1}, recorded.timeline()


def assert_taken_over(recorded: Recording, number: int, vip: str) -> None:
    """The VIP moved once, from a live master."""
    assert_moved(recorded, number, vip)
    assert recorded.moved_cleanly(vip, moves=1), recorded.timeline()


def test_a_node_joins_and_one_leaves(make_live_group: MakeLiveGroup) -> None:
    """The new node takes over the VIP that it should have, the old node hands over its own; no other VIP moves."""
    live = make_live_group(3)
    first, second, _ = services = numbers(("n4", "n2"), ("n1", "n3"), ("n2", "n3"))
    vips = start(live, services)
    with record(live, vips) as joining:
        live.join("n4", delays={"n1": 0.4, "n2": LATE})
        live.wait_for_master(f"shop/s{first}", "n4")
    assert_taken_over(joining, first, vips[0])
    with record(live, vips) as leaving:
        live.leave("n1", delays={"n3": LATE, "n4": 0.4})
        live.wait_for_master(f"shop/s{second}", "n3")
    assert_moved(leaving, second, vips[1])


def test_a_node_joins_a_multicast_group(make_live_group: MakeLiveGroup) -> None:
    """A multicast node needs no peers: it receives the masters' adverts and takes over its VIP."""
    live = make_live_group(3)
    first, _ = services = numbers(("n4", "n2"), ("n1", "n3"))
    vips = start(live, services, unicast_enabled=False)
    with record(live, vips) as recorded:
        live.join("n4", delays={"n1": 0.4})
        live.wait_for_master(f"shop/s{first}", "n4")
    assert_taken_over(recorded, first, vips[0])


def test_several_nodes_join_while_one_changes_its_address(make_live_group: MakeLiveGroup) -> None:
    """There are never two masters. Only the VIPs of the new nodes and of the node that changes its address move."""
    live = make_live_group(2)
    services = numbers(("n3", "n1"), ("n4", "n2"), ("n1", "n2"), ("n2", "n1"))
    vips = start(live, services)
    live.lan.node("n2").exec("ip", "address", "add", "192.0.2.62/24", "dev", "eth0")
    with record(live, vips) as recorded:
        live.simulation.snapshot.put(build.node("n2", "192.0.2.62"))
        live.join("n3", "n4", delays={"n1": 0.5, "n4": 0.3})
        for number, leader in zip(services, ("n3", "n4", "n1", "n2"), strict=True):
            live.wait_for_master(f"shop/s{number}", leader)
    assert "@^n2 192.0.2.62 " in live.text
    assert "192.0.2.12 " not in live.text
    assert recorded.double_masters == (), recorded.timeline()
    assert {name: nodes[0] for name, nodes in recorded.masters.items()}.keys() == {f"shop/s{n}" for n in services}
    assert recorded.masters[f"shop/s{services[2]}"] == ["n1"], recorded.timeline()
    assert vips[2] not in recorded.failures.keys() | recorded.resets.keys(), recorded.timeline()
