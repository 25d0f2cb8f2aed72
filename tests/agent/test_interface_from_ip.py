"""``interfaceFromIP`` on nodes with different interface names, and the privileges of a pod."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed import process
from hack.testbed.segment import Host, Segment
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import ONE, WEB, WEB_VIP, by_priority, master, started

pytestmark = pytest.mark.netns

NAMED = "shop/interface-x"
TEXT = mounts.rendered({NAMED: f"{WEB_VIP},2001:db8:2::130"}, interface="bond7")
_NET_ADMIN, _NET_RAW = 1 << 12, 1 << 13
_READ_ONLY = 'mount --bind "$0" "$0" && for each in / /run /var; do mount -o remount,bind,ro $each; done && exec "$@"'


def rename(host: Host, old: str, new: str) -> None:
    """Rename an interface, which must be down for that and loses its IPv6 addresses."""
    host.exec("ip", "link", "set", old, "down")
    host.exec("ip", "link", "set", old, "name", new)
    host.exec("ip", "link", "set", new, "up")
    host.exec("ip", "address", "add", f"{host.ipv6}/64", "dev", new, "nodad")


@pytest.fixture
def other(lan: Segment) -> Iterator[Host]:
    """Node n2 with its interface renamed to ens7."""
    host = lan.node("n2")
    rename(host, "eth0", "ens7")
    yield host
    rename(host, "ens7", "eth0")


def on(host: Host, interface: str) -> set[str]:
    """The addresses on *interface*."""
    (found,) = json.loads(host.exec("ip", "-json", "address", "show", "dev", interface).stdout)
    return {each["local"] for each in found["addr_info"]}


def leads(pods: list[Pod], name: str, vip: str, other: Host) -> None:
    """Wait until *vip* is on the node with the highest priority for *name*, on its interface, and nowhere else."""
    first, _ = by_priority(pods, name)
    master(first, name)
    wanted = [first.host is other, first.host is not other]
    first.wait_until("it alone has it", lambda: [vip in on(other, "ens7"), vip in pods[0].addresses()] == wanted)


@pytest.mark.parametrize("reach", ["192.0.2.1", "2001:db8:2::1", "192.0.2.12"])
def test_each_node_finds_its_own_interface(pod: MakePod, other: Host, reach: str) -> None:
    """By an address of either family, also a node's own; both families run there, whatever an instance is called."""
    pods = [started(pod(node), TEXT, interfaceFromIP=reach) for node in ("n1", "n2")]
    for name, vip in ((NAMED, WEB_VIP), (f"{NAMED}/v6", "2001:db8:2::130")):
        leads(pods, name, vip, other)
    assert all(each.state()["note"] == each.state()["refused"] == "" for each in pods)
    assert "bond7" not in "".join((each.run_dir / "keepalived.conf").read_text() for each in pods)


def test_an_interface_with_a_single_address_is_found_by_its_route(pod: MakePod, lan: Segment) -> None:
    """
    As in hosted networks: a /32 and a route to the gateway, also for an address behind the gateway.

    A node that has lost its address does not put VIPs on the interface of another gateway.
    """
    node, host = pod("n1"), lan.node("n1")
    host.exec("ip", "address", "del", f"{host.ipv4}/24", "dev", "eth0")
    try:
        host.exec("ip", "address", "add", f"{host.ipv4}/32", "dev", "eth0")
        host.exec("ip", "route", "add", "192.0.2.1", "dev", "eth0")
        text = mounts.rendered({WEB: WEB_VIP}, nodes=1, interface="bond7")
        master(started(node, text, interfaceFromIP="192.0.2.1"), WEB)
        assert (WEB_VIP in node.addresses(), node.state()["note"]) == (True, "")
        node.config.write(text, interfaceFromIP="198.51.100.1")
        node.wait_until("no way leads there", lambda: "198.51.100.1 (interfaceFromIP)" in node.state()["note"])
        host.exec("ip", "route", "add", "198.51.100.1", "via", "192.0.2.1")
        node.wait_until("a way is not enough", lambda: "through a gateway" in node.state()["note"])
        host.exec("ip", "address", "add", "192.0.2.99/24", "dev", "eth0")
        master(node, WEB)
        node.wait_until("all is well", lambda: node.state()["note"] == "")
    finally:
        host.exec("ip", "address", "del", "192.0.2.99/24", "dev", "eth0", check=False)
        host.exec("ip", "route", "flush", "root", "198.51.100.0/24", check=False)
        host.exec("ip", "address", "del", f"{host.ipv4}/32", "dev", "eth0", check=False)
        host.exec("ip", "address", "add", f"{host.ipv4}/24", "dev", "eth0")


def capabilities(pid: int) -> set[int]:
    """The effective, permitted and bounding sets of a process; inheritable and ambient must be empty."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.split()[0]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}
    assert found["CapInh:"] == found["CapAmb:"] == 0
    return {found["CapEff:"], found["CapPrm:"], found["CapBnd:"]}


def test_two_capabilities_and_one_folder_are_enough(pod: MakePod) -> None:
    """Root with NET_ADMIN and NET_RAW, no way to gain more, and one writable folder; a new VIP is asked for."""
    node = pod("n1")
    node.frame = ("unshare", "--mount", "--propagation=private", "sh", "-c", _READ_ONLY, str(node.run_dir))
    master(started(node, ONE, conflictDetection={"probe": [WEB_VIP]}), WEB)
    assert node.state()["notes"] == []
    assert node.agent and node.keepalived
    for family in (node.agent, node.keepalived):
        for pid in process.children([family.pid]):
            assert capabilities(pid) == {_NET_ADMIN | _NET_RAW}
            status, mounts = (Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "mounts"))
            assert "\nNoNewPrivs:\t1\n" in status
            roots = [line.split()[3].split(",")[0] for line in mounts.splitlines() if line.split()[1] in ("/", "/run")]
            assert {*roots} == {"ro"}
    node.runs(node.config.write(ONE.replace("router_id edge", "router_id other")))
    node.kill_keepalived()
    node.wait_until("the VIP is gone", lambda: WEB_VIP not in node.addresses())
