"""
Pools on networks of their own, each with a gateway, through the real kube-proxy and with strict reverse path filters.

Each of the two networks has a client behind its gateway. The default route of the nodes does not lead to them.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.machine import Machine
from hack.testbed.node import Node
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_pool, a_service, object_of
from tests.cluster.provisioning import (
    PATIENCE,
    REQUESTS,
    apply_objects,
    create_namespaces,
    delete_objects,
    release,
    retry_kubectl,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

HOME = "vlans"
BACKEND = Path(__file__).with_name("backend.py")
LABELS = {"app": "backend"}
STALLED = 30
"""Seconds for an answer that must come: longer than a busy machine stalls."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network of the nodes, its gateway, and the client behind it."""

    number: int
    ipv4: str
    ipv6: str
    client: str
    client_ipv6: str

    @property
    def card(self) -> str:
        """The interface of the nodes."""
        return f"vlan{self.number}"

    @property
    def table(self) -> int:
        """The routing table of its pool."""
        return 1000 + self.number

    @property
    def pool(self) -> dict[str, Any]:
        """Its pool."""
        routing = {"gateway": f"{self.ipv4}.1", "gatewayIPv6": f"{self.ipv6}::1", "table": self.table}
        return a_pool(
            self.card,
            f"{self.ipv4}.128/25",
            f"{self.ipv6}::100/120",
            autoAssign=False,
            interface=self.card,
            routing=routing,
        )


NETWORKS = (
    Network(20, "198.51.100", "2001:db8:20", "10.20.0.9", "2001:db8:a20::9"),
    Network(30, "203.0.113", "2001:db8:30", "10.30.0.9", "2001:db8:a30::9"),
)


@dataclass(slots=True)
class Site:
    """The cluster, and by network the machine of gateway and client."""

    session: Session
    machines: dict[int, Machine]

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        return self.session.cluster

    def ask(self, network: Network, address: str, *, seconds: int = 3) -> list[str]:
        """The answer to the client of *network*: the pod, and the client's address as the pod sees it."""
        where, source = address, network.client
        if ":" in address:
            where, source = f"[{address}]", network.client_ipv6
        command = ("curl", "--silent", "--max-time", str(seconds), "--interface", source, f"http://{where}/")
        return self.machines[network.number].exec(*command, check=False).stdout.split()

    def is_answered_by(self, network: Network, address: str, pods: frozenset[str]) -> bool:
        """Whether these pods answer, and no request is lost."""
        return self.pods_that_answer(network, address) == pods

    def pods_that_answer(self, network: Network, address: str, *, seconds: int = 3) -> set[str]:
        """The pods that answer twenty requests of the client; "" is among them if one is not answered."""
        return {(self.ask(network, address, seconds=seconds) or [""])[0] for _ in range(20)}


@pytest.fixture
def site(cluster: Callable[..., Cluster]) -> Iterator[Site]:
    """Two nodes with a card in each network, and kavip with a group; removed afterwards."""
    found = cluster(nodes=2, images=(image(),))
    with ExitStack() as stack:
        made = Site(Session(found), {each.number: join(found, each, stack) for each in NETWORKS})
        found.helm("upgrade", "--install", *release(found), "--create-namespace", "--set=image.pullPolicy=Never")
        group = object_of("KeepalivedGroup", "edge", namespace=HOME, version="redhatcop.redhat.io/v1alpha1")
        group["spec"] = {"interface": "eth0"}
        create_namespaces(found, HOME)
        apply_objects(found, group, *(each.pool for each in NETWORKS), backend())
        try:
            yield made
        finally:
            delete_objects(
                found,
                ("services", "--all", f"--namespace={HOME}"),
                ("namespace", HOME, "--wait=false"),
                *(("vippool", each.card) for each in NETWORKS),
            )


def join(cluster: Cluster, network: Network, stack: ExitStack) -> Machine:
    """Plug the nodes and a gateway, which is the client too, into *network*."""
    segment, card = cluster.segment, network.card
    machine = Machine(f"c{network.number}", cluster.state / f"c{network.number}")
    machine.start()
    stack.callback(machine.stop)
    segment.add_bridge(f"br{network.number}")
    stack.callback(segment.bridge.exec, "ip", "link", "del", f"br{network.number}")
    segment.plug(
        machine, card, bridge=f"br{network.number}", addresses=[f"{network.ipv4}.1/24", f"{network.ipv6}::1/64"]
    )
    for address in (f"{network.client}/32", f"{network.client_ipv6}/128"):
        machine.exec("ip", "address", "add", address, "dev", "lo")
    machine.exec("sysctl", "-w", f"net.ipv4.conf.{card}.arp_announce=2")  # as a gateway asks
    for node in cluster.nodes:
        own = [f"{network.ipv4}.{10 + node.number}/24", f"{network.ipv6}::{10 + node.number}/64"]
        segment.plug(node, card, bridge=f"br{network.number}", addresses=own)
        stack.callback(segment.unplug, node, card)
        settings = ("all.rp_filter=1", f"{card}.rp_filter=1", f"{card}.src_valid_mark=1")
        node.exec("sysctl", "-w", *(f"net.ipv4.conf.{each}" for each in settings))
        stack.callback(node.exec, "sysctl", "-w", "net.ipv4.conf.all.rp_filter=0")
    return machine


def backend() -> dict[str, Any]:
    """A pod on each node that answers with its name and the client's address."""
    container = {
        "name": "backend",
        "image": "localhost/kavip:demo",
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", BACKEND.read_text(), "8080"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "resources": REQUESTS,
    }
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    return object_of("DaemonSet", "backend", namespace=HOME, version="apps/v1", spec=spec)


def service(name: str, pool: str, **spec: Any) -> dict[str, Any]:
    """A dual-stack Service of the pods."""
    notes = {names.GROUP_ANNOTATION: f"{HOME}/edge", names.POOL_ANNOTATION: pool}
    ports = [{"port": 80, "targetPort": 8080}]
    more = {"ipFamilyPolicy": "RequireDualStack", "selector": LABELS, "ports": ports, **spec}
    return a_service(name, namespace=HOME, annotations=notes, **more)


def rules_of(node: Node) -> list[dict[str, Any]]:
    """The routing rules of kavip on *node*."""
    found = [json.loads(node.exec("ip", "-json", family, "rule", "show").stdout) for family in ("-4", "-6")]
    return [rule for some in found for rule in some if str(rule.get("protocol")) == "107"]


def traces(node: Node) -> list[str]:
    """Everything of kavip's routing on *node*."""
    tables = [line for line in node.exec("nft", "list", "tables").stdout.splitlines() if "kavip/" in line]
    routes = [
        node.exec("ip", family, "route", "show", "table", str(each.table), check=False).stdout
        for family in ("-4", "-6")
        for each in NETWORKS
    ]
    return [*tables, *map(str, rules_of(node)), *filter(None, routes)]


def test_replies_leave_by_the_gateway_of_the_pool(site: Site) -> None:
    """
    Both clients have answers from pods on this node and on another, before and after a fail-over, and nothing is left.
    """
    cluster, session = site.cluster, site.session
    objects = [service(f"web{each.number}", each.card) for each in NETWORKS]
    objects.append(service("local", "vlan20", externalTrafficPolicy="Local"))
    apply_objects(cluster, *objects)
    retry_kubectl(cluster, "rollout", "status", "daemonset/backend", f"--namespace={HOME}", "--timeout=100s")
    vips = {name: await_addresses(session, name) for name in ("web20", "web30", "local")}
    for name in vips:
        retry_kubectl(
            cluster, "wait", f"service/{name}", f"--namespace={HOME}", "--for=condition=kavip.io/Advertised",
            "--timeout=200s",
        )  # fmt: skip
    pods = pods_by_node(session)
    for network in NETWORKS:
        for address in vips[f"web{network.number}"]:
            both = partial(site.is_answered_by, network, address, frozenset(pods.values()))
            wait_for(f"both pods answer on {address}", both, timeout=PATIENCE)
    check_local(site, vips["local"], pods)
    check_fail_over(site, vips)
    check_killed_agents(site, vips)
    delete_objects(cluster, ("services", "--all", f"--namespace={HOME}"))
    wait_for("nothing is left", lambda: not any(map(traces, cluster.nodes)), timeout=PATIENCE)


def await_addresses(session: Session, name: str) -> list[str]:
    """Wait until the Service has both addresses."""
    wait_for(f"{name} has addresses", lambda: len(session.addresses(f"{HOME}/{name}")) == 2, timeout=PATIENCE)
    return session.addresses(f"{HOME}/{name}")


def pods_by_node(session: Session) -> dict[str, str]:
    """The names of the pods, by node."""
    found = session.get("pods", f"--namespace={HOME}", "--selector=app=backend")
    return {each["spec"]["nodeName"]: each["metadata"]["name"] for each in found["items"]}


def check_local(site: Site, vips: list[str], pods: dict[str, str]) -> None:
    """With ``Local`` the pod on the holder answers, and sees the client's own address."""
    network = NETWORKS[0]
    for vip in vips:
        own = network.client_ipv6 if ":" in vip else network.client

        def is_seen(vip: str = vip, own: str = own) -> bool:  # on a busy machine the VIP may move
            return site.ask(network, vip) == [pods[site.session.holder(vip).name], own]

        wait_for(f"the pod on the holder of {vip} sees the client", is_seen, timeout=PATIENCE)


def check_fail_over(site: Site, vips: dict[str, list[str]]) -> None:
    """The link of one network fails on the holder: its VIPs move and answer again, those of the other network stay."""
    network, other = NETWORKS
    vip, steady = vips["web20"][0], vips["web30"][0]
    before, kept = site.session.holder(vip), site.session.holder(steady)
    site.cluster.segment.set_link(before, network.card, "down")
    wait_for(
        "the VIP moves",
        lambda: [each.name for each in site.session.holders(vip)] not in ([], [before.name]),
        timeout=PATIENCE,
    )
    wait_for("the client has answers again", lambda: "" not in site.pods_that_answer(network, vip), timeout=PATIENCE)
    assert "" not in site.pods_that_answer(other, steady, seconds=STALLED)
    assert site.session.holder(steady).name == kept.name
    site.cluster.segment.set_link(before, network.card, "up")
    wait_for("the VIP is back", lambda: site.session.holders(vip) == [before], timeout=PATIENCE)


def is_agent(pid: int) -> bool:
    """Whether the process is an agent, and runs."""
    try:
        return b"agent" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return False


def resting_traces(node: Node) -> list[str]:
    """:func:`traces`, once they are the same for a while: an agent writes them after the VIP has come."""
    found = traces(node)

    def is_quiet() -> bool:
        nonlocal found
        time.sleep(3)
        before, found = found, traces(node)
        return found == before

    wait_for(f"the routing on {node.name} is at rest", is_quiet, timeout=PATIENCE)
    return found


def check_killed_agents(site: Site, vips: dict[str, list[str]]) -> None:
    """Agents that are killed leave the way back as it is; kubelet starts them again."""
    for node in site.cluster.nodes:
        before = resting_traces(node)
        agents = [one for one in node.processes() if is_agent(one.pid)]
        assert agents
        for one in agents:
            one.signal(9)
        assert traces(node) == before
    for network in NETWORKS:
        assert "" not in site.pods_that_answer(network, vips[f"web{network.number}"][0], seconds=STALLED)
