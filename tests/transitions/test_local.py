"""``externalTrafficPolicy: Local``: VIPs are only on nodes with endpoints."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from hack.testbed import process
from kavip import names
from kavip.api.service import Service
from kavip.vrrp import tracking
from tests.agent.pod import PATIENCE, Pod
from tests.reconcile.simulatedcluster import GROUP
from tests.support import build
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.healthports import PORT, HealthPorts
from tests.transitions.livegroup import LiveGroup, group, service
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

VIP, OTHER, PLAIN, SPREAD = "192.0.2.130", "192.0.2.131", "192.0.2.132", "192.0.2.133"
WEB: Service = build.service(
    "shop/web", group=GROUP, holds=[VIP], external_traffic_policy="Local", health_check_node_port=PORT
)
PORTLESS = service("shop/portless", OTHER, external_traffic_policy="Local")


@pytest.fixture
def live(make_live_group: MakeLiveGroup) -> LiveGroup:
    """A group on three nodes."""
    return make_live_group(3)


@pytest.fixture
def health_ports(live: LiveGroup, tmp_path: Path) -> Iterator[HealthPorts]:
    """kube-proxy's health port on every node, without endpoints."""
    made = HealthPorts(live.lan.nodes, tmp_path / "proxies")
    made.start()
    yield made
    made.stop()


def wait_until_on(live: LiveGroup, instance: str, node: str) -> None:
    """Wait until *node* is the only master of *instance*."""
    process.wait_for(f"{instance} is on {node}", lambda: live.master(instance) == node, timeout=PATIENCE)


def restart_agent(pod: Pod) -> None:
    """Kill the agent, and start it again."""
    pod.kill_agent()
    pod.start_agent()


def reloads(live: LiveGroup) -> list[str]:
    """The reload counters of all agents."""
    lines = [line for each in live.pods.values() for line in each.answered(names.METRICS_PATH).splitlines()]
    return [line for line in lines if line.startswith("kavip_agent_reloads_total")]


@pytest.mark.parametrize("unicast", [True, False], ids=["unicast", "multicast"])
def test_vips_follow_endpoints(live: LiveGroup, health_ports: HealthPorts, unicast: bool) -> None:
    """
    Each change of endpoints moves the VIPs once, to a node with an endpoint; without endpoints, to the preferred node.

    For one Service kube-proxy's health port reports the endpoints, for the other the controller does, without a reload.
    No other VIP moves. As with a Deployment that is rolled, the next node has an endpoint before the last one has none.
    """
    health_ports.set_ready("n1")
    plain, endpoints = service("shop/plain", PLAIN), build.endpoints("shop/portless", "n1")
    live.apply(group(unicast_enabled=unicast), WEB, PORTLESS, plain, endpoints)
    live.load()
    for name in ("shop/web", "shop/portless"):
        wait_until_on(live, name, "n1")
    preferred = live.preferred_nodes()
    wait_until_on(live, "shop/plain", preferred["shop/plain"])
    before = reloads(live)
    with record(live, [VIP, OTHER, PLAIN]) as recorded:
        for last, node in pairwise(("n1", "n2", "n3")):
            health_ports.set_ready(last, node)
            live.apply(build.endpoints("shop/portless", last, node))
            wait_until_reported(live, node, "shop/web", "shop/portless")
            health_ports.set_ready(node)
            live.apply(build.endpoints("shop/portless", draining=[node]))
            for name in ("shop/web", "shop/portless"):
                wait_until_on(live, name, node)
            wait_until_reported(live, last)
        health_ports.set_ready()
        live.apply(build.endpoints("shop/portless"))
        for name in ("shop/web", "shop/portless"):
            wait_until_on(live, name, preferred[name])
    assert reloads(live) == before and len(before) == 3
    assert recorded.double_masters == (), recorded.timeline()
    moved = {name: ["n1", "n2", "n3", preferred[name]] for name in ("shop/web", "shop/portless")}
    assert recorded.masters == {**moved, "shop/plain": [preferred["shop/plain"]]}, recorded.timeline()
    for vip, moves in {VIP: 3, OTHER: 3, PLAIN: 0}.items():
        assert recorded.moved_cleanly(vip, moves=moves), recorded.timeline()


def test_endpoints_without_a_node_leave_one_master(live: LiveGroup, health_ports: HealthPorts) -> None:
    """
    kube-proxy answers on no node then. Each VIP has one master and keeps it, also while such endpoints come and go.

    A controller may write such a slice by hand, as for a program outside the cluster.
    """
    spread = build.service(
        "shop/spread",
        group=GROUP,
        holds=[PLAIN, SPREAD],
        annotations={names.SPREAD_ANNOTATION: "true"},
        external_traffic_policy="Local",
        health_check_node_port=PORT,
    )
    keys = ("shop/web", "shop/portless", "shop/spread")
    outside = [build.endpoints(key, addresses=["198.51.100.9"]) for key in keys]
    live.apply(group(), WEB, PORTLESS, spread, *outside)
    settled = live.wait_for_masters()
    assert len(settled) == 4
    with record(live, [VIP, OTHER, PLAIN, SPREAD]) as recorded:
        live.apply(*(build.endpoints(key) for key in keys))
        live.apply(*(build.endpoints(key, addresses=["198.51.100.9", "198.51.100.10"]) for key in keys))
        live.wait_until_stable()
    assert recorded.double_masters == (), recorded.timeline()
    assert {name: [node] for name, node in settled.items()} == recorded.masters, recorded.timeline()
    assert (recorded.transitions, recorded.failures) == ({}, {}), recorded.timeline()


def test_restarts_of_kube_proxy_and_agents_move_no_vip(live: LiveGroup, health_ports: HealthPorts) -> None:
    """kube-proxy's rules outlive its restart, and an agent that restarts keeps what the last one wrote."""
    health_ports.set_ready("n3")
    live.apply(group(), WEB)
    wait_until_on(live, "shop/web", "n3")
    with record(live, [VIP]) as recorded:
        health_ports.stop()
        with ThreadPoolExecutor() as threads:  # at once: after fifteen seconds of silence an agent gives the port up
            list(threads.map(restart_agent, live.pods.values()))
        health_ports.start()
        live.settle()
        process.wait_for(
            "all agents report it",
            lambda: ready_by_node(live) == {"n1": False, "n2": False, "n3": True},
            timeout=PATIENCE,
        )
    assert (recorded.transitions, recorded.failures) == ({}, {}), recorded.timeline()


def test_a_new_pod_does_not_assume_endpoints(live: LiveGroup, health_ports: HealthPorts) -> None:
    """A preferred node without an endpoint takes no VIP when its pod is replaced: its agent polls kube-proxy first."""
    live.apply(group(), WEB)
    preferred = live.preferred_nodes()["shop/web"]
    away = next(node for node in ("n1", "n2", "n3") if node != preferred)
    health_ports.set_ready(away)
    wait_until_on(live, "shop/web", away)
    replaced = live.pods[preferred]
    with record(live, [VIP]) as recorded:
        replaced.stop()
        replaced.replace()
        replaced.start()
        process.wait_for("it runs", lambda: "shop/web" in replaced.instances(), timeout=PATIENCE)
        live.settle()
    assert (recorded.masters["shop/web"], recorded.failures) == ([away], {}), recorded.timeline()


def wait_until_reported(live: LiveGroup, node: str, *services: str) -> None:
    """Wait until the agent of *node* reports ready endpoints for these Services, and for no others."""
    tracks = {tracking.local_track(name) for name in services}
    pod = live.pods[node]
    pod.wait_until(
        f"it reports {services}", lambda: tracks == {each["track"] for each in pod.state()["locals"] if each["ready"]}
    )


def ready_by_node(live: LiveGroup) -> dict[str, bool | None]:
    """What each node's agent reports about the endpoints of the Service."""
    found = {name: each.state()["locals"] for name, each in live.pods.items()}
    return {name: locals_[0]["ready"] if locals_ else None for name, locals_ in found.items()}
