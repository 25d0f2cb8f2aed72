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
    """The Service keeps its address, and every node the text that it runs: no byte changes."""
    before, service = world.text(), world.snapshot.services[WEB]
    world.snapshot.put(build.node("n1", *addresses))
    assert not any(world.plan(key).writes for key in KEYS)
    assert world.text() == before
    assert world.snapshot.services[WEB] == service


def test_an_agent_is_asked_where_its_node_speaks(world: World) -> None:
    """Also while the node reports nothing else than the VIP; that may be another node's at the next moment."""
    world.snapshot.put(build.node("n1", "192.0.2.128"))
    target = world.plan_group().target
    assert target is not None
    assert dict(target.hosts) == {"n1": "192.0.2.11", "n2": "192.0.2.12"}


def test_an_agent_is_asked_at_the_address_that_its_pod_was_told(world: World) -> None:
    """It listens at its hostIP, which stays what it was when the pod began; unless that is none of the node's."""
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


def test_a_node_without_an_address_goes_on_as_it_runs(world: World) -> None:
    """A cloud provider that has lost the addresses for a while takes no VIP from a node."""
    before = world.text()
    world.snapshot.put(build.node("n1"))
    world.settle(*KEYS)
    assert world.text() == before
    assert world.plan(KEYS[1]).requeue_after != peers.RECHECK


def test_the_order_of_a_nodes_addresses_does_not_matter_once_it_speaks(world: World) -> None:
    """Cloud providers list them now so, now so; only where it has lost the one does it speak from the other."""
    before = world.text()
    world.snapshot.put(build.node("n1", "198.51.100.1", "192.0.2.11"))
    world.settle(*KEYS)
    assert world.text() == before
    assert world.plan(KEYS[1]).requeue_after != peers.RECHECK
    world.snapshot.put(build.node("n1", "198.51.100.1"))
    world.settle(*KEYS)
    assert "198.51.100.1" in world.text()


def test_a_new_node_with_the_address_of_a_vip_drives_it_out(world: World) -> None:
    """Such a machine has it as its own, as it seems: keepalived would take it away there."""
    newer = build.metadata("n3", creation_timestamp="2027-01-01T00:00:00Z")
    node = build.node("n3", "192.0.2.128")
    world.snapshot.put(type(node)(metadata=newer, status=node.status))
    world.settle(*KEYS)
    assert [str(each) for each in world.snapshot.services[WEB].ingress_addresses] == ["192.0.2.129"]
