"""What ``agent.json`` says about Services with ``externalTrafficPolicy: Local``."""

import json
from typing import Any

from kavip import names
from kavip.api.service import Service
from kavip.reconcile.plan import Apply, Key, KeyKind
from kavip.vrrp.tracking import local_track
from tests.reconcile.world import GROUP, World, cluster, pod
from tests.support import build

LOCAL: dict[str, Any] = {"group": GROUP, "external_traffic_policy": "Local"}
WEB = build.service("shop/web", holds=["192.0.2.130"], health_check_node_port=30100, **LOCAL)
PLAIN = build.service("shop/plain", type="NodePort", external_ips=["192.0.2.131"], **LOCAL)


def followed(world: World) -> Any:
    """``locals`` of the ConfigMap; None where there is none."""
    data = world.objects.configmaps[GROUP].data or {}
    return json.loads(data[names.AGENT_KEY]).get("locals")


def told(*objects: Any, nodes: int = 2, **group: Any) -> World:
    """A settled world with a group and *objects*."""
    world = World(cluster(*objects, build.group(**group), build.pool(), nodes=nodes))
    world.settle(Key(KeyKind.GROUP, GROUP))
    return world


def test_agents_get_the_health_port_or_the_nodes() -> None:
    """There is one entry by track file. Nodes outside the group are left out."""
    found = followed(
        told(WEB, PLAIN, build.endpoints("shop/plain", "n2", "n9", "n1"), build.endpoints("shop/web", "n1"))
    )
    expected: list[dict[str, object]] = [
        {"track": local_track("shop/web"), "port": 30100},
        {"track": local_track("shop/plain"), "nodes": ["n1", "n2"]},
    ]
    assert found == sorted(expected, key=lambda each: str(each["track"]))


def test_other_groups_have_no_locals() -> None:
    """Without such a Service ``agent.json`` has no ``locals``. A LoadBalancer from a file has no port yet."""
    assert followed(told(build.service("shop/web", group=GROUP, holds=["192.0.2.130"]))) is None
    portless = build.service("shop/web", holds=["192.0.2.130"], **LOCAL)
    assert followed(told(portless, build.endpoints("shop/web", "n1"))) is None


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
    assert followed(told(spread)) == [{"track": track, "port": 30100} for track in tracks]


def test_endpoints_that_move_change_only_agent_json() -> None:
    """Text and hash stay. The pods are annotated, so that kubelet refreshes the mount at once."""
    world = told(PLAIN, build.endpoints("shop/plain", "n1"))
    owner = world.objects.daemonsets[GROUP]
    world.objects.pods[GROUP] = {"lb/edge-n1": pod("edge-n1", "n1")}
    world.settle(Key(KeyKind.GROUP, GROUP))
    before = world.text(GROUP)
    world.snapshot.put(build.endpoints("shop/plain", draining=["n2"]))
    plan = world.group(GROUP)
    kinds = [each.kind if isinstance(each, Apply) else type(each).__name__ for each in plan.writes]
    assert (kinds, owner.metadata.name) == ([names.CONFIG_MAP, "PodAnnotation"], "edge")
    assert world.text(GROUP) == before
    assert followed(world) == [{"track": local_track("shop/plain"), "nodes": ["n2"]}]


def test_endpoints_count_on_a_node_that_only_keeps_its_pod() -> None:
    """A taint that evicts no pod takes no VIP from the only node with an endpoint."""
    tainted = build.node("n1", "192.0.2.11", taints=["dedicated=db:NoSchedule"])
    world = told(PLAIN, build.endpoints("shop/plain", "n1"), tolerations=[])
    world.objects.pods[GROUP] = {"lb/edge-n1": pod("edge-n1", "n1")}
    world.snapshot.put(tainted)
    world.settle(Key(KeyKind.GROUP, GROUP))
    assert followed(world) == [{"track": local_track("shop/plain"), "nodes": ["n1"]}]
