"""VIPs that a node reports as its own while it holds them: kubelet without --node-ip, some cloud providers."""

import msgspec
import pytest

from kavip.api.cluster import PodStatus
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.rollout import peers
from tests.reconcile.group.settledgroup import WEB, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build

KEYS = (Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))


@pytest.fixture
def simulation() -> SimulatedCluster:
    """A Service with an address from a pool, served by n1 and n2 in unicast."""
    simulation = SimulatedCluster(
        cluster(build.group(unicast_enabled=True), build.pool(), build.service(WEB, group=GROUP))
    )
    for _ in range(2):
        simulation.settle(*KEYS)
    assert "192.0.2.128/32" in simulation.text()
    return simulation


@pytest.mark.parametrize("addresses", [("192.0.2.11", "192.0.2.128"), ("192.0.2.128", "192.0.2.11"), ("192.0.2.128",)])
def test_a_reported_vip_moves_nothing(simulation: SimulatedCluster, addresses: tuple[str, ...]) -> None:
    """The Service keeps its address, and no byte of the text changes."""
    before, service = simulation.text(), simulation.snapshot.services[WEB]
    simulation.snapshot.put(build.node("n1", *addresses))
    assert not any(simulation.plan(key).writes for key in KEYS)
    assert simulation.text() == before
    assert simulation.snapshot.services[WEB] == service


def test_the_target_is_the_nodes_own_address(simulation: SimulatedCluster) -> None:
    """Also while the node reports only the VIP, which another node may have at the next moment."""
    simulation.snapshot.put(build.node("n1", "192.0.2.128"))
    target = simulation.plan_group().target
    assert target is not None
    assert dict(target.hosts) == {"n1": "192.0.2.11", "n2": "192.0.2.12"}


def test_the_target_is_the_host_ip_of_the_pod(simulation: SimulatedCluster) -> None:
    """The agent listens on the hostIP from the start of its pod, unless that is no longer an address of the node."""
    simulation.snapshot.put(build.node("n1", "198.51.100.1", "192.0.2.11"))
    for with_condition, host in {
        "192.0.2.11": "192.0.2.11",
        "198.51.100.1": "198.51.100.1",
        "192.0.2.128": "198.51.100.1",
    }.items():
        with_pods(simulation, msgspec.structs.replace(pod("edge-1", "n1"), status=PodStatus(host_ip=with_condition)))
        target = simulation.plan_group().target
        assert target is not None
        assert target.hosts["n1"] == host


def test_a_node_without_a_reported_address_keeps_its_vips(simulation: SimulatedCluster) -> None:
    """A cloud provider that loses the addresses for a while does not change the text."""
    before = simulation.text()
    simulation.snapshot.put(build.node("n1"))
    simulation.settle(*KEYS)
    assert simulation.text() == before
    assert simulation.plan(KEYS[1]).requeue_after != peers.RECHECK


def test_the_order_of_a_nodes_addresses_does_not_matter(simulation: SimulatedCluster) -> None:
    """Cloud providers change the order. The source address changes only if the node has lost the current one."""
    before = simulation.text()
    simulation.snapshot.put(build.node("n1", "198.51.100.1", "192.0.2.11"))
    simulation.settle(*KEYS)
    assert simulation.text() == before
    assert simulation.plan(KEYS[1]).requeue_after != peers.RECHECK
    simulation.snapshot.put(build.node("n1", "198.51.100.1"))
    simulation.settle(*KEYS)
    assert "198.51.100.1" in simulation.text()


def test_a_new_node_with_the_address_of_a_vip_takes_it(simulation: SimulatedCluster) -> None:
    """It is apparently the node's own address, which keepalived would delete there."""
    newer = build.metadata("n3", creation_timestamp="2027-01-01T00:00:00Z")
    node = build.node("n3", "192.0.2.128")
    simulation.snapshot.put(type(node)(metadata=newer, status=node.status))
    simulation.settle(*KEYS)
    assert [str(each) for each in simulation.snapshot.services[WEB].ingress_addresses] == ["192.0.2.129"]
