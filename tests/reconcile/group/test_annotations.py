"""Which pods are annotated: all of a small group at once, those of a large one at a bounded rate."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec

from kavip.api.address import parse_address
from kavip.api.agent import ProblemCode
from kavip.api.group import Instances
from kavip.reconcile.group.annotations import BURST, INTERVAL, PASSWORD_RECHECK
from kavip.reconcile.observed.agentstates import MASTER, AgentStates, InstanceState
from kavip.reconcile.plan import Allowance, Key, KeyKind
from kavip.vrrp.running import running_instances
from tests.reconcile.group.settledgroup import WEB, annotations, applied_kinds, serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, agent_states, pod, running
from tests.support import build

FEW = 80
MANY = 200
WITHIN = 15.0
"""Seconds within which a change must be announced to that many nodes."""


def large(*services: object, nodes: int = FEW, **spec: Any) -> SimulatedCluster:
    """A settled group with a pod on each of more nodes than one burst, whose allowance is whole."""
    simulation = settled(build.group(**spec), *services, nodes=nodes)
    with_pods(simulation, *(pod(f"p{number:03}", f"n{number}") for number in range(1, nodes + 1)))
    while annotations(plan := simulation.group()):
        simulation.later(plan.requeue_after or 0)
    simulation.later(BURST * INTERVAL)
    return simulation


def values(simulation: SimulatedCluster) -> set[str]:
    """The annotations of all pods."""
    return {each.metadata.annotation("kavip.io/config-hash") for each in simulation.objects.pods[GROUP].values()}


def test_pods_are_annotated_for_a_new_configuration() -> None:
    """Each pod is annotated once. A pod with the current annotation is not written."""
    simulation = with_pods(settled(build.group()), pod("p1", "n1"), pod("p2", "n2"))
    first = simulation.group()
    assert sorted(annotations(first)) == ["lb/p1", "lb/p2"]
    assert not simulation.group().writes
    simulation.snapshot.put(serving(WEB, "198.51.100.1"))
    simulation.group()
    second = simulation.group()
    assert applied_kinds(second) == ["ConfigMap"]
    assert sorted(annotations(second)) == ["lb/p1", "lb/p2"]
    assert annotations(first)["lb/p1"] != annotations(second)["lb/p1"]


def test_foreign_pods_are_not_annotated() -> None:
    """A pod with the label that the DaemonSet does not control is not annotated."""
    stray = pod("p1", "n1")
    stray = msgspec.structs.replace(stray, metadata=msgspec.structs.replace(stray.metadata, owner_references=None))
    simulation = with_pods(settled(build.group()), stray)
    assert not annotations(simulation.group())


# --- how many at once -------------------------------------------------------------------------------------------------
def test_a_change_reaches_many_nodes_at_a_bounded_rate() -> None:
    """A burst goes at once, the others follow one in each interval; the last is announced in time."""
    simulation = large(serving(WEB, "198.51.100.1"), nodes=MANY)
    simulation.snapshot.put(serving("shop/api", "198.51.100.131"))
    began, sent, seconds = simulation.now, 0, 0.0
    for _ in range(MANY):
        plan = simulation.group()
        sent += len(annotations(plan))
        seconds = (simulation.now - began).total_seconds()
        assert sent <= BURST + seconds / INTERVAL
        if sent == MANY:
            break
        simulation.later(plan.requeue_after or 0)
    assert sent == MANY
    assert seconds <= WITHIN
    assert len(values(simulation)) == 1


def test_many_changes_cost_each_pod_a_few_patches() -> None:
    """
    While changes follow each other, a pod gets the newest value when it is its turn.

    No agent follows here, so the nodes of new VIPs are among the first again every two seconds.
    """
    simulation, sent = large(nodes=MANY), Counter[str]()
    for number in range(40):
        simulation.snapshot.put(serving(f"shop/s{number:02}", f"198.51.100.{number + 1}"))
        sent.update(annotations(simulation.group()).keys())
        simulation.later(0.25)
    while found := annotations(plan := simulation.group()):
        sent.update(found.keys())
        simulation.later(plan.requeue_after or 0)
    assert len(values(simulation)) == 1
    assert len(sent) == MANY
    assert max(sent.values()) <= 6


def test_groups_share_the_allowance() -> None:
    """What the pods of one group take, those of another do not get."""
    simulation = large()
    simulation.snapshot.put(build.group("lb/other", metrics_port=9652))
    simulation.settle(Key(KeyKind.GROUP, "lb/other"))
    others = (pod(f"o{number:03}", f"n{number}", group="lb/other") for number in range(1, FEW + 1))
    simulation.objects.pods["lb/other"] = {each.metadata.key: each for each in others}
    simulation.later(BURST * INTERVAL)
    simulation.snapshot.put(serving(WEB, "198.51.100.1"))
    simulation.group()
    first, second = annotations(simulation.group()), annotations(simulation.group("lb/other"))
    assert (len(first), len(second)) == (BURST, 0)


# --- which first ------------------------------------------------------------------------------------------------------
def first_of(simulation: SimulatedCluster, instance: str) -> str:
    """The node with the highest priority in an instance of the published text."""
    block = simulation.text().partition(f"vrrp_instance {instance} {{")[2].partition("\n}")[0]
    priorities: dict[str, str] = dict(re.findall(r"@(\S+) priority (\d+)$", block, re.MULTILINE))
    return max(priorities, key=lambda node: int(priorities[node]))


def answers(simulation: SimulatedCluster) -> AgentStates:
    """Each agent runs the published text, and the first node of each instance is its master."""
    found = running_instances(simulation.text())
    masters = {each.name: first_of(simulation, each.name) for each in found.values()}
    states = {}
    for node in (f"n{number}" for number in range(1, FEW + 1)):
        held = [each for each in found.values() if masters[each.name] == node]
        states[node] = replace(
            running(simulation.snapshot.groups[GROUP].status.config_hash),
            masters=frozenset(vip for each in held for vip in each.carried),
            instances=tuple(InstanceState(each.name, 1, 4, MASTER, len(each.carried)) for each in held),
        )
    return agent_states(**states)


def announced_first(simulation: SimulatedCluster) -> set[str]:
    """The node whose pod is annotated next, if one patch of the allowance is left."""
    at = (simulation.now - NOW).total_seconds()
    simulation.records.pod_allowance = Allowance(BURST - 1, at)
    while not (found := annotations(simulation.group())):
        pass  # the status is written first
    return {f"n{int(key.removeprefix('lb/p'))}" for key in found}


def test_the_node_that_will_hold_a_new_vip_goes_first() -> None:
    """Nodes that hold what they should, and those that hold nothing, wait."""
    simulation = large(*(serving(f"shop/s{number}", f"198.51.100.{number + 1}") for number in range(20)))
    simulation.agents = answers(simulation)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    simulation.snapshot.put(serving(WEB, "198.51.100.160"))
    assert announced_first(simulation) == {first_of(simulation, WEB)}


def test_the_master_of_an_instance_that_changes_goes_first() -> None:
    """Where a VIP leaves a running instance, its master needs the text first."""
    shared = Instances(mode="Shared", count=2)
    services = [serving(f"shop/s{number}", f"198.51.100.{number + 1}") for number in range(20)]
    simulation = large(*services, instances=shared)
    simulation.agents = answers(simulation)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    vip, states = parse_address("198.51.100.1"), simulation.agents.states_of(GROUP)
    masters = {node for node, state in states.items() if vip in state.masters}
    simulation.snapshot.drop("Service", "shop/s0")
    assert announced_first(simulation) == masters


# --- passwords --------------------------------------------------------------------------------------------------------
def next_annotations(simulation: SimulatedCluster) -> dict[str, str]:
    """The annotations of the group's next plan, which is carried out."""
    return annotations(simulation.group())


def test_a_pod_without_a_usable_password_is_annotated_again_until_it_has_it() -> None:
    """Its annotation changes every ten seconds, so that kubelet refreshes the Secret; no other pod is written."""
    simulation = with_pods(settled(build.group()), pod("p1", "n1"), pod("p2", "n2"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    (plain,) = values(simulation)
    lacking = running("old", refused="no password", code=ProblemCode.PASSWORD_MISSING)
    simulation.agents = agent_states(n1=lacking, n2=running("old"))
    plan = simulation.group()
    assert plan.requeue_after == PASSWORD_RECHECK
    first = annotations(plan)
    assert first.keys() == {"lb/p1"}
    assert first["lb/p1"].startswith(f"{plain}-")
    assert next_annotations(simulation) == {}
    simulation.later(PASSWORD_RECHECK)
    second = next_annotations(simulation)
    assert second.keys() == {"lb/p1"}
    assert second != first
    simulation.agents = agent_states(n1=running("new"), n2=running("new"))
    assert next_annotations(simulation) == {"lb/p1": plain}
    assert next_annotations(simulation) == {}
