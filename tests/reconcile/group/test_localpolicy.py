"""What ``agent.json`` says about Services with ``externalTrafficPolicy: Local``."""

import json
import re
from typing import Any

from kavip import names
from kavip.agent.config import blocks
from kavip.api.service import Service
from kavip.reconcile.plan import Apply, Key, KeyKind
from kavip.vrrp.tracking import local_track
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build

LOCAL: dict[str, Any] = {"group": GROUP, "external_traffic_policy": "Local"}
WEB = build.service("shop/web", holds=["192.0.2.130"], health_check_node_port=30100, **LOCAL)
PLAIN = build.service("shop/plain", type="NodePort", external_ips=["192.0.2.131"], **LOCAL)

PRIORITY = re.compile(r"^    @(\S+) priority (\d+)$", re.MULTILINE)


def followed(simulation: SimulatedCluster) -> Any:
    """``locals`` of the ConfigMap; None where there is none."""
    data = simulation.objects.configmaps[GROUP].data or {}
    return json.loads(data[names.AGENT_KEY]).get("locals")


def planned(*objects: Any, nodes: int = 2, **group: Any) -> SimulatedCluster:
    """A cluster with a group and *objects*, after all plans are carried out."""
    simulation = SimulatedCluster(cluster(*objects, build.group(**group), build.pool(), nodes=nodes))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def test_agents_get_the_health_port_or_the_nodes() -> None:
    """There is one entry by track file. Nodes outside the group are left out."""
    found = followed(
        planned(WEB, PLAIN, build.endpoints("shop/plain", "n2", "n9", "n1"), build.endpoints("shop/web", "n1"))
    )
    expected: list[dict[str, object]] = [
        {"track": local_track("shop/web"), "port": 30100},
        {"track": local_track("shop/plain"), "nodes": ["n1", "n2"]},
    ]
    assert found == sorted(expected, key=lambda each: str(each["track"]))


def test_other_groups_have_no_locals() -> None:
    """Without such a Service ``agent.json`` has no ``locals``. A LoadBalancer from a file has no port yet."""
    assert followed(planned(build.service("shop/web", group=GROUP, holds=["192.0.2.130"]))) is None
    portless = build.service("shop/web", holds=["192.0.2.130"], **LOCAL)
    assert followed(planned(portless, build.endpoints("shop/web", "n1"))) is None


def test_each_vip_of_a_spread_service_has_an_entry() -> None:
    """Each VIP has an entry of its own, with the same port."""
    spread: Service = build.service(
        "shop/web",
        holds=["192.0.2.130"],
        external_ips=["192.0.2.131"],
        health_check_node_port=30100,
        annotations={names.SPREAD_ANNOTATION: "true"},
        **LOCAL,
    )
    tracks = sorted(local_track(f"shop/web/192.0.2.{host}") for host in (130, 131))
    assert followed(planned(spread)) == [{"track": track, "port": 30100} for track in tracks]


def test_vips_are_spread_over_the_nodes_with_endpoints() -> None:
    """The text follows the EndpointSlices of a spread Service: two VIPs, two nodes with an endpoint, one VIP each."""
    vips = ["192.0.2.130", "192.0.2.131"]
    notes = {names.SPREAD_ANNOTATION: "true"}
    for number in range(8):
        key = f"shop/s{number}"
        web = build.service(key, holds=vips, health_check_node_port=30100, annotations=notes, **LOCAL)
        simulation = planned(web, nodes=3)
        for ready in (["n1", "n2"], ["n2", "n3"], ["n1", "n3"]):
            simulation.snapshot.put(build.endpoints(key, *ready))
            simulation.settle(Key(KeyKind.GROUP, GROUP))
            first = {}
            for block in blocks.split(simulation.text(GROUP)):
                drawn = [(int(text), node) for node, text in PRIORITY.findall(block.text) if node in ready]
                if block.name:
                    first[block.name] = max(drawn)[1]
            assert sorted(first.values()) == ready


def test_endpoints_without_a_node_are_on_no_node() -> None:
    """No node has one, so all rank by the text, and spread VIPs are spread over all: the agents report none ready."""
    notes = {names.SPREAD_ANNOTATION: "true"}
    spread = build.service(
        "shop/spread", holds=["192.0.2.132", "192.0.2.133"], health_check_node_port=30101, annotations=notes, **LOCAL
    )
    slices = [build.endpoints(key, addresses=["198.51.100.9"]) for key in ("shop/web", "shop/plain", "shop/spread")]
    simulation = planned(WEB, PLAIN, spread, *slices)
    found = {each["track"]: each for each in followed(simulation)}
    assert found[local_track("shop/plain")] == {"track": local_track("shop/plain")}
    assert found[local_track("shop/web")]["port"] == 30100
    texts = [block.text for block in blocks.split(simulation.text(GROUP)) if block.name]
    assert len(texts) == 4
    assert all(sorted(node for node, _ in PRIORITY.findall(text)) == ["n1", "n2"] for text in texts)


def test_endpoints_that_move_change_only_agent_json() -> None:
    """Text and hash stay. The pods are annotated, so that kubelet refreshes the mount at once."""
    simulation = planned(PLAIN, build.endpoints("shop/plain", "n1"))
    owner = simulation.objects.daemonsets[GROUP]
    simulation.objects.pods[GROUP] = {"lb/edge-n1": pod("edge-n1", "n1")}
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    before = simulation.text(GROUP)
    simulation.snapshot.put(build.endpoints("shop/plain", draining=["n2"]))
    plan = simulation.group(GROUP)
    kinds = [each.kind if isinstance(each, Apply) else type(each).__name__ for each in plan.writes]
    assert (kinds, owner.metadata.name) == ([names.CONFIG_MAP, "PodAnnotation"], "edge")
    assert simulation.text(GROUP) == before
    assert followed(simulation) == [{"track": local_track("shop/plain"), "nodes": ["n2"]}]


def test_endpoints_count_on_a_node_that_only_keeps_its_pod() -> None:
    """A taint that evicts no pod takes no VIP from the only node with an endpoint."""
    tainted = build.node("n1", "192.0.2.11", taints=["dedicated=db:NoSchedule"])
    simulation = planned(PLAIN, build.endpoints("shop/plain", "n1"), tolerations=[])
    simulation.objects.pods[GROUP] = {"lb/edge-n1": pod("edge-n1", "n1")}
    simulation.snapshot.put(tainted)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert followed(simulation) == [{"track": local_track("shop/plain"), "nodes": ["n1"]}]
