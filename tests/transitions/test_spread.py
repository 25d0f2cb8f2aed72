"""A Service with spreadvips: its VIPs are on different nodes, before and after any node dies."""

from collections import Counter
from itertools import combinations, count

import pytest

from hack.testbed import process
from kavip import names
from kavip.api.service import Service
from kavip.vrrp import instances
from kavip.vrrp.moves import Placement
from kavip.vrrp.priorities import priorities
from kavip.vrrp.spread import SpreadVIP, leads
from tests.agent.pod import PATIENCE
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import INTERVAL, LiveGroup, group, service
from tests.transitions.recording import count_moves, record

pytestmark = pytest.mark.netns

NODES = ("n1", "n2", "n3")
VIPS = ("192.0.2.130", "192.0.2.131", "192.0.2.132")
FOUR = (*VIPS, "192.0.2.133")
OTHER = ("192.0.2.140", "192.0.2.141", "192.0.2.142")


def hash_order(key: str, vip: str) -> list[str]:
    """The nodes in the order that the hash gives one VIP."""
    drawn = dict(priorities(f"{GROUP} {key}/{vip}", NODES))
    return sorted(drawn, key=lambda node: -drawn[node])


def named(vips: tuple[str, ...], *, leaders: int) -> Service:
    """The first Service with these VIPs whose hash order has so many different nodes in the first place."""
    keys = (f"shop/s{number}" for number in count())
    found = next(key for key in keys if len({hash_order(key, vip)[0] for vip in vips}) == leaders)
    return service(found, *vips, annotations={names.SPREAD_ANNOTATION: "true"})


def shares(live: LiveGroup, web: Service) -> list[int]:
    """How many VIPs of *web* each node has that has any, the smallest number first; each VIP has one master."""
    return sorted(Counter(live.master(f"{web.key}/{vip}") for vip in web.external_addresses).values())


def wait_for_shares(live: LiveGroup, web: Service, *wanted: int) -> None:
    """Wait until the nodes have so many VIPs of *web*."""
    process.wait_for(f"the VIPs are spread {wanted}", lambda: shares(live, web) == sorted(wanted), timeout=PATIENCE)


@pytest.mark.parametrize("leaders", [1, 2])
def test_vips_are_spread_before_and_after_a_death(make_live_group: MakeLiveGroup, leaders: int) -> None:
    """Three VIPs on three nodes: one each; with any node dead two and one; one each again when it is back."""
    live, web = make_live_group(3), named(VIPS, leaders=leaders)
    live.apply(group(), web)
    wanted = live.wait_for_masters()
    assert sorted(wanted.values()) == ["n1", "n2", "n3"]
    for name in NODES:
        with record(live, VIPS) as recorded:
            live.pods[name].kill_keepalived()
            wait_for_shares(live, web, 1, 2)
            live.pods[name].start_keepalived()
            for instance, node in wanted.items():
                live.wait_for_master(instance, node)
        moved = next(instance for instance, node in wanted.items() if node == name)
        assert recorded.double_masters == (), recorded.timeline()
        assert count_moves(recorded.transitions).keys() == {moved}, recorded.timeline()
        assert [node for node in recorded.masters[moved] if node != name] == [live.preferred_nodes(without=name)[moved]]


def meeting() -> tuple[Service, tuple[str, str]]:
    """A Service of which one of four nodes gets three of the four VIPs when two others die, and these two."""
    nodes = ("n1", "n2", "n3", "n4")
    for number in range(100):
        vips = [SpreadVIP(f"{GROUP} shop/s{number}/{vip}", 4) for vip in FOUR]
        chosen = leads(vips, {4: nodes})
        orders = [dict(priorities(each.seed, nodes, lead=chosen.get(each.seed, ()))) for each in vips]
        for dead in combinations(nodes, 2):
            alive = [node for node in nodes if node not in dead]
            if 3 in Counter(max(alive, key=order.__getitem__) for order in orders).values():
                return service(f"shop/s{number}", *FOUR, annotations={names.SPREAD_ANNOTATION: "true"}), dead
    raise AssertionError


def test_the_controller_restores_the_bound_after_two_deaths(make_live_group: MakeLiveGroup) -> None:
    """Two of four nodes die, and three of four VIPs meet: one of them moves, and back when all nodes are back."""
    live, (web, dead) = make_live_group(4), meeting()
    live.apply(group(), web)
    wanted = live.wait_for_masters()
    for name in dead:
        live.pods[name].kill_agent()
        live.pods[name].kill_keepalived()
    wait_for_shares(live, web, 1, 3)
    for name in dead:
        live.report_silence(name)
    before = live.text
    with record(live, FOUR) as recorded:
        live.settle()
        process.wait_for(
            "the controller changes the text", lambda: live.step() and live.text != before, timeout=PATIENCE
        )
        wait_for_shares(live, web, 2, 2)
        live.settle()
    assert recorded.double_masters == (), recorded.timeline()
    assert list(count_moves(recorded.transitions).values()) == [1], recorded.timeline()
    assert all(recorded.moved_cleanly(vip, moves=1) for vip in FOUR), recorded.timeline()
    with record(live, FOUR) as returning:
        for name in dead:
            live.pods[name].start_keepalived()
            live.pods[name].start_agent()
        live.settle()
        for instance, node in wanted.items():
            live.wait_for_master(instance, node)
    assert returning.double_masters == (), returning.timeline()
    assert live.text == before


def test_only_vips_of_services_that_were_not_spread_move(
    make_live_group: MakeLiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade from one order for each VIP, VIPs move one by one, and a Service that is spread stays."""
    live, web, other = make_live_group(3), named(VIPS, leaders=1), named(OTHER, leaders=3)
    with monkeypatch.context() as old:
        old.setattr(instances, "place", lambda *_: Placement({}, {}, ()))
        live.apply(group(), web, other)
        before = live.wait_for_masters()
    assert shares(live, web) == [3]
    assert "# kavip: spread" not in live.text

    def is_spread() -> bool:
        live.step()
        return shares(live, web) == [1, 1, 1]

    with record(live, (*VIPS, *OTHER)) as recorded:
        process.wait_for("the VIPs are spread", is_spread, timeout=PATIENCE)
        live.settle()
        after = live.wait_for_masters()
    moved = {instance for instance in before if before[instance] != after[instance]}
    assert len(moved) == 2
    assert recorded.double_masters == (), recorded.timeline()
    assert count_moves(recorded.transitions).keys() == moved, recorded.timeline()
    for vip in (*VIPS, *OTHER):
        assert recorded.moved_cleanly(vip, moves=2), recorded.timeline()
    first, second = sorted(
        next(each.began for each in recorded.master_periods(vip) if each.node == after[f"{web.key}/{vip}"])
        for vip in VIPS
        if f"{web.key}/{vip}" in moved
    )
    assert second - first > INTERVAL, recorded.timeline()
