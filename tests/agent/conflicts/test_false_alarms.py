"""
What looks like another machine with the VIP and is none: no node reports a conflict, and none is kept from the VIP.

Where the kernel of this machine lacks the real thing (bonds, ipvlan), the frames are the same: a bond whose switch
reflects broadcasts gets its own frames back, and a pod of ipvlan answers with the hardware address of its node.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from hack.testbed.place import run
from hack.testbed.segment import Segment
from kavip.agent.conflicts.inquiry import PROBES
from kavip.agent.conflicts.packets import arp, ndisc
from kavip.api.address import parse_address
from tests.agent import mounts
from tests.agent.conflicts.capture import captured
from tests.agent.conflicts.stranger import announce, having, send, sysctl
from tests.agent.conflicts.test_before_announcement import STRANGER, WEB_VIP6, claimed
from tests.agent.conflicts.test_held_vips import KNOWN
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import ONE, WEB, WEB_VIP, leader_and_backup, master, started

pytestmark = pytest.mark.netns

PROBE: dict[str, Any] = {"probe": [WEB_VIP, WEB_VIP6]}
MULTICAST = mounts.rendered({WEB: f"{WEB_VIP},{WEB_VIP6}"}, unicast_enabled=False)


def late_pods(pod: MakePod, text: str, **detection: Any) -> tuple[Pod, Pod]:
    """n1, which is master, and n2, which gets the same text when n1 has announced its VIPs long since."""
    first = master(started(pod("n1"), text, conflictDetection={**PROBE, **detection}), WEB, f"{WEB}/v6")
    first.wait_until("it has the VIPs", lambda: {WEB_VIP, WEB_VIP6} <= first.addresses())
    return first, started(pod("n2"), text, conflictDetection={**PROBE, **detection})


def runs_both(node: Pod) -> bool:
    """Whether *node* runs the instances of both families."""
    return node.instances().keys() == {WEB, f"{WEB}/v6"}


def test_a_node_that_gets_the_text_later(pod: MakePod) -> None:
    """It recognises the master as a unicast peer, without the controller."""
    first, second = late_pods(pod, ONE)
    second.wait_until("it runs them", lambda: runs_both(second))
    assert claimed(first) == claimed(second) == {}


def test_a_node_that_gets_the_text_later_without_unicast_peers(pod: MakePod) -> None:
    """It waits for the controller, which knows the hardware address of the master; the master stays master."""
    first, second = late_pods(pod, MULTICAST)
    mac = first.host.address.mac
    second.wait_until("it asks the controller", lambda: claimed(second) == dict.fromkeys((WEB_VIP, WEB_VIP6), mac))
    second.config.write(MULTICAST, conflictDetection={**PROBE, **KNOWN})
    second.wait_until("it runs them", lambda: runs_both(second))
    assert claimed(first) == claimed(second) == {} and first.masters() == {WEB, f"{WEB}/v6"}


@pytest.mark.parametrize("detection", [{}, KNOWN], ids=["without a list", "with a list"])
@pytest.mark.parametrize("text", [ONE, MULTICAST], ids=["unicast", "multicast"])
def test_a_fail_over(lan: Segment, pod: MakePod, text: str, detection: dict[str, Any]) -> None:
    """
    Both nodes announce the VIPs of both families for a moment; neither reports nor defends them.

    With multicast and without a list, a node reports the other one to the controller, which knows both.
    """
    pods = [started(pod(node), text, conflictDetection=detection) for node in ("n1", "n2")]
    leader, other = leader_and_backup(pods, WEB)
    allowed = {each.host.address.mac for each in pods} if text is MULTICAST and not detection else set()
    with captured(lan) as capture:
        for _ in range(2):
            leader.kill_keepalived()
            other.wait_until("it takes over", lambda: other.masters() == {WEB, f"{WEB}/v6"})
            leader.start_keepalived()
            leader_and_backup(pods, WEB)
            leader_and_backup(pods, f"{WEB}/v6")
            assert {mac for each in pods for mac in claimed(each).values()} <= allowed
        assert {each.host for each in capture.claims(WEB_VIP)} >= {"n1", "n2"}
        assert {each.host for each in capture.claims(WEB_VIP6)} >= {"n1", "n2"}
    for each in pods:
        assert "kavip_agent_defences_total 0.0" in each.answered("/metrics")


def test_two_nodes_that_hold_a_vip_do_not_fight(lan: Segment, pod: MakePod) -> None:
    """A split brain is no conflict of addresses: the controller reports it, and announcements would make it worse."""
    pods = [started(pod(node), ONE, conflictDetection=KNOWN) for node in ("n1", "n2")]
    leader, other = leader_and_backup(pods, WEB)
    other.wait_until("it does not have the VIP", lambda: WEB_VIP not in other.addresses())
    other.host.exec("ip", "addr", "add", f"{WEB_VIP}/32", "dev", "eth0")
    with captured(lan) as capture:
        for each in (leader, other, leader, other):
            announce(each.host, WEB_VIP)
        leader.wait_until("they were heard", lambda: len(capture.claims(WEB_VIP)) >= 4)
        assert [claimed(each) for each in pods] == [{}, {}]
    for each in pods:
        assert "kavip_agent_defences_total 0.0" in each.answered("/metrics")


def test_a_router_with_proxy_arp(lan: Segment, pod: MakePod) -> None:
    """It answers requests for addresses behind it, announcements too, but not probes; nor does it announce them."""
    node = pod("n1")
    text = mounts.rendered({WEB: "198.51.100.7"}, nodes=1)
    with sysctl(lan.client, "net/ipv4/conf/eth0/proxy_arp", 1), sysctl(lan.client, "net/ipv4/ip_forward", 1):
        lan.client.exec("ip", "link", "add", "behind", "type", "bridge")
        try:
            lan.client.exec("ip", "link", "set", "behind", "up")
            lan.client.exec("ip", "route", "add", "198.51.100.0/24", "dev", "behind")
            with captured(lan) as capture:
                request = bytearray(arp.announcement(parse_address("192.0.2.12"), source=b"\2\0\xc0\0\2\x0c"))
                request[38:42] = bytes((198, 51, 100, 7))
                send(lan.node("n2"), bytes(request))
                node.wait_until("it is a proxy", lambda: bool(capture.claims("198.51.100.7", by="client")))
                master(started(node, text, conflictDetection={"probe": ["198.51.100.7"]}), WEB)
                assert len(capture.probes("198.51.100.7", by="n1")) >= PROBES
                # an answer to keepalived's first round may come before the agent knows that the node holds it, and is
                # not verified then; a reload cancels the second round
                announce(node.host, "198.51.100.7")
                node.wait_until(
                    "it has verified an answer", lambda: len(capture.probes("198.51.100.7", by="n1")) >= 2 * PROBES
                )
                assert claimed(node) == {}
        finally:
            lan.client.exec("ip", "link", "del", "behind")


@contextmanager
def reflecting(lan: Segment, node: str) -> Iterator[None]:
    """The switch returns to *node* what it broadcasts, as on the second port of a bond."""
    port = lan.bridge.command("bridge", "link", "set", "dev", f"p-{node}", "hairpin")
    run([*port, "on"])
    try:
        yield
    finally:
        run([*port, "off"])


def test_a_bond_that_gets_its_own_frames_back(lan: Segment, pod: MakePod) -> None:
    """Neither its probes nor its announcements are another machine's."""
    node = pod("n1")
    with reflecting(lan, "n1"):
        master(started(node, ONE, conflictDetection={**PROBE, **KNOWN}), WEB, f"{WEB}/v6")
        for each in (WEB_VIP, WEB_VIP6):
            announce(node.host, each)
        announce(lan.client, "192.0.2.77")
        assert claimed(node) == {}


def test_another_speaker_on_a_node(lan: Segment, pod: MakePod) -> None:
    """MetalLB's speaker, and a pod of ipvlan, answer with the hardware address of the node."""
    detection = {**PROBE, **KNOWN}
    with having(lan.node("n2"), WEB_VIP, WEB_VIP6):  # what its kernel answers, a speaker would
        node = master(started(pod("n1"), ONE, conflictDetection=detection), WEB, f"{WEB}/v6")
        assert claimed(node) == {}
    for host in (node.host, lan.node("n2")):
        announce(host, WEB_VIP)
        announce(host, WEB_VIP6)
    assert claimed(node) == {}


def test_a_node_with_macvlan(lan: Segment, pod: MakePod) -> None:
    """Its kernel answers for the VIP on every interface, with several hardware addresses; one is known."""
    first = master(started(pod("n1"), ONE, conflictDetection=PROBE), WEB, f"{WEB}/v6")
    first.host.exec("ip", "link", "add", "link", "eth0", "name", "mv0", "type", "macvlan", "mode", "bridge")
    try:
        first.host.exec("ip", "addr", "add", "192.0.2.99/24", "dev", "mv0")
        first.host.exec("ip", "link", "set", "mv0", "up")
        (link,) = json.loads(first.host.exec("ip", "-json", "link", "show", "mv0").stdout)
        with captured(lan) as capture:
            second = started(pod("n2"), ONE, conflictDetection=PROBE)
            second.wait_until("it runs them", lambda: runs_both(second))
            macs = {each.hardware for each in capture.claims(WEB_VIP, by="n1")}
            assert macs == {first.host.address.mac, link["address"]}
        announce(first.host, WEB_VIP, mac=link["address"])
        assert claimed(first) == claimed(second) == {}
    finally:
        first.host.exec("ip", "link", "del", "mv0")


def test_kube_proxy_in_ipvs_mode_without_strict_arp(lan: Segment, pod: MakePod) -> None:
    """Every node answers for every VIP, with its own hardware address."""
    other = lan.node("n2")
    other.exec("ip", "link", "add", "kube-ipvs0", "type", "bridge")
    try:
        with having(other, WEB_VIP, WEB_VIP6, dev="kube-ipvs0"), captured(lan) as capture:
            node = master(started(pod("n1"), ONE, conflictDetection={**PROBE, **KNOWN}), WEB, f"{WEB}/v6")
            assert capture.claims(WEB_VIP, by="n2")
            assert claimed(node) == {}
    finally:
        other.exec("ip", "link", "del", "kube-ipvs0")


def tagged(frame: bytes) -> bytes:
    """*frame* in VLAN 20."""
    return frame[:12] + b"\x81\x00\x00\x14" + frame[12:]


def test_a_machine_in_another_vlan(lan: Segment, pod: MakePod) -> None:
    """On a trunk its frames come in too; neither before nor after the VIPs are announced is it a stranger."""
    client = bytes.fromhex(STRANGER.replace(":", ""))
    frames = [
        arp.announcement(parse_address(WEB_VIP), source=client),
        ndisc.advertisement(parse_address(WEB_VIP6), source=client, is_router=False),
    ]
    node = pod("n1")
    with captured(lan) as capture:
        node.config.write(ONE, conflictDetection={**PROBE, **KNOWN})
        with ThreadPoolExecutor(1) as thread:
            preparing = thread.submit(node.prepare)
            node.wait_until("it asks", lambda: bool(capture.probes(WEB_VIP, by="n1")))
            while not preparing.done():
                send(lan.client, *map(tagged, frames))
                time.sleep(0.01)
            preparing.result()
    node.start_keepalived()
    node.start_agent()
    master(node, WEB, f"{WEB}/v6")

    def has_read() -> bool:
        send(lan.client, *map(tagged, frames))  # again and again: it may not listen yet
        announce(lan.client, WEB_VIP6)  # untagged, so it counts, and is read later
        return WEB_VIP6 in claimed(node)

    node.wait_until("it has read them", has_read)
    assert WEB_VIP not in claimed(node)


def test_a_real_stranger_beside_these(lan: Segment, pod: MakePod) -> None:
    """The list of nodes hides no other machine."""
    node = pod("n1")
    with having(lan.client, WEB_VIP, WEB_VIP6):
        started(node, ONE, conflictDetection={**PROBE, **KNOWN})
        assert claimed(node) == dict.fromkeys((WEB_VIP, WEB_VIP6), STRANGER)
