"""A drained node hands its VIPs over while it still runs, and takes them back."""

import pytest

from hack.testbed import process
from kavip.vrrp.priorities import priorities, seed_of
from tests.agent.pod import PATIENCE
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import LiveGroup, drained, group, service
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

VIPS = [f"192.0.2.{130 + number}" for number in range(6)]
FAR = 40
"""Of 256: the part of the advert interval between the first adverts of two nodes that would follow a drained one."""


def services_of_each_node() -> dict[str, str]:
    """
    By VIP, Services of which each of n1, n2 and n3 leads two.

    The nodes behind the first one have priorities far apart, so that a busy machine does not wake the last one first.
    """
    found: dict[str, list[str]] = {"n1": [], "n2": [], "n3": []}
    for number in range(200):
        drawn = priorities(seed_of(GROUP, f"shop/s{number}"), found)
        (_, first), (second, _), (third, _) = sorted(((number, node) for node, number in drawn), reverse=True)
        if second - third >= FAR and len(found[first]) < 2:
            found[first].append(f"shop/s{number}")
    return dict(zip(VIPS, (name for names in found.values() for name in names), strict=True))


def masters(live: LiveGroup) -> dict[str, str]:
    """The one master of each Service."""
    return {name: live.master(name) for name in sorted(live.preferred_nodes())}


def test_a_drain_moves_each_vip_once_and_cleanly(make_live_group: MakeLiveGroup) -> None:
    """
    Each VIP of the node moves once, from a live master, and comes back once; no other node is reloaded.

    The death of the drained node changes nothing, and the last node keeps all VIPs.
    """
    live = make_live_group(3)
    services = services_of_each_node()
    live.apply(group(), *(service(name, vip) for vip, name in services.items()))
    before = live.wait_for_masters()
    moving = {name: vip for vip, name in services.items() if before[name] == "n1"}
    assert len(moving) == 2
    reloads = {name: pod.daemon_reloads() for name, pod in live.pods.items()}
    with record(live, VIPS) as leaving:
        live.apply(drained(live, "n1"))
        after = live.wait_for_masters()
    assert {name for name, pod in live.pods.items() if pod.daemon_reloads() != reloads[name]} == {"n1"}
    assert "n1" not in after.values()
    assert {name for name in before if before[name] != after[name]} == moving.keys()
    assert leaving.double_masters == (), leaving.timeline()
    assert leaving.failures.keys() | leaving.resets.keys() <= set(moving.values()), leaving.timeline()
    for vip in moving.values():
        assert leaving.moved_cleanly(vip, moves=1), leaving.timeline()
    with record(live, VIPS) as dead:
        live.pods["n1"].stop()
        live.wait_until_stable()
        live.pods["n1"].start()
        live.wait_until_stable()
    assert dead.masters == {name: [node] for name, node in after.items()}, dead.timeline()
    assert (dead.failures, dead.resets) == ({}, {}), dead.timeline()
    with record(live, VIPS) as returning:
        live.apply(drained(live, "n1", note="false"))
        assert live.wait_for_masters() == before
    for vip in moving.values():
        assert returning.moved_cleanly(vip, moves=1), returning.timeline()


def test_a_drain_moves_vips_with_no_preempt_too(make_live_group: MakeLiveGroup) -> None:
    """Each once, to the node that ranks next; when the drained node returns, they stay."""
    live = make_live_group(3)
    live.apply(group(no_preempt=True), *(service(f"shop/s{number}", vip) for number, vip in enumerate(VIPS)))
    live.wait_until_stable()
    before = masters(live)
    busiest = max(sorted(live.pods), key=list(before.values()).count)  # the daemon that was up first has most VIPs
    moving = {name for name, node in before.items() if node == busiest}
    with record(live, VIPS) as leaving:
        live.apply(drained(live, busiest))
        process.wait_for("it has no VIP", lambda: live.step() and not live.pods[busiest].masters(), timeout=PATIENCE)
        live.wait_until_stable()
        live.settle()
    after = masters(live)
    assert {name for name in before if before[name] != after[name]} == moving
    assert "@^" not in "".join(line for line in live.text.splitlines() if "nopreempt" in line)
    assert leaving.double_masters == (), leaving.timeline()
    for number, vip in enumerate(VIPS):
        assert leaving.moved_cleanly(vip, moves=int(f"shop/s{number}" in moving)), leaving.timeline()
    with record(live, VIPS) as returning:
        live.apply(drained(live, busiest, note="false"))
        live.wait_until_stable()
    assert masters(live) == after
    assert (returning.transitions, returning.failures) == ({}, {}), returning.timeline()


def test_the_last_node_keeps_its_vips(make_live_group: MakeLiveGroup) -> None:
    """Nothing moves when the last node is drained too."""
    live = make_live_group(2)
    live.apply(group(), *(service(f"shop/s{number}", vip) for number, vip in enumerate(VIPS)))
    live.apply(drained(live, "n1"))
    assert set(live.wait_for_masters().values()) == {"n2"}
    with record(live, VIPS) as recorded:
        live.apply(drained(live, "n2"))
        live.wait_until_stable()
    assert (recorded.transitions, recorded.failures) == ({}, {}), recorded.timeline()
