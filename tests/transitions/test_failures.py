"""Failures and restarts of daemons, agents and nodes: which node has the VIP, and how often it moves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from hack.testbed import process
from hack.testbed.segment import Host
from tests.agent.pod import PATIENCE, Pod
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import INTERVAL, LiveGroup, group, service
from tests.transitions.recording import Recording, count_moves, record
from tests.vrrp.livedaemons import GRACE

pytestmark = pytest.mark.netns

MAIL, VIP = "shop/mail-329", "192.0.2.130"  # its second node is clearly ahead of the third, also on a busy machine

ROUNDS = 2
"""
A node that comes back sends an advert first in four of five cases; only in the fifth its clients are not informed.
"""


def started(live: LiveGroup, **spec: object) -> tuple[str, str]:
    """Roll one Service out; the node that holds it, and the one that is next."""
    live.apply(group(**spec), service(MAIL, VIP))
    live.load()
    leader = live.wait_for_masters()[MAIL]
    return leader, live.preferred_nodes(without=leader)[MAIL]


def restart_keepalived(pod: Pod) -> None:
    """Stop keepalived as kubelet does, and start it again."""
    assert pod.keepalived
    process.stop([pod.keepalived], grace=GRACE)
    pod.start_keepalived()


@contextmanager
def forwarding_nothing(live: LiveGroup) -> Iterator[None]:
    """In this block no node forwards packets for other hosts, as behind a firewall."""
    forward(live, "0")
    try:
        yield
    finally:
        forward(live, "1")


@contextmanager
def trusting_arp(client: Host) -> Iterator[None]:
    """In this block *client* does not verify its ARP entries."""
    setting = "/proc/sys/net/ipv4/neigh/eth0/delay_first_probe_time"
    before = client.exec("cat", setting).stdout.strip()
    client.exec("sh", "-c", f"echo 3600 >{setting}")
    try:
        yield
    finally:
        client.exec("sh", "-c", f"echo {before} >{setting}")


def has_neighbour(client: Host, host: Host) -> bool:
    """Whether *client* sends packets for the VIP to *host*."""
    return host.address.mac in client.exec("ip", "neigh", "show", VIP).stdout


def holds_packets_back(host: Host) -> bool:
    """
    Whether *host* holds packets back until it finds its neighbours, for three seconds at most.

    An advert of priority 0 among them outlives a short outage, and peers that receive it believe that there is no
    master.
    """
    return bool(host.exec("ip", "neigh", "show", "nud", "incomplete").stdout)


def forward(live: LiveGroup, setting: str) -> None:
    """Set IP forwarding on every node."""
    for node in live.lan.nodes:
        node.exec("sh", "-c", f"echo {setting} >/proc/sys/net/ipv4/ip_forward")


def assert_moved(recorded: Recording, *nodes: str) -> None:
    """The VIP was on these nodes in this order, and never on two at once."""
    assert recorded.double_masters == (), recorded.timeline()
    assert recorded.masters[MAIL] == list(nodes), recorded.timeline()


def test_vips_stay_while_agents_and_controller_are_away(make_live_group: MakeLiveGroup) -> None:
    """While all agents and the controller are away, and when they come back, no VIP moves and no request is lost."""
    live = make_live_group(3)
    leader, _ = started(live)
    with record(live, [VIP]) as recorded:
        for pod in live.pods.values():
            pod.kill_agent()
        time.sleep(5 * INTERVAL)
        for pod in live.pods.values():
            pod.start_agent()
        live.settle()
    assert (recorded.failures, recorded.resets, recorded.transitions) == ({}, {}, {}), recorded.timeline()
    assert_moved(recorded, leader)


def test_a_master_that_restarts_hands_over_and_takes_back_once(make_live_group: MakeLiveGroup) -> None:
    """The next node takes over at its priority 0 and gives the VIP back when it returns. There is no other move."""
    live = make_live_group(3)
    leader, successor = started(live)
    with record(live, [VIP]) as recorded:
        # the adverts name the next node: its period may be too short to ask for it
        restart_keepalived(live.pods[leader])
        live.wait_for_master(MAIL, leader)
        time.sleep(5 * INTERVAL)
    assert_moved(recorded, leader, successor, leader)
    assert recorded.answering(VIP) == [leader, successor, leader], recorded.timeline()
    assert recorded.moved_cleanly(VIP, moves=1, since=recorded.first_answer(VIP, successor)), recorded.timeline()


def test_a_master_that_restarts_stays_backup_with_no_preempt(make_live_group: MakeLiveGroup) -> None:
    """With noPreempt the VIP moves once and does not come back."""
    live = make_live_group(3)
    live.apply(group(no_preempt=True), service(MAIL, VIP))
    live.master(MAIL)
    live.wait_until_stable()
    leader = live.master(MAIL)
    with record(live, [VIP]) as recorded:
        restart_keepalived(live.pods[leader])
        live.pods[leader].wait_until("is a backup again", lambda: live.pods[leader].role(MAIL) == "BACKUP")
        successor = live.master(MAIL)
        time.sleep(5 * INTERVAL)
    assert_moved(recorded, leader, successor)


@pytest.mark.parametrize("unicast", [True, False], ids=["unicast", "multicast"])
def test_a_dead_daemon_or_node_loses_its_vip_once(make_live_group: MakeLiveGroup, unicast: bool) -> None:
    """
    A killed daemon and a node that is cut off: the next node takes over, and the first one takes back when it returns.
    """
    live = make_live_group(3)
    leader, successor = started(live, unicast_enabled=unicast)
    pod, host = live.pods[leader], live.lan.node(leader)
    with record(live, [VIP]) as killed:
        pod.kill_keepalived()
        live.wait_for_master(MAIL, successor)
        pod.start_keepalived()
        live.wait_for_master(MAIL, leader)
    assert_moved(killed, leader, successor, leader)
    with record(live, [VIP]) as disconnect:
        live.lan.disconnect(host)
        live.wait_for_master(MAIL, successor)
        process.wait_for("its priority 0 is lost", lambda: not holds_packets_back(host), timeout=PATIENCE)
        live.lan.reconnect(host)
        live.wait_for_master(MAIL, leader)
    assert_moved(disconnect, leader, successor, leader)


def test_clients_find_a_node_again_whose_packets_were_lost(make_live_group: MakeLiveGroup) -> None:
    """
    A node whose packets are lost stays master and announces nothing when they pass again; clients must find it.

    Here no node forwards misdirected packets, and the client does not verify its ARP entries: both would hide how long
    clients keep sending to the wrong node.
    """
    live = make_live_group(2)
    leader, successor = started(live)
    host, client = live.lan.node(leader), live.lan.client
    with forwarding_nothing(live), trusting_arp(client):
        for _ in range(ROUNDS):
            with record(live, [VIP]) as recorded:
                live.lan.silence(host)
                process.wait_for(
                    "the next node takes over", lambda: MAIL in live.pods[successor].masters(), timeout=PATIENCE
                )
                live.lan.reconnect(host)
                live.wait_for_master(MAIL, leader)
                is_known = partial(has_neighbour, client, host)
                process.wait_for("the client has the new ARP entry", is_known, timeout=PATIENCE)
                time.sleep(1)  # a hundred requests
            assert recorded.answering(VIP) == [leader, successor, leader], recorded.timeline()
            assert count_moves(recorded.transitions) == {MAIL: 1}, recorded.timeline()


def test_an_agent_that_restarts_deletes_the_vip_of_a_killed_daemon(make_live_group: MakeLiveGroup) -> None:
    """The VIP of a killed daemon stays while the agent is away; the agent deletes it before keepalived starts."""
    live = make_live_group(2)
    leader, successor = started(live)
    pod = live.pods[leader]
    pod.kill_agent()
    pod.kill_keepalived()
    process.wait_for("the next node takes over", lambda: MAIL in live.pods[successor].masters(), timeout=PATIENCE)
    assert VIP in pod.addresses()
    pod.start_agent()
    pod.wait_until("the VIP is gone", lambda: VIP not in pod.addresses())
    with record(live, [VIP]) as recorded:
        pod.start_keepalived()
        live.wait_for_master(MAIL, leader)
    assert recorded.moved_cleanly(VIP, moves=1), recorded.timeline()
    assert_moved(recorded, successor, leader)
