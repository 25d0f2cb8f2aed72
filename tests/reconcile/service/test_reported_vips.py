"""VIPs that a node reports as its own while it holds them: kubelet without --node-ip, some cloud providers."""

import msgspec
import pytest

from kavip.api.cluster import PodStatus
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.rollout import peers
from tests.reconcile.group.settledgroup import WEB, with_pods
from tests.reconcile.world import GROUP, World, cluster, pod
from tests.support import build

KEYS = (Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))


@pytest.fixture
def world() -> World:
    """A Service with an address from a pool, served by n1 and n2 in unicast."""
    world = World(cluster(build.group(unicast_enabled=True), build.pool(), build.service(WEB, group=GROUP)))
    for _ in range(2):
        world.settle(*KEYS)
    assert "192.0.2.128/32" in world.text()
    return world


@pytest.mark.parametrize("addresses", [("192.0.2.11", "192.0.2.128"), ("192.0.2.128", "192.0.2.11"), ("192.0.2.128",)])
def test_a_reported_vip_moves_nothing(world: World, addresses: tuple[str, ...]) -> None:
    """The Service keeps its address, and no byte of the text changes."""
    before, service = world.text(), world.snapshot.services[WEB]
    world.snapshot.put(build.node("n1", *addresses))
    assert not any(world.plan(key).writes for key in KEYS)
    assert world.text() == before
    assert world.snapshot.services[WEB] == service


def test_the_target_is_the_nodes_own_address(world: World) -> None:
    """Also while the node reports only the VIP, which another node may have at the next moment."""
    world.snapshot.put(build.node("n1", "192.0.2.128"))
    target = world.plan_group().target
    assert target is not None
    assert dict(target.hosts) == {"n1": "192.0.2.11", "n2": "192.0.2.12"}


def test_the_target_is_the_host_ip_of_the_pod(world: World) -> None:
    """The agent listens on the hostIP from the start of its pod, unless that is no longer an address of the node."""
    world.snapshot.put(build.node("n1", "198.51.100.1", "192.0.2.11"))
    for told, host in {
        "192.0.2.11": "192.0.2.11",
        "198.51.100.1": "198.51.100.1",
        "192.0.2.128": "198.51.100.1",
    }.items():
        with_pods(world, msgspec.structs.replace(pod("edge-1", "n1"), status=PodStatus(host_ip=told)))
        target = world.plan_group().target
        assert target is not None
        assert target.hosts["n1"] == host


def test_a_node_without_a_reported_address_keeps_its_vips(world: World) -> None:
    """A cloud provider that loses the addresses for a while does not change the text."""
    before = world.text()
    world.snapshot.put(build.node("n1"))
    world.settle(*KEYS)
    assert world.text() == before
    assert world.plan(KEYS[1]).requeue_after != peers.RECHECK


def test_the_order_of_a_nodes_addresses_does_not_matter(world: World) -> None:
    """Cloud providers change the order. The source address changes only if the node has lost the current one."""
    before = world.text()
    world.snapshot.put(build.node("n1", "198.51.100.1", "192.0.2.11"))
    world.settle(*KEYS)
    assert world.text() == before
    assert world.plan(KEYS[1]).requeue_after != peers.RECHECK
    world.snapshot.put(build.node("n1", "198.51.100.1"))
    world.settle(*KEYS)
    assert "198.51.100.1" in world.text()


def test_a_new_node_with_the_address_of_a_vip_takes_it(world: World) -> None:
    """It is apparently the node's own address, which keepalived would delete there."""
    newer = build.metadata("n3", creation_timestamp="2027-01-01T00:00:00Z")
    node = build.node("n3", "192.0.2.128")
    world.snapshot.put(type(node)(metadata=newer, status=node.status))
    world.settle(*KEYS)
    assert [str(each) for each in world.snapshot.services[WEB].ingress_addresses] == ["192.0.2.129"]
