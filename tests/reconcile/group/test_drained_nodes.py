"""Drained nodes in the text of a group, and in its condition Ready."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.cluster import Node
from kavip.reconcile import enqueue
from kavip.reconcile.observed.agentstates import AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.running import first_nodes, running_nodes
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build

NODES = ("n1", "n2", "n3")
SERVICES = [build.service(f"shop/s{n}", holds=[f"192.0.2.{130 + n}"], group=GROUP) for n in range(12)]


def node(name: str, *, is_drained: bool) -> Node:
    """A Node of the group."""
    found = build.node(name, f"192.0.2.1{name[1:]}")
    metadata = msgspec.structs.replace(
        found.metadata, annotations={names.DRAIN_ANNOTATION: "true"} if is_drained else None
    )
    return msgspec.structs.replace(found, metadata=metadata)


def drain(simulation: SimulatedCluster, drained: Collection[str]) -> str:
    """Drain these nodes and no others; return the message of Ready."""
    for name in NODES:
        simulation.snapshot.put(node(name, is_drained=name in drained))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    found = {each.type: each for each in simulation.snapshot.groups[GROUP].status.conditions or ()}
    assert found["Ready"].status == "True"
    return found["Ready"].message


def simulated(**spec: Any) -> SimulatedCluster:
    """A group with twelve Services and a ready pod on each of three nodes."""
    nodes = [node(name, is_drained=False) for name in NODES]
    simulation = SimulatedCluster(cluster(*nodes, *SERVICES, build.pool(), build.group(**spec), nodes=0))
    pods = [pod(f"edge-{name}", name) for name in NODES]
    simulation.objects.pods[GROUP] = {each.metadata.key: each for each in pods}
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def test_vips_leave_drained_nodes_until_one_is_left() -> None:
    """The last one keeps them, whichever it is; Ready says what drains which node."""
    simulation = simulated()
    before = first_nodes(simulation.text())
    assert set(before.values()) == set(NODES)
    assert drain(simulation, {"n1"}) == "every pod is ready; drained: n1 (kavip.io/drain)"
    assert set(first_nodes(simulation.text()).values()) == {"n2", "n3"}
    drain(simulation, {"n1", "n3"})
    assert set(first_nodes(simulation.text()).values()) == {"n2"}
    text = simulation.text()
    message = drain(simulation, NODES)
    assert message.endswith("n3 (kavip.io/drain); all nodes are drained, so n2 keeps its VIPs")
    assert simulation.text() == text
    drain(simulation, {"n2", "n3"})
    assert set(first_nodes(simulation.text()).values()) == {"n1"}
    assert drain(simulation, ()) == "every pod is ready"
    assert (first_nodes(simulation.text()), running_nodes(simulation.text()).drained) == (before, frozenset())


def test_a_drained_node_that_leaves_the_group_takes_no_vip_back() -> None:
    """It is listed until its pod is gone, and stays drained so long."""
    simulation = simulated()
    drain(simulation, {"n1"})
    simulation.snapshot.drop(names.NODE, "n1")
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    found = running_nodes(simulation.text())
    assert found.listed == set(NODES) and found.drained == {"n1"}
    assert set(first_nodes(simulation.text()).values()) == {"n2", "n3"}


def test_all_nodes_at_once_are_not_drained() -> None:
    """Nothing moves."""
    simulation = simulated()
    before = simulation.text()
    assert drain(simulation, NODES).endswith("all nodes are drained, so n1, n2, n3 keep their VIPs")
    assert simulation.text() == before


def test_a_lost_config_map_undrains_nothing() -> None:
    """The status of the group says which nodes were drained, so the last node still keeps the VIPs."""
    simulation = simulated()
    for drained in ({"n1"}, {"n1", "n2"}, NODES):
        drain(simulation, drained)
        assert simulation.snapshot.groups[GROUP].status.drained_nodes == sorted(set(drained) - {"n3"})
    before = first_nodes(simulation.text())
    assert set(before.values()) == {"n3"}
    del simulation.objects.configmaps[GROUP]
    drain(simulation, NODES)
    assert first_nodes(simulation.text()) == before


def test_ready_names_drained_nodes_while_pods_are_missing() -> None:
    """The pod of a drained node that is off is missing for a reason."""
    simulation = simulated()
    drain(simulation, {"n1"})
    del simulation.objects.pods[GROUP]["lb/edge-n1"]
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    found = {each.type: each for each in simulation.snapshot.groups[GROUP].status.conditions or ()}
    message = "2 of 3 pods are ready; waiting for those on n1; drained: n1 (kavip.io/drain)"
    assert found["Ready"].message == message


def report(simulation: SimulatedCluster, masters: Mapping[str, str], *, faulty: str = "", silent: str = "") -> None:
    """Let all agents report these masters; *faulty* is in FAULT for all others, and *silent* does not answer."""
    agents = AgentStates()
    for name in NODES:
        roles = tuple(
            InstanceState(each, 1, 4, "MASTER" if node == name else "FAULT" if name == faulty else "BACKUP", 1)
            for each, node in masters.items()
        )
        agents = agents.with_state(GROUP, name, state=NodeState(instances=roles))
        agents = agents.with_contact(GROUP, name, contact=Contact(is_silent=name == silent))
    simulation.agents = agents


def exceptions(simulation: SimulatedCluster) -> dict[str, str]:
    """The node on which an instance has no nopreempt, by instance; "" if it has it on all nodes."""
    found = re.findall(r"^vrrp_instance (\S+) \{\n(?:.*\n)*?    (?:@\^(\S+) )?nopreempt\n", simulation.text(), re.M)
    assert len(found) == len(SERVICES)
    return dict(found)


def test_with_no_preempt_one_node_may_take_each_vip() -> None:
    """The first one that can; only while a drained node is the one master, and only from that one."""
    simulation = simulated(no_preempt=True)
    masters = dict(first_nodes(simulation.text()))
    report(simulation, masters)
    drain(simulation, {"n1"})
    found = exceptions(simulation)
    left = {name for name, node in masters.items() if node == "n1"}
    order = first_nodes(simulation.text())
    assert left and found == {name: order[name] if name in left else "" for name in masters}
    for changed in ({"faulty": "n2"}, {"silent": "n2"}):
        report(simulation, masters, **changed)
        drain(simulation, {"n1"})
        assert exceptions(simulation) == {name: "n3" if name in left else "" for name in masters}
    report(simulation, {name: order[name] for name in masters})
    drain(simulation, {"n1"})
    assert set(exceptions(simulation).values()) == {""}
    drain(simulation, ())
    assert set(exceptions(simulation).values()) == {""}


def test_without_no_preempt_no_text_changes_for_masters() -> None:
    """The priorities alone move the VIPs."""
    simulation = simulated()
    drain(simulation, {"n1"})
    text = simulation.text()
    report(simulation, dict.fromkeys((service.key for service in SERVICES), "n1"))
    drain(simulation, {"n1"})
    assert simulation.text() == text


@pytest.mark.parametrize(("drained", "is_enqueued"), [(True, True), (False, False)])
def test_the_annotation_enqueues_the_group(drained: bool, is_enqueued: bool) -> None:
    """Other annotations of a Node do not."""
    simulation = simulated()
    old, new = node("n1", is_drained=False), node("n1", is_drained=drained)
    if not drained:
        metadata = msgspec.structs.replace(new.metadata, annotations={"other": "x"})
        new = msgspec.structs.replace(new, metadata=metadata)
    simulation.snapshot.put(new)
    assert (Key(KeyKind.GROUP, GROUP) in set(enqueue.of(simulation.snapshot, old, new))) is is_enqueued
