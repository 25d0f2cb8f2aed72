"""The memory between plans of a group changes only their cost, and outdated Services are found with it."""

import random
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.cluster import Node
from kavip.api.group import GroupVirtualIP, Instances, KeepalivedGroup
from kavip.api.meta import LabelSelector
from kavip.api.pool import PoolRouting, VIPPool
from kavip.api.service import Service
from kavip.reconcile.group import outdated
from kavip.reconcile.observed.agentstates import (
    BACKUP,
    MASTER,
    AgentStates,
    ClaimedAddress,
    Contact,
    InstanceState,
    NodeState,
)
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.service.programmed import programmed_state
from kavip.snapshot import Object, Snapshot
from kavip.vrrp import units
from kavip.vrrp.running import running_instances
from kavip.vrrp.sharding import Shard, Shards
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build
from tests.support.examples import examples

SERVICES = [f"shop/s{number}" for number in range(8)]
NODES = ("n1", "n2")


def some_service(key: str, luck: random.Random) -> Service:
    """A Service that is plain, shares an address, has a node's address, or has special fields."""
    vips = [f"198.51.100.{luck.randint(1, 12)}" for _ in range(luck.randint(0, 2))]
    vips += luck.sample(["2001:db8::7", "192.0.2.11", "198.51.100.200"], luck.choice((0, 0, 0, 1)))
    notes = {names.VERBATIM_ANNOTATION: '{"nopreempt": ""}'} if luck.random() < 0.1 else {}
    if luck.random() < 0.2:
        notes[names.PREFERRED_NODES_ANNOTATION] = "zone=a"
    policy = "Local" if luck.random() < 0.15 else "Cluster"
    created = f"2026-01-0{luck.randint(1, 9)}T00:00:00Z"
    return build.service(
        key,
        group=GROUP,
        type="ClusterIP",
        external_ips=vips,
        external_traffic_policy=policy,
        annotations=notes,
        created=created,
    )


def some_group(luck: random.Random, *, shared: bool) -> KeepalivedGroup:
    """A group, with or without VIPs of its own and a namespace selector."""
    return build.group(
        instances=Instances(mode="Shared", count=luck.choice((3, 3, 2))) if shared else Instances(),
        virtual_ips=[GroupVirtualIP(address="198.51.100.200")] if luck.random() < 0.3 else None,
        allowed_namespaces=LabelSelector(match_labels={"env": "prod"}) if luck.random() < 0.2 else None,
        unicast_enabled=luck.random() < 0.5,
    )


def some_pool(luck: random.Random) -> VIPPool:
    """A pool on an interface, or on that of the group, with or without a way back."""
    interface = luck.choice(("", "vlan20", "vlan20", "bond0.30"))
    routing = PoolRouting(gateway="198.51.100.254", table=luck.choice((20, 30)))
    return build.pool(
        "dmz",
        luck.choice(("198.51.100.1-198.51.100.6", "198.51.100.4-198.51.100.9")),
        interface=interface,
        routing=routing if interface and luck.random() < 0.5 else None,
    )


def some_node(luck: random.Random) -> Node:
    """A node that is ready or not, has the address of a VIP or not, and is preferred or not."""
    address = luck.choice(("192.0.2.12", "192.0.2.12", "198.51.100.3", "198.51.100.5"))
    name = luck.choice(NODES) if address.startswith("192") else "n2"
    found = build.node(name, address, labels=luck.choice(({}, {"zone": "a"})))
    return found if luck.random() < 0.6 else build.not_ready(found)


def some_answers(simulation: SimulatedCluster, luck: random.Random) -> AgentStates:
    """Answers of some agents: which nodes run the text, are master, or are silent."""
    configmap = simulation.objects.configmaps.get(GROUP)
    running = running_instances((configmap.data or {})[names.CONFIG_KEY]) if configmap else {}
    states, seen = {}, {}
    turn, is_well = int(luck.random() < 0.2), luck.random() < 0.8
    for node in NODES if is_well else luck.sample(NODES, luck.choice((2, 1))):
        leads = {name for index, name in enumerate(sorted(running)) if node == NODES[(index + turn) % 2]}
        if not is_well:
            leads ^= set(luck.sample(sorted(running), min(1, len(running))))
        at = {vip.address: name for name, run in running.items() for vip in run.virtual_ips}
        for address in luck.sample(sorted(at), min(len(at), luck.choice((0, 0, 0, 1)))):
            del at[address]
        states[node] = NodeState(
            config_hash=simulation.snapshot.groups[GROUP].status.config_hash,
            runs=frozenset(at),
            masters=frozenset(address for address, name in at.items() if name in leads),
            instance_of=at,
            missing=frozenset({luck.choice(("vlan20", "bond0.30"))}) if luck.random() < 0.2 else frozenset(),
            instances=tuple(
                InstanceState(name, run.identity.router_id, 4, MASTER if name in leads else BACKUP, 1)
                for name, run in sorted(running.items())
            ),
        )
        seen[node] = Contact(float(luck.randint(1, 50)), dict.fromkeys(running, 1.0), luck.random() < 0.2)
    return AgentStates({GROUP: states}, contacts={GROUP: seen})


def happen(simulation: SimulatedCluster, luck: random.Random, *, shared: bool) -> None:
    """Change something at random, mostly one Service."""
    key = luck.choice(SERVICES)
    events = ("edit", "edit", "edit", "drop", "group", "allow", "node", "answers", "answers", "plan", "plan", "pool")
    match luck.choice(events):
        case "edit":
            edited, before = some_service(key, luck), simulation.snapshot.services.get(key)
            if before is not None and luck.random() < 0.5:  # as the API server does: an edit does not change the status
                edited = msgspec.structs.replace(edited, status=before.status)
            simulation.snapshot.put(edited)
        case "drop":
            simulation.snapshot.drop(names.SERVICE, key)
        case "group":
            status = simulation.snapshot.groups[GROUP].status
            simulation.snapshot.put(msgspec.structs.replace(some_group(luck, shared=shared), status=status))
        case "allow":
            simulation.snapshot.put(build.namespace("shop", env=luck.choice(("prod", "test"))))
        case "node":
            simulation.snapshot.put(some_node(luck))
        case "pool":
            simulation.snapshot.put(some_pool(luck))
        case "answers":
            simulation.agents = some_answers(simulation, luck)
        case "plan":
            for each in sorted(simulation.snapshot.services):
                simulation.service(each)


def one_by_one(shards: Shards, **_more: object) -> Mapping[str, Shard]:
    """Treat every Service as special."""
    return {"group/0": Shard({}, tuple(shards))}


@pytest.mark.slow
@examples(60, deadline=None)
@given(st.booleans(), st.randoms(use_true_random=False))
def test_a_plan_is_the_same_with_and_without_memory(shared: bool, luck: random.Random) -> None:
    """After any history, the plan equals that of a controller without memory that treats every Service as special."""
    simulation = served_group(luck, shared=shared)
    histories = []
    for _ in range(15):
        happen(simulation, luck, shared=shared)
        simulation.later(luck.choice((0, 1, 5)))
        histories.append((forgetful(simulation), simulation.group()))
    for then, kept in histories:
        with patch.object(units, "combine", one_by_one):
            assert then.plan(Key(KeyKind.GROUP, GROUP)) == kept


@pytest.mark.slow
@examples(60, deadline=None)
@given(st.booleans(), st.randoms(use_true_random=False))
def test_changes_between_the_steps_of_a_comparison_are_not_missed(shared: bool, luck: random.Random) -> None:
    """The plan after an interrupted comparison finds the same outdated Services as a controller without memory."""
    simulation = served_group(luck, shared=shared)
    histories = []
    with patch.object(outdated, "BATCH", 1):
        for _ in range(8):
            simulation.group_in_steps(lambda: happen(simulation, luck, shared=shared))
            simulation.later(luck.choice((0, 1, 5)))
            histories.append((forgetful(simulation), simulation.plan_group()))
    for then, kept in histories:
        found = then.plan_group()
        assert (found.also, found.also_low_priority) == (kept.also, kept.also_low_priority)
        assert found.record == kept.record


def test_a_namespace_that_is_allowed_for_a_moment_leaves_nothing_served() -> None:
    """It was not allowed when the comparison began, and is not allowed afterwards."""
    simulation = served_group(Fair(), shared=True)
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, allowed_namespaces=LabelSelector(match_labels={"env": "prod"}))
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    simulation.snapshot.put(build.namespace("shop", env="prod"))
    for _ in range(2):
        assert simulation.plan_group().also == ()
    simulation.snapshot.put(build.namespace("shop", env="test"))
    with patch.object(outdated, "BATCH", 1):
        simulation.group_in_steps(lambda: simulation.snapshot.put(build.namespace("shop", env="prod")))
    simulation.snapshot.put(build.namespace("shop", env="test"))
    assert simulation.plan_group().also == tuple(Key(KeyKind.SERVICE, key) for key in SERVICES)


def test_a_claim_by_a_node_of_a_group_that_goes_is_evaluated_again() -> None:
    """Its hardware address is no longer that of a node; the claim itself has not changed."""
    simulation = served_group(Fair(), shared=True)
    simulation.plan_group()
    vip, other = min(simulation.agents.states_of(GROUP)["n1"].runs), "02:00:00:00:00:aa"
    claim = ClaimedAddress(vip, other, "eth0", is_held=True)
    for node, own in (("n1", "02:00:00:00:00:01"), ("n2", "02:00:00:00:00:02")):
        state = replace(simulation.agents.states_of(GROUP)[node], hardware=(own,), claimed=(claim,))
        simulation.agents = simulation.agents.with_state(GROUP, node, state=state)
    simulation.agents = simulation.agents.with_state("lb/other", "n9", state=NodeState(hardware=(other,)))
    for _ in range(2):
        assert simulation.plan_group().also == ()
    simulation.agents = simulation.agents.with_nodes("lb/other", [])
    assert len(simulation.plan_group().also) == 1


def test_labels_that_a_node_has_for_a_moment_leave_nothing_served() -> None:
    """The note about preferred nodes is right again when they are compared, and wrong afterwards."""
    simulation = served_group(Fair(), shared=False)
    zone_a, zone_b = (build.node("n2", "192.0.2.12", labels={"zone": zone}) for zone in "ab")
    simulation.snapshot.put(zone_a)
    notes = {names.PREFERRED_NODES_ANNOTATION: "zone=a"}
    for number, key in enumerate(SERVICES):
        vips = [f"198.51.100.{number + 1}"]
        edited = build.service(key, group=GROUP, type="ClusterIP", external_ips=vips, annotations=notes)
        simulation.snapshot.put(msgspec.structs.replace(edited, status=simulation.snapshot.services[key].status))
        simulation.service(key)
    for _ in range(2):
        assert not simulation.plan_group().also
    simulation.snapshot.put(zone_b)
    with patch.object(outdated, "BATCH", 1):
        simulation.group_in_steps(lambda: simulation.snapshot.put(zone_a))
    simulation.snapshot.put(zone_b)
    found = simulation.plan_group()
    assert {*found.also, *found.also_low_priority} == {Key(KeyKind.SERVICE, key) for key in SERVICES}


def served_group(luck: random.Random, *, shared: bool) -> SimulatedCluster:
    """A group with Services whose conditions are written."""
    simulation = SimulatedCluster(cluster(some_group(luck, shared=shared), build.namespace("shop")))
    for number, key in enumerate(SERVICES):
        simulation.snapshot.put(
            build.service(key, group=GROUP, type="ClusterIP", external_ips=[f"198.51.100.{number + 1}"])
        )
    for _ in range(3):
        simulation.group()
        simulation.agents = some_answers(simulation, luck)
    for key in SERVICES:
        simulation.service(key)
    return simulation


def forgetful(simulation: SimulatedCluster) -> SimulatedCluster:
    """The same cluster with a controller that has no memory of its plans."""
    snapshot = simulation.snapshot
    stores = snapshot.groups, snapshot.nodes, snapshot.namespaces, snapshot.services, snapshot.pools
    every: list[Iterable[Object]] = [each.values() for each in stores]
    then = SimulatedCluster(Snapshot.from_objects(chain.from_iterable(every)), agents=simulation.agents)
    then.objects, then.records, then.now = deepcopy(simulation.objects), deepcopy(simulation.records), simulation.now
    return then


class Fair(random.Random):
    """A generator that returns the usual choice."""

    def random(self) -> float:
        """The middle."""
        return 0.5

    def choice(self, seq: Any) -> Any:
        """The first choice, which is the usual one."""
        return seq[0]


def test_an_edit_of_a_served_service_is_noticed() -> None:
    """Its conditions have an old generation. The other Services are known as served and are not compared again."""
    simulation = served_group(Fair(), shared=True)
    for _ in range(2):
        assert simulation.plan_group().also == ()
    before = simulation.snapshot.services[SERVICES[3]]
    metadata = msgspec.structs.replace(before.metadata, generation=before.metadata.generation + 1)
    simulation.snapshot.put(msgspec.structs.replace(before, metadata=metadata))
    with patch.object(outdated, "programmed_state", wraps=programmed_state) as judged:
        assert simulation.plan_group().also == (Key(KeyKind.SERVICE, SERVICES[3]),)
    assert judged.call_count == 1
