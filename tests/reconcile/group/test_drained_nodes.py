"""Drained nodes in the text of a group, and in its condition Ready."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.cluster import Node
from kavip.api.group import Instances
from kavip.api.service import Service
from kavip.reconcile import enqueue
from kavip.reconcile.observed.agentstates import AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.running import first_nodes, running_nodes
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build
from tests.support.examples import examples

NODES = ("n1", "n2", "n3")
SERVICES = [build.service(f"shop/s{n}", holds=[f"192.0.2.{130 + n}"], group=GROUP) for n in range(12)]


def node(name: str, *more: str, is_drained: bool) -> Node:
    """A Node of the group, with *more* addresses."""
    found = build.node(name, f"192.0.2.1{name[1:]}", *more)
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
    assert (first_nodes(simulation.text()), running_nodes(simulation.text()).drained) == (before, {})


def test_a_drained_node_that_leaves_the_group_takes_no_vip_back() -> None:
    """It is listed until its pod is gone, and stays drained so long."""
    simulation = simulated()
    drain(simulation, {"n1"})
    simulation.snapshot.drop(names.NODE, "n1")
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    found = running_nodes(simulation.text())
    assert found.listed == set(NODES) and found.drained == {"n1": 1}
    assert set(first_nodes(simulation.text()).values()) == {"n2", "n3"}


def test_all_nodes_at_once_are_not_drained() -> None:
    """Nothing moves."""
    simulation = simulated()
    before = simulation.text()
    assert drain(simulation, NODES).endswith("all nodes are drained, so n1, n2, n3 keep their VIPs")
    assert simulation.text() == before


CARD = "vlan20"
ON_CARD = [build.service(f"dmz/s{n}", holds=[f"198.51.100.{130 + n}"], group=GROUP) for n in range(12)]
SAYS = "no undrained node has vlan20, so {} the VIPs that need it"


def simulated_with_card(*lacking: str, services: Sequence[Service] = ON_CARD, **spec: Any) -> SimulatedCluster:
    """The same with twelve Services whose VIPs need an interface, which the nodes *lacking* do not have."""
    simulation = simulated(**spec)
    simulation.snapshot.put(build.pool("dmz", "198.51.100.128/25", interface=CARD))
    for service in services:
        simulation.snapshot.put(service)
    report_cards(simulation, *lacking)
    return simulation


def report_cards(simulation: SimulatedCluster, *lacking: str) -> None:
    """Let all agents report that they run the text, and that those *lacking* miss the interface."""
    for _ in range(2):
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        for name in NODES:
            found = simulation.snapshot.groups[GROUP].status.config_hash
            state = NodeState(config_hash=found, missing=frozenset({CARD} if name in lacking else ()))
            simulation.agents = simulation.agents.with_state(GROUP, name, state=state)


def on_card(simulation: SimulatedCluster) -> dict[str, str]:
    """The node that ranks first, by instance on the interface."""
    found = first_nodes(simulation.text())
    return {name: node for name, node in found.items() if CARD in name or name.startswith("dmz/")}


def off_card(simulation: SimulatedCluster) -> set[str]:
    """The nodes that rank first for instances elsewhere."""
    return {node for name, node in first_nodes(simulation.text()).items() if name not in on_card(simulation)}


@pytest.mark.parametrize("spec", [{}, {"instances": Instances(mode="Shared", count=12)}])
def test_vips_that_only_drained_nodes_can_hold_stay_on_the_last_one(spec: Mapping[str, Any]) -> None:
    """None goes back to a node that was drained before; all other VIPs leave; Ready says why."""
    simulation = simulated_with_card("n3", **spec)
    before = first_nodes(simulation.text())
    assert set(on_card(simulation).values()) == {"n1", "n2"}
    drain(simulation, {"n1"})
    assert set(on_card(simulation).values()) == {"n2"}
    message = drain(simulation, {"n1", "n2"})
    assert message.endswith("n2 (kavip.io/drain); " + SAYS.format("n2 keeps"))
    assert (set(on_card(simulation).values()), off_card(simulation)) == ({"n2"}, {"n3"})
    message = drain(simulation, NODES)
    assert message.endswith("; all nodes are drained, so n3 keeps its VIPs; " + SAYS.format("n2 keeps"))
    assert (set(on_card(simulation).values()), off_card(simulation)) == ({"n2"}, {"n3"})
    assert simulation.snapshot.groups[GROUP].status.drained_nodes == ["n1", "n2"]
    drain(simulation, {"n2"})
    assert set(on_card(simulation).values()) == {"n1"}
    drain(simulation, {"n1", "n2"})
    assert set(on_card(simulation).values()) == {"n1"}
    assert simulation.snapshot.groups[GROUP].status.drained_nodes == ["n2", "n1"]
    drain(simulation, ())
    assert (first_nodes(simulation.text()), running_nodes(simulation.text()).drained) == (before, {})


def test_nodes_that_are_drained_at_once_keep_what_no_other_can_hold() -> None:
    """The instances on the interface stay as they are."""
    simulation = simulated_with_card("n3")
    before = on_card(simulation)
    message = drain(simulation, {"n1", "n2"})
    assert (on_card(simulation), off_card(simulation)) == (before, {"n3"})
    assert message.endswith(SAYS.format("n1, n2 keep"))


def test_the_last_node_with_an_ipv6_address_keeps_the_ipv6_vips() -> None:
    """It gives up the IPv4 VIPs; Ready says why."""
    simulation = simulated(unicast_enabled=True)
    simulation.snapshot.put(build.pool("six", "2001:db8:2::/120"))
    for number in range(4):
        simulation.snapshot.put(build.service(f"six/s{number}", holds=[f"2001:db8:2::{number + 1}"], group=GROUP))
    firsts: list[tuple[set[str], set[str]]] = []
    for drained in ({"n1"}, {"n1", "n2"}):
        for name in NODES:
            more = () if name == "n3" else (f"2001:db8:1::{name[1:]}",)
            simulation.snapshot.put(node(name, *more, is_drained=name in drained))
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        found = first_nodes(simulation.text())
        able = first_nodes(simulation.text(), dead=frozenset({"n3"}))  # it is in FAULT without a source address
        six = {name for name in found if name.startswith("six/")}
        firsts.append(({able[name] for name in six}, {found[name] for name in found.keys() - six}))
    assert firsts == [({"n2"}, {"n2", "n3"}), ({"n2"}, {"n3"})]
    message = "no undrained node has an IPv6 address, so n2 keeps the VIPs that need it"
    conditions = {each.type: each for each in simulation.snapshot.groups[GROUP].status.conditions or ()}
    assert conditions["Ready"].message.endswith(f"; {message}")


def test_vips_leave_the_last_drained_node_when_another_gets_the_interface() -> None:
    """They go straight there, and not to a node that was drained before; if that one loses it, they come back."""
    simulation = simulated_with_card("n3")
    drain(simulation, {"n1"})
    drain(simulation, {"n1", "n2"})
    report_cards(simulation)
    assert set(on_card(simulation).values()) == {"n3"}
    report_cards(simulation, "n3")
    assert set(on_card(simulation).values()) == {"n2"}


def test_a_lost_config_map_keeps_the_order_of_drains() -> None:
    """The status of the group has the drained nodes in this order."""
    simulation = simulated_with_card("n3")
    for drained in ({"n2"}, {"n1", "n2"}):
        drain(simulation, drained)
        assert set(on_card(simulation).values()) == {"n1"}
    del simulation.objects.configmaps[GROUP]
    drain(simulation, {"n1", "n2"})
    assert simulation.snapshot.groups[GROUP].status.drained_nodes == ["n2", "n1"]
    assert set(on_card(simulation).values()) == {"n1"}


def test_new_and_spread_vips_go_to_the_node_that_was_drained_last() -> None:
    """Where no other can hold them; when the drains end, they are spread."""
    notes = {names.SPREAD_ANNOTATION: "true"}
    simulation = simulated_with_card("n3", services=())
    drain(simulation, {"n1"})
    drain(simulation, {"n1", "n2"})
    vips = ["198.51.100.130", "198.51.100.131"]
    simulation.snapshot.put(build.service("dmz/web", group=GROUP, holds=vips, annotations=notes))
    simulation.snapshot.put(ON_CARD[3])
    drain(simulation, {"n1", "n2"})
    report_cards(simulation, "n3")
    assert on_card(simulation) == dict.fromkeys([*(f"dmz/web/{vip}" for vip in vips), "dmz/s3"], "n2")
    assert not {"n1", "n3"} & {node for name, node in running_nodes(simulation.text()).homes.items() if "dmz" in name}
    drain(simulation, ())
    assert {on_card(simulation)[f"dmz/web/{vip}"] for vip in vips} == {"n1", "n2"}


@pytest.mark.slow
@examples(40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NODES), st.booleans()), max_size=8), st.sampled_from(["", *NODES]))
def test_no_vip_goes_to_a_drained_node_in_any_history(steps: Sequence[tuple[str, bool]], lacking: str) -> None:
    """While one node at a time is drained or undrained, each VIP moves from a node that can hold it once or not."""
    simulation, drained = simulated_with_card(*filter(None, [lacking])), set[str]()
    for name, is_drained in steps:
        before = first_nodes(simulation.text())
        (drained.add if is_drained else drained.discard)(name)
        drain(simulation, drained)
        after = first_nodes(simulation.text())
        moved = {after[instance] for instance, node in before.items() if node != after[instance]}
        assert not moved & drained
        assert lacking not in on_card(simulation).values()


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
