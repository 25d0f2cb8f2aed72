"""What breaks, is restarted or is away: who holds the VIP, and how often it moves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from hack.testbed import process
from hack.testbed.segment import Host
from tests.agent.pod import PATIENCE, Pod
from tests.changes.conftest import MakeRig
from tests.changes.rig import INTERVAL, Rig, group, service
from tests.changes.seen import Seen, moves, watching
from tests.vrrp.livedaemons import GRACE

pytestmark = pytest.mark.netns

MAIL, VIP = "shop/mail-329", "192.0.2.130"  # whose second node is clearly ahead of the third, also on a busy machine

ROUNDS = 2
"""Of five times that a node comes back it speaks first four times, and only then nobody is told."""


def started(rig: Rig, **spec: object) -> tuple[str, str]:
    """Roll one Service out; the node that holds it, and the one that is next."""
    rig.apply(group(**spec), service(MAIL, VIP))
    leader = rig.calm()[MAIL]
    return leader, rig.leaders(without=leader)[MAIL]


def restart_keepalived(pod: Pod) -> None:
    """End keepalived as kubelet does it, and start it again."""
    assert pod.keepalived
    process.stop([pod.keepalived], grace=GRACE)
    pod.start_keepalived()


@contextmanager
def forwarding_nothing(rig: Rig) -> Iterator[None]:
    """For as long as it lasts the nodes keep what is not for them, as behind a firewall."""
    forward(rig, "0")
    try:
        yield
    finally:
        forward(rig, "1")


@contextmanager
def believing(client: Host) -> Iterator[None]:
    """For as long as it lasts *client* does not try whether who had an address has it still."""
    setting = "/proc/sys/net/ipv4/neigh/eth0/delay_first_probe_time"
    before = client.exec("cat", setting).stdout.strip()
    client.exec("sh", "-c", f"echo 3600 >{setting}")
    try:
        yield
    finally:
        client.exec("sh", "-c", f"echo {before} >{setting}")


def knows(client: Host, host: Host) -> bool:
    """Whether *client* sends what is for the VIP to *host*."""
    return host.address.mac in client.exec("ip", "neigh", "show", VIP).stdout


def keeps_back(host: Host) -> bool:
    """
    Whether *host* has something to send as soon as it finds its neighbours, for three seconds at most.

    So the goodbye to its peers outlives a short cut, and who hears it then believes that nobody is master.
    """
    return bool(host.exec("ip", "neigh", "show", "nud", "incomplete").stdout)


def forward(rig: Rig, setting: str) -> None:
    """Set on every node whether it forwards."""
    for node in rig.lan.nodes:
        node.exec("sh", "-c", f"echo {setting} >/proc/sys/net/ipv4/ip_forward")


def moved(seen: Seen, *nodes: str) -> None:
    """The VIP was with these nodes, one after the other, and with no two at once."""
    assert seen.double_masters == (), seen.story()
    assert seen.masters[MAIL] == list(nodes), seen.story()


def test_agents_and_controller_may_be_away(make_rig: MakeRig) -> None:
    """While no agent and no controller is there, and when they are back, no VIP moves and no request is lost."""
    rig = make_rig(3)
    leader, _ = started(rig)
    with watching(rig, [VIP]) as seen:
        for pod in rig.pods.values():
            pod.kill_agent()
        time.sleep(5 * INTERVAL)
        for pod in rig.pods.values():
            pod.start_agent()
        rig.settle()
    assert (seen.failures, seen.resets, seen.transitions) == ({}, {}, {}), seen.story()
    moved(seen, leader)


def test_a_master_that_restarts_hands_over_and_takes_back_once(make_rig: MakeRig) -> None:
    """It says goodbye to the next one, which hands it back when it returns; and that is all."""
    rig = make_rig(3)
    leader, heir = started(rig)
    with watching(rig, [VIP]) as seen:
        restart_keepalived(rig.pods[leader])  # the wire tells of the heir: its reign may be too short to ask for it
        rig.lead(MAIL, leader)
        time.sleep(5 * INTERVAL)
    moved(seen, leader, heir, leader)
    assert seen.answering(VIP) == [leader, heir, leader], seen.story()
    assert seen.is_kept(VIP, moves=1, since=seen.first_answer(VIP, heir)), seen.story()


def test_a_master_that_restarts_stays_a_backup_where_the_group_says_so(make_rig: MakeRig) -> None:
    """With noPreempt there is one move and no way back."""
    rig = make_rig(3)
    rig.apply(group(no_preempt=True), service(MAIL, VIP))
    rig.master(MAIL)
    rig.rest()
    leader = rig.master(MAIL)
    with watching(rig, [VIP]) as seen:
        restart_keepalived(rig.pods[leader])
        rig.pods[leader].wait_until("is a backup again", lambda: rig.pods[leader].role(MAIL) == "BACKUP")
        heir = rig.master(MAIL)
        time.sleep(5 * INTERVAL)
    moved(seen, leader, heir)


def test_a_daemon_or_a_node_that_dies_loses_its_vip_once(make_rig: MakeRig) -> None:
    """Killed, cut off, silent: the next node takes over, and the first one takes back when it is there again."""
    rig = make_rig(3)
    leader, heir = started(rig)
    pod, host = rig.pods[leader], rig.lan.node(leader)
    with watching(rig, [VIP]) as killed:
        pod.kill_keepalived()
        rig.lead(MAIL, heir)
        pod.start_keepalived()
        rig.lead(MAIL, leader)
    moved(killed, leader, heir, leader)
    with watching(rig, [VIP]) as cut:
        rig.lan.cut(host)
        rig.lead(MAIL, heir)
        process.wait_for("its goodbye is lost", lambda: not keeps_back(host), timeout=PATIENCE)
        rig.lan.mend(host)
        rig.lead(MAIL, leader)
    moved(cut, leader, heir, leader)


def test_a_node_that_was_silent_is_found_again_at_once(make_rig: MakeRig) -> None:
    """
    It never knew that it was gone, and announces nothing when it is back; all others took its VIP for another's.

    No node forwards what reaches it in vain, and the client finds out nothing by itself, which takes seconds as a rule:
    that would hide how long clients go on to ask the wrong one.
    """
    rig = make_rig(2)
    leader, heir = started(rig)
    host, client = rig.lan.node(leader), rig.lan.client
    with forwarding_nothing(rig), believing(client):
        for _ in range(ROUNDS):
            with watching(rig, [VIP]) as seen:
                rig.lan.silence(host)
                process.wait_for("the next takes over", lambda: MAIL in rig.pods[heir].masters(), timeout=PATIENCE)
                rig.lan.mend(host)
                rig.lead(MAIL, leader)
                told = partial(knows, client, host)
                process.wait_for("the client is told", told, timeout=PATIENCE)
                time.sleep(1)  # a hundred requests
            assert seen.answering(VIP) == [leader, heir, leader], seen.story()
            assert moves(seen.transitions) == {MAIL: 1}, seen.story()


def test_an_agent_that_returns_removes_what_a_killed_daemon_left(make_rig: MakeRig) -> None:
    """Both were killed; the VIP stays on the node until the agent is back, and goes before keepalived is started."""
    rig = make_rig(2)
    leader, heir = started(rig)
    pod = rig.pods[leader]
    pod.kill_agent()
    pod.kill_keepalived()
    process.wait_for("the next takes over", lambda: MAIL in rig.pods[heir].masters(), timeout=PATIENCE)
    assert VIP in pod.addresses()
    pod.start_agent()
    pod.wait_until("the VIP is gone", lambda: VIP not in pod.addresses())
    with watching(rig, [VIP]) as seen:
        pod.start_keepalived()
        rig.lead(MAIL, leader)
    assert seen.is_kept(VIP, moves=1), seen.story()
    moved(seen, heir, leader)
