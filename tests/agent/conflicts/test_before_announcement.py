"""A VIP that is new to the group is announced after the LAN was silent about it: real agents and daemons, a capture."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from hack.testbed.place import run
from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.agent.conflicts.inquiry import MOST, PROBES, SPACING
from kavip.agent.conflicts.verdicts import AGAIN
from tests.agent import mounts
from tests.agent.conflicts.capture import Capture, captured
from tests.agent.conflicts.stranger import announcing, having, sysctl
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import ONE, TWO, WEB, WEB_VIP, leader_and_backup, master, start_only_pod, started
from tests.transitions.recording import BackgroundProgram
from tests.vrrp.livedaemons import BEFORE_OTHERS

pytestmark = pytest.mark.netns

WEB_VIP6 = "2001:db8:2::130"
NEW, NEW6 = "192.0.2.131", "2001:db8:2::131"
BOTH = mounts.rendered({WEB: f"{WEB_VIP},{WEB_VIP6}", "shop/new": f"{NEW},{NEW6}"})
WITH_NEW = {"probe": [NEW, NEW6]}
MANY = {f"shop/s{number:03}": f"198.18.0.{number}" for number in range(1, 121)}
STRANGER = "02:00:c0:00:02:1e"
"""The hardware address of the segment's client."""


def claimed(node: Pod) -> dict[str, str]:
    """The VIPs that *node* reports as claimed by another machine, and by which."""
    return {each["address"]: each["hardwareAddress"] for each in node.state()["conflicts"]}


def assert_asked_before_announced(capture: Capture, address: str, *nodes: str) -> None:
    """Each of *nodes* sent three probes, far enough apart, before it first said that it has *address*."""
    for node in nodes:
        probes, claims = capture.probes(address, by=node), capture.claims(address, by=node)
        first = claims[0].moment if claims else float("inf")
        before = [each.moment for each in probes if each.moment < first]
        assert len(before) >= PROBES, (node, before, first)
        assert all(after - one >= 0.9 * SPACING for one, after in pairwise(before[-PROBES:]))
        assert first - before[-1] >= 0.9 * SPACING


def test_each_node_asks_before_it_announces(lan: Segment, pod: MakePod) -> None:
    """In both families, when both nodes start at once and do not know each other; then one of them is master."""
    probe = [WEB_VIP, WEB_VIP6, NEW, NEW6]
    with captured(lan) as capture:
        pods = [started(pod(node), BOTH, conflictDetection={"probe": probe}) for node in ("n1", "n2")]
        for instance in (WEB, f"{WEB}/v6", "shop/new", "shop/new/v6"):
            leader_and_backup(pods, instance)
        pods[0].wait_until("all are announced", lambda: all(map(capture.claims, probe)))
        for address in probe:
            assert_asked_before_announced(capture, address, "n1", "n2")
    assert [claimed(each) for each in pods] == [{}, {}]


def test_an_upgrade_asks_for_nothing(lan: Segment, pod: MakePod) -> None:
    """VIPs that the controller does not name are announced at once."""
    with captured(lan) as capture:
        master(started(pod("n1"), ONE, conflictDetection={}), WEB, f"{WEB}/v6")
        assert capture.probes(WEB_VIP) == capture.probes(WEB_VIP6) == []


def test_a_vip_that_a_stranger_has_is_announced_when_it_leaves(lan: Segment, pod: MakePod) -> None:
    """Until then no node announces it or answers for it; other changes are made, and the state says which machine."""
    node = start_only_pod(pod)
    with captured(lan) as capture:
        with having(lan.client, NEW, NEW6):
            cart = {"shop/cart": "192.0.2.132"}
            text = mounts.rendered({WEB: f"{WEB_VIP},{WEB_VIP6}", "shop/new": f"{NEW},{NEW6}", **cart})
            node.runs(node.config.write(text, conflictDetection=WITH_NEW))
            assert claimed(node) == {NEW: STRANGER, NEW6: STRANGER}
            master(node, "shop/cart")
            state = node.state()
            assert {each["name"] for each in state["leftOut"]} == {"shop/new", "shop/new/v6"}
            assert {(each["code"], each["by"]) for each in state["leftOut"]} == {("AddressConflict", "agent")}
            assert {each["kind"] for each in state["conflicts"]} == {"Withheld"}
            assert state["refused"] == "" and state["configHash"] == mounts.hash_of(text)
            node.wait_until("it asks again", lambda: len(capture.probes(NEW, by="n1")) >= 2 * PROBES)
            first, again = (capture.probes(NEW, by="n1")[at].moment for at in (0, PROBES))
            assert again - first >= AGAIN - 1
        assert [each for each in capture.claims(NEW) + capture.claims(NEW6) if each.host != "client"] == []
        master(node, "shop/new", "shop/new/v6")
        assert claimed(node) == {} and node.state()["leftOut"] == []
        node.wait_until("it is announced", lambda: bool(capture.claims(NEW, by="n1") and capture.claims(NEW6, by="n1")))


def test_a_shared_instance_lacks_only_the_vip(lan: Segment, pod: MakePod) -> None:
    """Its other VIPs are served, the one of the other family too, and one that is added later."""
    shared: dict[str, Any] = {"nodes": 1, "instances": mounts.shared(1)}
    text = mounts.rendered({WEB: WEB_VIP, "shop/new": f"{NEW},{NEW6}"}, **shared)
    node = pod("n1")
    with having(lan.client, NEW):
        started(node, text, conflictDetection={"probe": [WEB_VIP, NEW, NEW6]})
        node.wait_until("the others are there", lambda: node.addresses() >= {WEB_VIP, NEW6})
        assert claimed(node) == {NEW: STRANGER} and node.state()["leftOut"] == []
        more = mounts.rendered({WEB: WEB_VIP, "shop/new": f"{NEW},{NEW6}", "shop/z": "192.0.2.132"}, **shared)
        node.runs(node.config.write(more, conflictDetection={"probe": [WEB_VIP, NEW, NEW6, "192.0.2.132"]}))
        node.wait_until("the added one is there", lambda: "192.0.2.132" in node.addresses())
        assert NEW not in node.addresses()
        node.config.write(more, conflictDetection={"off": [f"{WEB_VIP}-{NEW}"]})  # its pool is switched off
        node.wait_until("it is loaded all the same", lambda: NEW in node.addresses())


@contextmanager
def second_network(lan: Segment, *hosts: Host) -> Iterator[None]:
    """Another segment, on which *hosts* have the interface eth1, which is down."""
    cables = {host: f"q-{host.name}" for host in hosts}
    lan.bridge.exec("ip", "link", "add", "br1", "type", "bridge")
    lan.bridge.exec("ip", "link", "set", "br1", "up")
    try:
        for host, port in cables.items():
            peer = ("peer", "name", "eth1", "address", host.address.mac, "netns", str(host.init))
            run(lan.bridge.command("ip", "link", "add", port, "type", "veth", *peer))
            lan.bridge.exec("ip", "link", "set", port, "master", "br1", "up")
        yield
    finally:
        for each in (*cables.values(), "br1"):
            lan.bridge.exec("ip", "link", "del", each)


def test_the_interface_of_the_vip_is_asked(lan: Segment, pod: MakePod) -> None:
    """A machine on another network does not matter; while the interface is down, the VIP is not loaded."""
    node = pod("n1")
    text = ONE.replace(f"{WEB_VIP}/32 dev eth0", f"{WEB_VIP}/32 dev eth1")
    assert text != ONE
    with second_network(lan, node.host, lan.client), sysctl(lan.client, "net/ipv4/conf/all/arp_ignore", 1):
        lan.client.exec("ip", "link", "set", "eth1", "up")
        with having(lan.client, WEB_VIP, dev="eth1"):
            started(node, text, conflictDetection={"probe": [WEB_VIP]})
            assert node.instances().keys() == {f"{WEB}/v6"} and claimed(node) == {}  # it could not ask
            node.host.exec("ip", "link", "set", "eth1", "up")
            node.wait_until("it has asked", lambda: claimed(node) == {WEB_VIP: STRANGER})
            assert node.state()["conflicts"][0]["interface"] == "eth1"
            node.config.write(ONE, conflictDetection={"probe": [WEB_VIP]})
            master(node, WEB)


_CUT = """
import json, socket, subprocess, sys
from kavip.agent.conflicts.packets import arp
ip = subprocess.Popen(["ip", "-batch", "-"], stdin=subprocess.PIPE, text=True)
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as wire:
    print("ready", flush=True)
    port = address = ""
    while (port, address) != ("p-n1", sys.argv[1]):
        frame, (port, *_) = wire.recvfrom(256)
        address = str(found.address) if (found := arp.read(frame)) else ""
ip.communicate("link set p-n1 down\\n")
print(json.dumps("down"))
"""


@contextmanager
def link_is_lost_with_the_first_probe(lan: Segment, address: str) -> Iterator[None]:
    """
    In this block the link of n1 goes down as soon as n1 asks for *address*, and stays down.

    An agent asks for 0.3 s. A program before all others is fast enough for that on a busy machine, and a test is not.
    """
    cut = BackgroundProgram(lan.bridge.command(*BEFORE_OTHERS, sys.executable, "-c", _CUT, address))
    yield
    assert cut.end() == "down"


def test_a_link_that_is_lost_while_the_node_asks(lan: Segment, pod: MakePod) -> None:
    """The probes do not count: the VIP is not loaded before the LAN was asked on a link that is up."""
    node = start_only_pod(pod)
    lan.silence(lan.client)
    with captured(lan) as capture, having(lan.client, NEW, NEW6):
        with link_is_lost_with_the_first_probe(lan, NEW):
            node.config.write(BOTH, conflictDetection=WITH_NEW)
        asked = "kavip_agent_probed_addresses_total 2.0"
        node.wait_until("it has asked", lambda: asked in node.answered(names.METRICS_PATH))
        lan.reconnect(lan.client)
        lan.reconnect(node.host)
        node.wait_until("it has heard", lambda: claimed(node) == {NEW: STRANGER, NEW6: STRANGER})
        assert capture.claims(NEW, by="n1") == capture.claims(NEW6, by="n1") == []


def test_what_runs_is_not_asked_for_again(lan: Segment, pod: MakePod) -> None:
    """Neither when the agent starts again, nor when the daemon does; the list may be old."""
    node = master(started(pod("n1"), ONE, conflictDetection={"probe": [WEB_VIP]}), WEB)
    with captured(lan) as capture, having(lan.client, WEB_VIP):
        node.kill_agent()
        node.start_agent()
        node.runs(mounts.hash_of(ONE))
        node.kill_keepalived()
        node.start_keepalived()
        master(node, WEB)
        assert capture.probes(WEB_VIP, by="n1") == []


def test_a_switch_does_not_wait_for_the_lan(lan: Segment, pod: MakePod) -> None:
    """New VIPs of the next text are asked for while it is prepared, and the one that a stranger has is left out."""
    node = start_only_pod(pod)
    with captured(lan) as capture, having(lan.client, NEW):
        more: dict[str, Any] = {"conflictDetection": WITH_NEW}
        node.config.write(ONE, following=BOTH, **more)
        node.wait_until("it is prepared", lambda: node.state()["prepared"] == mounts.DIGEST)
        node.wait_until("it has asked", lambda: claimed(node) == {NEW: STRANGER})
        node.wait_until("for the other one too", lambda: len(capture.probes(NEW6, by="n1")) >= PROBES)
        switch = time.time() + 3
        announced = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(switch))
        node.config.write(ONE, following=BOTH, switchAt=announced, **more)
        node.runs(mounts.hash_of(BOTH))
        master(node, "shop/new/v6")
        assert "shop/new" not in node.instances()
        assert not capture.claims(NEW, by="n1")


def test_many_vips_are_asked_for_a_few_at_a_time(lan: Segment, pod: MakePod) -> None:
    """At most 320 probes a second after the first one, and the first VIPs are loaded while the last are asked for."""
    text = mounts.rendered(MANY, nodes=1, instances=mounts.shared(4))
    with captured(lan) as capture:
        node = started(pod("n1"), text, conflictDetection={"probe": ["198.18.0.1-198.18.0.120"]})
        node.wait_until("all are there", lambda: set(MANY.values()) <= node.addresses())
        moments = sorted(each.moment for vip in MANY.values() for each in capture.probes(vip)[1:])
        first_claim = min(each.moment for vip in MANY.values() for each in capture.claims(vip))
        assert all(len(capture.probes(vip)) >= 1 + PROBES for vip in MANY.values())
    two = 2 * MOST * PROBES  # probes of two inquiries, which take as long as that many pauses
    assert all(after - moments[at] >= 0.9 * 2 * PROBES * SPACING for at, after in enumerate(moments[two:]))
    assert first_claim < moments[-1]


def test_a_node_that_starts_takes_no_instance_over_without_vips_that_are_announced(lan: Segment, pod: MakePod) -> None:
    """It asks once for each of many, before keepalived starts, and leaves out only those that no node has."""
    text = mounts.rendered(MANY, instances=mounts.shared(4))
    held, free = list(MANY.values())[:-2], list(MANY.values())[-2:]
    without = mounts.rendered(dict(list(MANY.items())[:-2]), instances=mounts.shared(4))
    first = started(pod("n1"), without, conflictDetection={})
    first.wait_until("all are there", lambda: set(held) <= first.addresses())
    with captured(lan) as capture, having(lan.client, free[0]):
        second = pod("n2")
        second.config.write(text, conflictDetection={"probe": ["198.18.0.1-198.18.0.120"]})
        second.prepare()
        loaded = set(
            re.findall(
                r"^        (198\.18\.\S+)/32 dev", (second.run_dir / "keepalived.conf").read_text(), re.MULTILINE
            )
        )
        assert loaded == set(held) | {free[1]}
        asked = Counter(vip for vip in MANY.values() for _ in capture.probes(vip, by="n2"))
    assert asked == Counter(held) + Counter(dict.fromkeys(free, PROBES + 1))


def test_an_agent_without_the_right_loads_vips_unasked(lan: Segment, pod: MakePod) -> None:
    """An older controller does not give it NET_RAW; the state says so."""
    node = pod("n1")
    node.frame = ("setpriv", "--bounding-set=-net_raw")
    with captured(lan) as capture:
        node.config.write(ONE, conflictDetection={"probe": [WEB_VIP]})
        node.prepare()
        node.start_agent()
        node.frame = ()
        node.start_keepalived()
        master(node, WEB)
        assert capture.probes(WEB_VIP, by="n1") == []
    assert [each["code"] for each in node.state()["notes"]] == ["ConflictsUndetected"]


def test_a_stranger_that_only_announces_is_heard(lan: Segment, pod: MakePod) -> None:
    """It need not answer: what it says while the node asks is enough."""
    node = start_only_pod(pod)
    with captured(lan) as capture, announcing(lan.client, NEW):
        node.wait_until("it announces", lambda: bool(capture.claims(NEW, by="client")))
        node.config.write(TWO, conflictDetection={"probe": [NEW]})
        node.wait_until("it has heard", lambda: claimed(node) == {NEW: STRANGER})
        assert capture.claims(NEW, by="n1") == []
