"""Preferred nodes in the text of a group, by the labels of the nodes, and in the conditions."""

from collections.abc import Mapping
from typing import Any

from kavip import names
from kavip.api.group import GroupPlacement, Instances, PreferredNodes
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import Object
from kavip.vrrp.running import first_nodes
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, agent_states, cluster, running
from tests.support import build

ZONE_A = GroupPlacement(preferred=[PreferredNodes(weight=100, node_selector={"zone": "a"})])
PREFERS = names.PREFERRED_NODES_ANNOTATION
KEYS = [f"shop/s{number}" for number in range(12)]


def simulated(zones: Mapping[str, str], *, wish: str = "", **spec: Any) -> SimulatedCluster:
    """A group with 12 Services on nodes in *zones*; the first Service has the *wish*."""
    nodes = [
        build.node(name, f"192.0.2.{11 + index}", labels={"zone": zone})
        for index, (name, zone) in enumerate(zones.items())
    ]
    services = [
        build.service(
            key, holds=[f"192.0.2.{130 + index}"], group=GROUP, annotations={PREFERS: wish if index == 0 else ""}
        )
        for index, key in enumerate(KEYS)
    ]
    objects: list[Object] = [*nodes, *services, build.pool(), build.group(**spec)]
    simulation = SimulatedCluster(cluster(*objects, nodes=0))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def test_vips_are_on_preferred_nodes() -> None:
    """All of them, and over several preferred nodes they are distributed."""
    simulation = simulated({"n1": "a", "n2": "b", "n3": "a", "n4": "b"}, placement=ZONE_A)
    assert set(first_nodes(simulation.text()).values()) == {"n1", "n3"}
    dead = frozenset({"n1", "n3"})
    assert set(first_nodes(simulation.text(), dead=dead).values()) == {"n2", "n4"}


def test_a_label_moves_vips() -> None:
    """The text follows the labels of the nodes."""
    simulation = simulated({"n1": "a", "n2": "b"}, placement=ZONE_A)
    assert set(first_nodes(simulation.text()).values()) == {"n1"}
    simulation.snapshot.put(build.node("n1", "192.0.2.11", labels={"zone": "b"}))
    simulation.snapshot.put(build.node("n2", "192.0.2.12", labels={"zone": "a"}))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert set(first_nodes(simulation.text()).values()) == {"n2"}


def test_a_service_prefers_other_nodes() -> None:
    """Only this Service; without a node for its wish the group's preference holds."""
    simulation = simulated({"n1": "a", "n2": "b", "n3": "c"}, wish="zone=b", placement=ZONE_A)
    found = first_nodes(simulation.text())
    assert found[KEYS[0]] == "n2"
    assert {found[key] for key in KEYS[1:]} == {"n1"}
    assert first_nodes(simulation.text(), dead=frozenset({"n2"}))[KEYS[0]] == "n1"
    simulation.snapshot.put(build.node("n3", "192.0.2.13", labels={"zone": "b"}))
    simulation.snapshot.put(build.node("n2", "192.0.2.12", labels={"zone": "c"}))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert first_nodes(simulation.text())[KEYS[0]] == "n3"


def test_a_shared_instance_follows_the_group_and_no_service() -> None:
    """Its VIPs belong to many Services."""
    simulation = simulated(
        {"n1": "a", "n2": "b"}, wish="zone=b", placement=ZONE_A, instances=Instances(mode="Shared", count=3)
    )
    assert set(first_nodes(simulation.text()).values()) == {"n1"}


def test_a_wish_without_a_node_is_reported() -> None:
    """In Accepted of the group and Programmed of the Service."""
    simulation = simulated({"n1": "b"}, wish="zone=c", placement=ZONE_A)
    group = simulation.snapshot.groups[GROUP]
    messages = {each.type: each.message for each in group.status.conditions or ()}
    assert messages["Accepted"] == "the group is served; spec.placement.preferred[0] matches no node of the group"
    simulation.agents = agent_states(GROUP, n1=running("h", "192.0.2.130"))
    simulation.service(KEYS[0])
    messages = {each.type: each.message for each in simulation.snapshot.services[KEYS[0]].status.conditions or ()}
    assert messages[names.ConditionType.SERVICE_PROGRAMMED] == (
        "every node of KeepalivedGroup lb/edge runs a configuration with these VIPs; "
        "kavip.io/preferred-nodes: matches no node of KeepalivedGroup lb/edge"
    )


def test_label_changes_of_other_nodes_change_no_text() -> None:
    """The order depends on the nodes of the group and on the labels that are named."""
    simulation = simulated({"n1": "a", "n2": "b"}, wish="zone=b", placement=ZONE_A)
    before = simulation.text()
    simulation.snapshot.put(build.node("n1", "192.0.2.11", labels={"zone": "a", "disk": "ssd"}))
    assert not simulation.group().writes
    assert simulation.text() == before
