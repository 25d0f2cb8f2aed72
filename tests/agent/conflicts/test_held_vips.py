"""A stranger that claims a VIP which a node holds is reported within seconds, and the VIP is defended."""

import time
from itertools import pairwise

import pytest

from hack.testbed.segment import Segment
from kavip import names
from kavip.agent.conflicts.packets import arp
from kavip.agent.conflicts.verdicts import DEFEND
from kavip.api.address import parse_address
from tests.agent.conflicts.capture import captured
from tests.agent.conflicts.stranger import announce, having, send
from tests.agent.conflicts.test_before_announcement import STRANGER, WEB_VIP6, claimed
from tests.agent.conftest import MakePod
from tests.agent.podstates import ONE, WEB, WEB_VIP, master, started

pytestmark = pytest.mark.netns

GARP_MASTER_DELAY = 5
"""Seconds after which a new master of keepalived announces its VIPs again (keepalived.conf(5), garp_master_delay)."""
KNOWN = {"hardwareAddresses": ["02:00:c0:00:02:0b", "02:00:c0:00:02:0c"]}
"""What the controller says about n1 and n2."""


def test_a_claim_is_reported_and_defended_until_it_ends(lan: Segment, pod: MakePod) -> None:
    """In both families; at most one announcement in ten seconds for each VIP. The VIP stays where it is."""
    node = master(started(pod("n1"), ONE, conflictDetection=KNOWN), WEB, f"{WEB}/v6")
    before = node.transitions()
    node.wait_until("its first announcements are out", lambda: _is_quiet(lan, WEB_VIP, WEB_VIP6))
    with captured(lan) as capture:
        with having(lan.client, WEB_VIP, WEB_VIP6):
            for each in (WEB_VIP, WEB_VIP6):
                announce(lan.client, each)
            node.wait_until("it is told", lambda: claimed(node) == dict.fromkeys((WEB_VIP, WEB_VIP6), STRANGER))
            assert {each["kind"] for each in node.state()["conflicts"]} == {"Held"}
            node.wait_until(
                "both are defended twice",
                lambda: all(len(capture.claims(each, by="n1")) >= 2 for each in (WEB_VIP, WEB_VIP6)),
            )
        node.wait_until("it is over", lambda: claimed(node) == {})
        for each in (WEB_VIP, WEB_VIP6):
            defences = [frame.moment for frame in capture.claims(each, by="n1")]
            assert all(after - one >= DEFEND - 1 for one, after in pairwise(defences))
    assert node.transitions() == before and {WEB_VIP, WEB_VIP6} <= node.addresses()
    assert "kavip_agent_defences_total" in node.page(names.METRICS_PATH)[1]


def _is_quiet(lan: Segment, *addresses: str) -> bool:
    """Whether nothing is said about *addresses* for longer than keepalived pauses between its two first rounds."""
    with captured(lan) as capture:
        time.sleep(GARP_MASTER_DELAY + 2)
        return not capture.frames(*addresses)


def test_without_a_list_of_nodes_nothing_is_defended(lan: Segment, pod: MakePod) -> None:
    """The stranger could be a node: two nodes must not defend a VIP against each other."""
    node = master(started(pod("n1"), ONE, conflictDetection={}), WEB)
    node.wait_until("its first announcements are out", lambda: _is_quiet(lan, WEB_VIP))
    with captured(lan) as capture:
        announce(lan.client, WEB_VIP)
        node.wait_until("it is told", lambda: claimed(node) == {WEB_VIP: STRANGER})
        announce(lan.client, WEB_VIP)
        node.wait_until("it is over", lambda: claimed(node) == {})
        assert capture.claims(WEB_VIP, by="n1") == []


def test_a_vip_of_a_pool_that_is_switched_off_is_not_heard(lan: Segment, pod: MakePod) -> None:
    """The other one is."""
    node = master(started(pod("n1"), ONE, conflictDetection={**KNOWN, "off": [WEB_VIP]}), WEB, f"{WEB}/v6")

    def is_told() -> bool:
        for each in (WEB_VIP, WEB_VIP6):  # again and again: it may not listen yet
            announce(lan.client, each)
        return claimed(node) == {WEB_VIP6: STRANGER}

    node.wait_until("it is told", is_told)


def test_a_flood_of_claims_does_not_keep_the_agent_busy(lan: Segment, pod: MakePod) -> None:
    """It reads some of them, answers all the time, and reports a bounded number."""
    node = master(started(pod("n1"), ONE, conflictDetection=KNOWN), WEB)
    node.wait_until("its first announcements are out", lambda: _is_quiet(lan, WEB_VIP))
    macs = [bytes.fromhex(f"0200ff00{number:04x}") for number in range(2000)]
    frames = [arp.announcement(parse_address(WEB_VIP), source=each) for each in macs]
    for _ in range(5):
        send(lan.client, *frames)
        assert node.page(names.LIVE_PATH)[0] == 200
    node.wait_until("it is told", lambda: bool(claimed(node)))
    assert len(claimed(node)) == 1
