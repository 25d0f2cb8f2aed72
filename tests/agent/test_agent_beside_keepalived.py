"""The agent beside a real keepalived, on real interfaces, with the privileges of a pod."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

import pytest

from hack.testbed import process
from kavip import names
from kavip.api.agent import VIPS_BY_HASH, decode_state, hash_of
from kavip.api.group import Instances
from kavip.vrrp.running import running_instances
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import ONE, TWO, WEB, WEB_VIP, leader_and_backup, master, start_only_pod, started

pytestmark = pytest.mark.netns

Notation = Callable[[str], str]
NOTATIONS = (mounts.compact, mounts.packed)
MULTICAST = {"unicast_enabled": False, "advert_interval_milliseconds": 1000}
AHEAD = 6.0
"""Seconds between an announcement and its instant; an agent that sees it later switches at once."""

# --- configurations run -------------------------------------------------------------------------------------------


def test_a_first_configuration_runs_on_both_nodes(pod: MakePod) -> None:
    """Each VIP of both families has one master, which has the address; probes and metrics agree."""
    pods = [started(pod(node), ONE) for node in ("n1", "n2")]
    for address, instance in ((WEB_VIP, WEB), ("2001:db8:2::130", f"{WEB}/v6")):
        ordered = leader_and_backup(pods, instance)

        def first_alone(address: str = address, ordered: tuple[Pod, ...] = ordered) -> bool:
            return [address in each.addresses() for each in ordered] == [True, False]

        pods[0].wait_until(f"the first alone holds {address}", first_alone)
    for each in pods:
        state = each.state()
        assert state["node"] == each.host.name and state["group"] == "lb/edge"
        assert state["refused"] == "" and state["keepalived"]["running"]
        each.lives()
        assert each.page(names.READY_PATH) == (200, "ok\n")
        assert "keepalived_up 1.0" in each.answered(names.METRICS_PATH)


def test_the_only_node_of_a_group_is_master(pod: MakePod) -> None:
    """With the mode that it will have beside a second node, in both families."""
    text = mounts.rendered({WEB: f"{WEB_VIP},2001:db8:2::130"}, nodes=1)
    master(started(pod("n1"), text), WEB, f"{WEB}/v6")


def test_a_new_service_moves_no_other_vip(pod: MakePod) -> None:
    """Other instances stay master without a transition, also when it is removed."""
    node = start_only_pod(pod)
    before = node.transitions()
    node.runs(node.config.write(TWO))
    master(node, "shop/cart")
    assert {name: moment for name, moment in node.transitions().items() if name in before} == before
    assert {WEB_VIP, "192.0.2.131"} <= node.addresses()
    node.runs(node.config.write(ONE))
    assert node.transitions() == before
    assert "192.0.2.131" not in node.addresses()


def test_many_changes_end_with_the_last_one(pod: MakePod) -> None:
    """A dump confirms each; the VIP that is in all of them never moves."""
    node = start_only_pod(pod)
    before = node.transitions()[WEB]
    for number in range(8):
        services = {WEB: WEB_VIP, **{f"shop/s{each}": f"192.0.2.{140 + each}" for each in range(number % 3)}}
        text = mounts.rendered(services).replace("router_id edge", f"router_id edge-{number}")
        node.runs(node.config.write(text))
        assert set(node.instances()) == set(services)
    assert node.transitions()[WEB] == before


def test_a_restarted_agent_moves_nothing(pod: MakePod) -> None:
    """It finds the running keepalived and its configuration."""
    node = start_only_pod(pod)
    before = node.transitions()
    node.kill_agent()
    assert WEB_VIP in node.addresses()
    node.start_agent()
    node.runs(mounts.hash_of(ONE))
    assert node.transitions() == before


def test_a_group_without_services_runs(pod: MakePod) -> None:
    """A keepalived without instances writes no JSON and is alive; the first Service starts an instance."""
    nothing = mounts.rendered({})
    node = started(pod("n1"), nothing)
    node.lives()
    node.runs(node.config.write(ONE))
    master(node, WEB)
    node.runs(node.config.write(nothing))
    node.wait_until("the VIP is gone", lambda: WEB_VIP not in node.addresses())
    assert node.page(names.READY_PATH)[0] == 200


@pytest.mark.parametrize("notation", NOTATIONS)
def test_another_notation_changes_nothing(pod: MakePod, notation: Notation) -> None:
    """The same text in another notation is no news: keepalived reads nothing again, and nothing moves."""
    node = start_only_pod(pod, TWO)
    before, reloads, ran = node.transitions(), node.daemon_reloads(), (node.run_dir / "keepalived.conf").read_text()
    node.config.write(TWO, following=ONE, notation=notation)
    node.wait_until("it has read the next text, too", lambda: node.state()["prepared"] == mounts.DIGEST)
    assert node.state()["configHash"] == node.state()["wantedHash"] == mounts.hash_of(TWO)
    assert node.state()["capabilities"] == ["CompactText", "PackedText"]
    node.config.write(TWO)
    node.wait_until("it has read that there is none", lambda: node.state()["prepared"] == "")
    assert (node.run_dir / "keepalived.conf").read_text() == ran
    assert (node.transitions(), node.daemon_reloads()) == (before, reloads)


@pytest.mark.parametrize("notation", NOTATIONS)
def test_a_configuration_in_another_notation_runs(pod: MakePod, notation: Notation) -> None:
    """Each node runs its own lines of it, and a change of it reaches them."""
    first, second = (pod(node) for node in ("n1", "n2"))
    for each in (first, second):
        each.config.write(TWO, notation=notation)
        each.start()
    leader_and_backup([first, second], WEB)
    for each in (first, second):
        each.runs(mounts.hash_of(TWO))
    more = mounts.rendered({WEB: WEB_VIP, "shop/cart": "192.0.2.131", "shop/more": "192.0.2.132"})
    for each in (first, second):
        each.runs(each.config.write(more, notation=notation))
    leader_and_backup([first, second], "shop/more")


def test_many_vips_are_reported_by_hash_to_a_client_that_prefers_it(pod: MakePod) -> None:
    """The hash is that of the list which another client gets."""
    services = {f"shop/s{number:03}": f"198.18.{number // 200}.{number % 200 + 1}" for number in range(400)}
    text = mounts.rendered(services, nodes=1, instances=Instances(mode="Shared", count=4))
    node = started(pod("n1"), text)
    lists = {name: each["virtualIPs"] for name, each in node.instances().items()}
    assert set(services.values()) < {vip for vips in lists.values() for vip in vips}  # and the instances' own
    anchors = {name: str(each.identity.anchor.address) for name, each in running_instances(text).items()}
    assert {name: each["anchor"] for name, each in node.instances().items()} == anchors
    for name in lists:
        node.wait_until(f"{name} is master", lambda name=name: node.role(name) == "MASTER")  # type: ignore[misc]
    status, body = node.page(names.STATE_PATH, header=f"Prefer: {VIPS_BY_HASH}\r\n")
    assert status == HTTPStatus.OK and "198.18.0.1" not in body
    report = decode_state(body.encode())
    assert {each.name: each.virtual_ips_hash for each in report.instances} == {
        name: hash_of(tuple(vips)) for name, vips in lists.items()
    }
    assert {each.state for each in report.instances} == {"MASTER"}


def test_an_announced_switch_is_not_made_early(pod: MakePod) -> None:
    """Until the instant the old configuration runs, and the next one is prepared."""
    node = start_only_pod(pod)
    node.config.write(ONE, following=TWO)
    node.wait_until("it is prepared", lambda: node.state()["prepared"] == mounts.DIGEST)
    assert node.state()["configHash"] == mounts.hash_of(ONE)
    moment = time.time() + AHEAD
    announced = datetime.fromtimestamp(moment, UTC).isoformat()
    node.config.write(ONE, following=TWO, switchAt=announced)

    def has_seen() -> bool:
        state = node.state()
        return bool(state["switchAt"] == announced or state["configHash"] == mounts.hash_of(TWO))

    node.wait_until("it has seen the moment", has_seen)
    node.runs(mounts.hash_of(TWO))
    assert time.time() >= moment


def test_an_init_container_that_runs_again_changes_nothing(pod: MakePod) -> None:
    """Kubernetes may do that at any time."""
    node = start_only_pod(pod)
    before = node.transitions()
    node.prepare()
    assert WEB_VIP in node.addresses()
    assert node.transitions() == before


def test_a_node_without_strict_arp_is_noted(pod: MakePod) -> None:
    """Not with strictARP, or without kube-proxy's interface."""
    node = pod("n1")

    def strict_arp(value: int) -> None:
        node.host.exec("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/conf/all/arp_ignore")

    def warns(text: str) -> bool:
        """Whether the state warns once *text*, which is news and so makes the agent look, runs."""
        node.runs(node.config.write(text))
        return "without strictARP: this node answers ARP for VIPs of other nodes" in str(node.state()["note"])

    started(node, ONE)
    assert not warns(TWO)
    node.host.exec("ip", "link", "add", "kube-ipvs0", "type", "bridge")
    try:
        assert warns(ONE)
        strict_arp(1)
        assert not warns(TWO)
        strict_arp(0)
        assert warns(ONE)
        assert node.page(names.READY_PATH)[0] == 200  # a warning is no reason to take the VIPs away
    finally:
        strict_arp(0)
        node.host.exec("ip", "link", "del", "kube-ipvs0")
    assert not warns(TWO)


# --- daemons that die -----------------------------------------------------------------------------------------------


def test_a_killed_daemon_leaves_no_vip(pod: MakePod) -> None:
    """Its peer takes over alone, and the daemon that kubelet starts serves again."""
    pods = [started(pod(node), ONE) for node in ("n1", "n2")]
    loser, winner = leader_and_backup(pods, WEB)
    loser.kill_keepalived()
    loser.wait_until("the VIPs are gone", lambda: not loser.addresses() & {WEB_VIP, "2001:db8:2::130"})
    master(winner, WEB, f"{WEB}/v6")
    assert not loser.state()["keepalived"]["running"]
    assert loser.page(names.LIVE_PATH)[0] == 503
    loser.start_keepalived()
    loser.runs(mounts.hash_of(ONE))
    loser.lives()


def test_vips_of_a_killed_daemon_are_removed_at_the_next_start(pod: MakePod) -> None:
    """Also those that are no longer mounted, by the record."""
    node = start_only_pod(pod, TWO)
    node.kill_agent()
    node.kill_keepalived()
    assert {WEB_VIP, "192.0.2.131"} <= node.addresses()
    node.config.write(mounts.rendered({"shop/cart": "192.0.2.131"}))
    node.prepare()
    assert not node.addresses() & {WEB_VIP, "192.0.2.131"}
    assert "192.0.2.11" in node.addresses()


def test_vips_of_a_replaced_pod_are_removed(pod: MakePod) -> None:
    """Without a record: those that are wanted and look added."""
    node = start_only_pod(pod)
    node.kill_agent()
    node.kill_keepalived()
    node.replace()
    node.prepare()
    assert not node.addresses() & {WEB_VIP, "2001:db8:2::130"}
    assert {"192.0.2.11", "2001:db8:2::11"} <= node.addresses()
    node.start_keepalived()
    node.start_agent()
    master(node, WEB)


def test_a_stopped_daemon_is_not_alive(pod: MakePod) -> None:
    """Its process exists, but only a fresh dump proves that it works."""
    node = start_only_pod(pod)
    assert node.keepalived is not None
    children = process.children([node.keepalived.pid]) - {node.keepalived.pid}
    (child,) = [found for pid in children if (found := process.find(pid))]
    child.signal(19)  # SIGSTOP
    try:
        silent = (503, "keepalived does not answer\n")
        node.wait_until("it is not alive", lambda: node.get(names.LIVE_PATH) == silent)
        assert "keepalived_up 0.0" in node.page(names.METRICS_PATH)[1]
    finally:
        child.signal(18)  # SIGCONT
    node.lives()


# --- what differs between nodes -------------------------------------------------------------------------------------


def test_the_password_is_used_and_never_shown(pod: MakePod) -> None:
    """Nodes with the same password accept each other's adverts; no page and no log shows it."""
    text = mounts.rendered({WEB: WEB_VIP}, **mounts.WITH_PASSWORD, **MULTICAST)
    pods = [pod(node) for node in ("n1", "n2")]
    for each in pods:
        each.password.parent.mkdir(parents=True, exist_ok=True)
        each.password.write_text(mounts.PASSWORD)
        started(each, text, authentication=True)
    pods[0].wait_until("one master", lambda: [WEB in each.masters() for each in pods].count(True) == 1)
    assert f"auth_pass {mounts.PASSWORD}\n" in (pods[0].run_dir / "keepalived.conf").read_text()
    for each in pods:
        for page in (names.STATE_PATH, names.METRICS_PATH):
            assert mounts.PASSWORD not in each.get(page)[1]
        assert mounts.PASSWORD not in each.logs()
    pods[0].password.write_text("much too long")
    pods[0].wait_until("it is refused", lambda: pods[0].state()["refused"].startswith("password: want 1 to 8"))
    assert "too long" not in pods[0].logs()
    assert pods[0].state()["configHash"] == mounts.hash_of(text)


def test_the_interface_is_found_by_address(pod: MakePod) -> None:
    """The group's interface may be a placeholder; a node without a fitting one runs no instance, without a refusal."""
    text = ONE.replace("eth0", "ens99")
    node = master(started(pod("n1"), text, interfaceFromIP="192.0.2.1"), WEB)
    assert WEB_VIP in node.addresses()
    node.config.write(text, interfaceFromIP="198.51.100.1")
    node.wait_until("it has no part", lambda: "198.51.100.1 (interfaceFromIP)" in node.state()["note"])
    assert node.state()["refused"] == ""
    node.wait_until("the VIP is gone", lambda: WEB_VIP not in node.addresses())
    node.runs(mounts.hash_of(text))


def test_a_change_for_other_nodes_causes_no_reload(pod: MakePod) -> None:
    """The configuration counts as running; a reload would stop adverts for a moment."""
    node = start_only_pod(pod)
    reloads = node.daemon_reloads()
    elsewhere = ONE.replace("    unicast_peer {\n", "    @n9 priority 77\n    unicast_peer {\n")
    assert elsewhere != ONE
    node.runs(node.config.write(elsewhere))
    assert node.daemon_reloads() == reloads
    node.runs(node.config.write(TWO))
    assert node.daemon_reloads() > reloads
