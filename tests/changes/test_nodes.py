"""Nodes that join and leave: only the VIPs that they are to hold, or held, move, and once."""

from itertools import count

import pytest

from kavip.vrrp.priorities import priorities
from tests.changes.conftest import MakeRig
from tests.changes.rig import INTERVAL, Rig, group, service
from tests.changes.seen import Seen, moves, watching
from tests.support import build

pytestmark = pytest.mark.netns

NODES = ("n1", "n2", "n3", "n4")
CLEAR = 70
LATE = 4 * INTERVAL
"""Seconds by which one node gets to know later: enough for a newcomer that hears nobody to become master."""


def ranked(number: int, *nodes: str) -> list[str]:
    """*nodes* in the order in which they are to hold the Service of that *number*."""
    drawn = dict(priorities(f"lb/edge shop/s{number}", nodes))
    return sorted(nodes, key=lambda node: -drawn[node])


def numbers(*orders: tuple[str, ...]) -> list[int]:
    """
    For each of *orders* a Service for which the nodes rank so, from the first on.

    The second is clearly ahead of the third: where the first dies, a busy machine does not make two masters of them.
    """
    found: list[int] = []
    for order in orders:
        found.append(next(n for n in count() if n not in found and _ranks(n, order)))
    return found


def _ranks(number: int, order: tuple[str, ...]) -> bool:
    drawn = sorted((priority for _, priority in priorities(f"lb/edge shop/s{number}", NODES)), reverse=True)
    return tuple(ranked(number, *NODES))[: len(order)] == order and drawn[1] - drawn[2] > CLEAR


def start(rig: Rig, services: list[int], **spec: object) -> list[str]:
    """Roll the group out with these Services, and wait for their masters; the VIPs."""
    vips = [f"192.0.2.{130 + index}" for index in range(len(services))]
    rig.apply(group(**spec), *(service(f"shop/s{n}", vip) for n, vip in zip(services, vips, strict=True)))
    rig.calm()
    return vips


def moved(seen: Seen, number: int, vip: str) -> None:
    """The VIP of one Service moved once, and nobody else noticed."""
    assert seen.failures.keys() | seen.resets.keys() <= {vip}, seen.story()
    assert seen.double_masters == (), seen.story()
    assert moves(seen.transitions) == {f"shop/s{number}": 1}, seen.story()


def taken_over(seen: Seen, number: int, vip: str) -> None:
    """And it was taken from a master that lived."""
    moved(seen, number, vip)
    assert seen.is_kept(vip, moves=1), seen.story()


def test_a_node_joins_and_one_leaves(make_rig: MakeRig) -> None:
    """The new node takes over what it leads, the old one hands over what it held; nobody else notices."""
    rig = make_rig(3)
    first, second, _ = services = numbers(("n4", "n2"), ("n1", "n3"), ("n2", "n3"))
    vips = start(rig, services)
    with watching(rig, vips) as joining:
        rig.join("n4", delays={"n1": 0.4, "n2": LATE})
        rig.lead(f"shop/s{first}", "n4")
    taken_over(joining, first, vips[0])
    with watching(rig, vips) as leaving:
        rig.leave("n1", delays={"n3": LATE, "n4": 0.4})
        rig.lead(f"shop/s{second}", "n3")
    moved(leaving, second, vips[1])


def test_a_node_joins_a_multicast_group(make_rig: MakeRig) -> None:
    """It needs no peers: it hears the masters, and takes over what it leads."""
    rig = make_rig(3)
    first, _ = services = numbers(("n4", "n2"), ("n1", "n3"))
    vips = start(rig, services, unicast_enabled=False)
    with watching(rig, vips) as seen:
        rig.join("n4", delays={"n1": 0.4})
        rig.lead(f"shop/s{first}", "n4")
    taken_over(seen, first, vips[0])


def test_several_nodes_join_while_one_changes_its_address(make_rig: MakeRig) -> None:
    """Never two masters; only what the newcomers lead, and what the one that changes holds, moves."""
    rig = make_rig(2)
    services = numbers(("n3", "n1"), ("n4", "n2"), ("n1", "n2"), ("n2", "n1"))
    vips = start(rig, services)
    rig.lan.node("n2").exec("ip", "address", "add", "192.0.2.62/24", "dev", "eth0")
    with watching(rig, vips) as seen:
        rig.world.snapshot.put(build.node("n2", "192.0.2.62"))
        rig.join("n3", "n4", delays={"n1": 0.5, "n4": 0.3})
        for number, leader in zip(services, ("n3", "n4", "n1", "n2"), strict=True):
            rig.lead(f"shop/s{number}", leader)
    assert "@^n2 192.0.2.62 " in rig.text
    assert "192.0.2.12 " not in rig.text
    assert seen.double_masters == (), seen.story()
    assert {name: nodes[0] for name, nodes in seen.masters.items()}.keys() == {f"shop/s{n}" for n in services}
    assert seen.masters[f"shop/s{services[2]}"] == ["n1"], seen.story()
    assert vips[2] not in seen.failures.keys() | seen.resets.keys(), seen.story()
