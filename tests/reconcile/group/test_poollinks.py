"""What nodes need of pools: the interfaces of VIPs, the nodes that lack one, and the way back of replies."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import parse_address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.api.agentconfig import AgentConfig, ReturnRoute, decode_config
from kavip.api.group import Instances
from kavip.api.pool import PoolRouting, VIPPool
from kavip.reconcile import enqueue
from kavip.reconcile.observed.agentstates import AgentStates, ExcludedInstance, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import Snapshot
from kavip.vrrp.running import first_nodes, running_instances, running_nodes
from kavip.vrrp.spread import most
from tests.reconcile.group.settledgroup import PROGRAMMED, condition, serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build
from tests.support.examples import examples

CARD = "vlan20"
ROUTING = PoolRouting(gateway="198.51.100.1", table=120)
WEB, RAW = "shop/web", "shop/raw"
SHARED: dict[str, Any] = {"instances": Instances(mode="Shared", count=3)}


def dmz(*, interface: str = CARD, routing: PoolRouting | None = ROUTING, **spec: Any) -> VIPPool:
    """The pool of the second network."""
    return build.pool("dmz", "198.51.100.128/25", interface=interface, routing=routing, **spec)


def agent_config(simulation: SimulatedCluster) -> AgentConfig:
    """``agent.json`` of the group."""
    data = simulation.objects.configmaps[GROUP].data or {}
    found = decode_config(data[names.AGENT_KEY])
    assert found
    return found


def answer(simulation: SimulatedCluster, **states: NodeState) -> None:
    """Let each node run the configuration of the ConfigMap, with what is in *states* besides."""
    running = running_instances(simulation.text())
    at = {address: name for name, run in running.items() for address in run.carried}
    config = agent_config(simulation)
    common = NodeState(
        config_hash=config.config_hash, prepared=config.next_hash, runs=frozenset(at), instance_of=at, drift=0.0
    )
    answers = {
        name: replace(
            common,
            notes=each.notes,
            refused=each.refused,
            missing=each.missing,
            excluded=each.excluded,
            routed=each.routed,
            instances=each.instances,
            masters=each.masters,
        )
        for name, each in states.items()
    }
    simulation.agents = AgentStates({GROUP: answers})
    simulation.settle(Key(KeyKind.GROUP, GROUP))


def interfaces_of(simulation: SimulatedCluster) -> dict[str, str]:
    """By VIP, the interface in the text."""
    running = running_instances(simulation.text()).values()
    return {str(vip.address): vip.interface for run in running for vip in run.virtual_ips}


@pytest.mark.parametrize("spec", [{}, SHARED], ids=["PerService", "Shared"])
def test_each_address_is_on_the_interface_of_its_pool(spec: dict[str, Any]) -> None:
    """Assigned ones, external IPs, and those of a pool that the Service does not match any more."""
    web = build.service(WEB, group=GROUP, holds=["192.0.2.130", "198.51.100.130"])
    group = build.group(**spec)
    simulation = settled(group, build.pool(), dmz(groups=["lb/other"]), web, serving(RAW, "198.51.100.131"))
    assert interfaces_of(simulation) == {
        "192.0.2.130": "eth0",
        "198.51.100.130": CARD,
        "198.51.100.131": CARD,
    }
    assert agent_config(simulation).pool_interfaces == (CARD,)


def test_only_pools_with_vips_of_the_group_are_routed() -> None:
    """By pool, sorted; the others are no business of these nodes."""
    other = build.pool("lab", "203.0.113.0/24", interface="vlan30", routing=PoolRouting(gateway="203.0.113.1", table=7))
    simulation = settled(build.group(), dmz(), other, serving(RAW, "198.51.100.131"))
    assert agent_config(simulation).routes == (
        ReturnRoute("dmz", CARD, 120, ("198.51.100.1",), ("198.51.100.128-198.51.100.255",)),
    )
    assert settled(build.group(), dmz(), other, serving(RAW, "192.0.2.9")).objects.configmaps[GROUP].data is not None
    assert agent_config(settled(build.group(), dmz(), other, serving(RAW, "192.0.2.9"))).routes == ()


@pytest.mark.parametrize(
    "edited",
    [
        dmz(routing=PoolRouting(gateway="198.51.100.2", table=120)),
        dmz(routing=PoolRouting(gateway="198.51.100.1", table=121)),
        dmz(routing=None),
        dmz(interface="bond0.20"),
    ],
    ids=["gateway", "table", "no routing", "interface"],
)
def test_an_edit_for_a_vip_that_runs_is_a_switch(edited: VIPPool) -> None:
    """Until the instant, nodes have the way back that they had; the change is prepared as a whole."""
    simulation = settled(build.group(), dmz(), serving(RAW, "198.51.100.131"))
    with_pods(simulation, pod("edge-n1", "n1"), pod("edge-n2", "n2"))
    before = agent_config(simulation)
    simulation.snapshot.put(edited)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    after = agent_config(simulation)
    assert (after.routes, after.config_hash) == (before.routes, before.config_hash)
    assert after.next is not None
    assert after.next.routes != before.routes
    what = "interface, routing" if edited.spec.interface != CARD else "routing"
    assert what in condition(simulation, PROGRAMMED)[2]


def test_a_way_back_for_new_vips_rolls() -> None:
    """It concerns no VIP that runs; that it ends with the last VIP neither."""
    simulation = settled(build.group(), dmz(), serving(RAW, "192.0.2.9"))
    simulation.snapshot.put(serving(WEB, "198.51.100.131"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert (len(agent_config(simulation).routes), agent_config(simulation).next) == (1, None)
    simulation.snapshot.drop(names.SERVICE, WEB)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert (agent_config(simulation).routes, agent_config(simulation).next) == ((), None)


def test_a_node_that_lacks_the_interface_is_recorded_until_it_answers_otherwise() -> None:
    """A controller that starts knows it from the text; nothing moves before the agents have answered."""
    simulation = settled(build.group(), dmz(), *(serving(f"shop/s{n}", f"198.51.100.{130 + n}") for n in range(6)))
    has, lacks = NodeState(routed=frozenset({"dmz"})), NodeState(missing=frozenset({CARD}))
    answer(simulation, n1=has, n2=lacks)
    assert running_nodes(simulation.text()).lacking == {("n2", CARD)}
    assert set(first_nodes(simulation.text()).values()) == {"n1"}
    text = simulation.text()
    restarted = NodeState(refused="Secret lb/vrrp does not exist")  # its agent, which does not know what is excluded
    for states in ({}, {"n1": has}, {"n1": has, "n2": restarted}):  # the answers that a new controller has so far
        simulation.agents = AgentStates()
        if states:
            answer(simulation, **states)
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        assert simulation.text() == text
    answer(simulation, n1=has, n2=has)
    assert running_nodes(simulation.text()).lacking == frozenset()
    assert set(first_nodes(simulation.text()).values()) == {"n1", "n2"}


def test_the_condition_names_nodes_that_are_left_out_or_do_not_route() -> None:
    """An agent of an earlier version does not report that it routes replies."""
    simulation = settled(build.group(), dmz(), serving(RAW, "198.51.100.131"))
    answer(simulation, n1=NodeState(routed=frozenset({"dmz"})), n2=NodeState(missing=frozenset({CARD})))
    answer(simulation, n1=NodeState(routed=frozenset({"dmz"})), n2=NodeState(missing=frozenset({CARD})))
    status, _, message = condition(simulation, PROGRAMMED)
    assert status == "True"
    assert message.endswith(f"; left out, because interface {CARD} is missing there: n2")
    answer(simulation, n1=NodeState(routed=frozenset({"dmz"})), n2=NodeState())
    answer(simulation, n1=NodeState(routed=frozenset({"dmz"})), n2=NodeState())
    status, _, message = condition(simulation, PROGRAMMED)
    assert status == "True"
    assert message.endswith(
        "; replies of VIPPool dmz are not routed by its gateway on n2: see Ready, or replace pods with an agent of an "
        "earlier kavip"
    )


@pytest.mark.parametrize("spec", [{}, SHARED], ids=["PerService", "Shared"])
def test_a_pool_on_an_interface_that_no_node_has_does_not_switch(spec: dict[str, Any]) -> None:
    """The condition says which interface is absent; that a node lacks the one that runs is no fault meanwhile."""
    vips = [f"198.51.100.{130 + number}" for number in range(6)]
    notes = {names.SPREAD_ANNOTATION: "true"}
    web = build.service(WEB, group=GROUP, type="ClusterIP", external_ips=vips, annotations=notes)
    simulation = settled(build.group(**spec), dmz(), web, serving(RAW, "192.0.2.9"), nodes=3)
    with_pods(simulation, *(pod(f"edge-{name}", name) for name in ("n1", "n2", "n3")))
    has = NodeState(routed=frozenset({"dmz"}))
    left_out = ExcludedInstance(name=WEB, reason=f"interface {CARD} is absent", interface=CARD)
    lacks = replace(has, missing=frozenset({CARD}), excluded=(left_out,), routed=frozenset())
    for _ in range(3):
        answer(simulation, n1=has, n2=has, n3=lacks)
    before, first = condition(simulation, PROGRAMMED), first_nodes(simulation.text())
    assert before[0] == "True"
    simulation.snapshot.put(dmz(interface="vlan30"))
    for _ in range(3):
        absent = [replace(each, missing=each.missing | {"vlan30"}) for each in (has, has, lacks)]
        answer(simulation, **dict(zip(("n1", "n2", "n3"), absent, strict=True)))
    status, reason, message = condition(simulation, PROGRAMMED)
    assert (status, reason) == ("False", "Pending")
    assert "interface vlan30 exists on no node" in message
    assert set(interfaces_of(simulation).values()) == {CARD, "eth0"}
    assert first_nodes(simulation.text()) == first
    simulation.snapshot.put(dmz())
    for _ in range(3):
        answer(simulation, n1=has, n2=has, n3=lacks)
    assert condition(simulation, PROGRAMMED)[0] == "True"


def test_an_instance_that_no_node_can_run_has_no_master() -> None:
    """At once: the Service got an address on an interface that all nodes lack; the master was of the old address."""
    simulation = settled(build.group(), dmz(), serving(WEB, "192.0.2.9"))
    sight = InstanceState(WEB, 1, 4, "MASTER", 1)
    idle, master = NodeState(), NodeState(instances=(sight,))
    left_out = ExcludedInstance(name=WEB, reason=f"interface {CARD} is absent", interface=CARD)
    lacks = NodeState(missing=frozenset({CARD}), excluded=(left_out,))

    def nodes_of(**states: NodeState) -> list[str]:
        answer(simulation, **states)
        return [each.node for each in simulation.snapshot.groups[GROUP].status.instances or ()]

    assert nodes_of(n1=idle, n2=master) == ["n2"]
    simulation.snapshot.put(serving(WEB, "198.51.100.131"))
    assert nodes_of(n1=lacks, n2=idle) == ["n2"]  # it may be on its way
    assert nodes_of(n1=lacks) == ["n2"]
    assert nodes_of(n1=lacks, n2=lacks) == [""]


def test_a_service_names_nodes_that_cannot_route_its_replies() -> None:
    """As long as they report it; other Services, and nodes without the interface, are not named."""
    simulation = settled(build.group(), dmz(), serving(RAW, "198.51.100.131"), serving(WEB, "192.0.2.9"), nodes=3)
    keys = [Key(KeyKind.SERVICE, RAW), Key(KeyKind.SERVICE, WEB)]
    works = NodeState(routed=frozenset({"dmz"}))
    master = replace(works, masters=frozenset(map(parse_address, ("192.0.2.9", "198.51.100.131"))))
    fails = NodeState(notes=(NodeProblem(ProblemCode.ROUTING_TABLE_IN_USE, "routing table 120 is in use"),))
    lacks = replace(fails, missing=frozenset({CARD}))
    unrouted = "; replies of VIPPool dmz are not routed by its gateway on n1: see Ready of KeepalivedGroup lb/edge"

    def note_of(key: str) -> str:
        found = {each.type: each for each in simulation.snapshot.services[key].status.conditions or ()}
        return found[names.ConditionType.SERVICE_PROGRAMMED].message.partition("missing there: n3")[2]

    answer(simulation, n1=works, n2=master, n3=lacks)
    simulation.settle(*keys)
    for states, note in (({"n1": fails}, unrouted), ({"n1": works}, "")):
        answer(simulation, **{"n1": works, "n2": master, "n3": lacks, **states})
        assert simulation.plan_group().also_low_priority == (keys[0],)
        simulation.later(60)
        simulation.settle(*keys)
        assert note_of(RAW) == note
        assert "routed" not in note_of(WEB)


def test_the_routes_count_in_the_size_of_the_config_map() -> None:
    """Twice, because those of the next configuration stand beside those that run."""
    for routing, fits in ((None, True), (PoolRouting(gateway="203.0.113.1", table=7), False)):
        pool = build.pool("dmz", *(f"198.51.100.{2 * n}" for n in range(128)), interface=CARD, routing=routing)
        simulation = settled(build.group(), pool, serving(RAW, "198.51.100.4"))
        reserved = 2 * len(msgspec.json.encode(agent_config(simulation).routes)) if routing else 0
        with pytest.MonkeyPatch.context() as patch:
            room = 100 if routing else 2000
            patch.setattr("kavip.vrrp.config.MOST_BYTES", len(simulation.text()) + reserved + room)
            simulation.snapshot.put(serving(WEB, "192.0.2.9"))
            simulation.settle(Key(KeyKind.GROUP, GROUP))
            assert ("192.0.2.9" in simulation.text()) is fits


def test_a_pool_enqueues_the_groups_that_it_concerns() -> None:
    """Those of the Services with addresses in it; none while no pool names an interface."""
    others = build.group("lb/other"), serving("shop/else", "192.0.2.9", group="lb/other")
    snapshot = cluster(build.group(), dmz(), serving(RAW, "198.51.100.131"), *others)
    for edited in (dmz(interface="bond0.20"), dmz(routing=None), None):
        assert enqueued_groups(snapshot, edited) == {GROUP}
    assert enqueued_groups(snapshot, dmz(interface="", routing=None, priority=1)) == set()
    assert enqueued_groups(snapshot, dmz(interface="", routing=None, priority=2)) == set()


def enqueued_groups(snapshot: Snapshot, pool: VIPPool | None) -> set[str]:
    """The groups that are enqueued when *pool* becomes VIPPool dmz; None: it is deleted."""
    old = snapshot.pools.get("dmz")
    if pool is None:
        snapshot.drop(names.VIP_POOL, "dmz")
    else:
        snapshot.put(pool)
    return {each.name for each in enqueue.of(snapshot, old, pool) if each.kind == KeyKind.GROUP}


@pytest.mark.slow
@examples(40, deadline=None)
@given(st.integers(1, 7), st.integers(2, 5), st.sampled_from([{}, SHARED]), st.randoms(use_true_random=False))
def test_the_bound_of_spread_holds_over_the_nodes_that_have_the_interface(
    count: int, nodes: int, spec: dict[str, Any], luck: random.Random
) -> None:
    """Nodes that lack it hold none of these VIPs, whatever the history."""
    vips = [f"198.51.100.{130 + n}" for n in range(count)]
    notes = {names.SPREAD_ANNOTATION: "true"}
    web = build.service(WEB, group=GROUP, type="ClusterIP", external_ips=vips, annotations=notes)
    simulation = SimulatedCluster(cluster(build.group(**spec), dmz(routing=None), web, nodes=nodes))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    every = [f"n{number}" for number in range(1, nodes + 1)]
    for _ in range(4):
        lacking = set(luck.sample(every, luck.randrange(nodes)))
        state = {name: NodeState(missing=frozenset({CARD} if name in lacking else ())) for name in every}
        for _ in range(3):  # a node that has it again counts as soon as it runs the published text
            answer(simulation, **state)
        first = {name: node for name, node in first_nodes(simulation.text()).items() if name.startswith(WEB)}
        held = Counter(first.values())
        assert len(first) == count and not lacking & held.keys()
        assert max(held.values()) <= most(count, nodes - len(lacking))
        text = simulation.text()
        answer(simulation, **state)
        assert simulation.text() == text


def test_shared_instances_on_an_interface_exist_while_they_are_needed() -> None:
    """Each has a VRID, which stays the same while it exists; the others keep theirs."""
    simulation = settled(build.group(**SHARED), dmz(), *(serving(f"shop/s{n}", f"192.0.2.{9 + n}") for n in range(6)))

    def ids() -> dict[str, int]:
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        found = simulation.snapshot.groups[GROUP].status.router_ids or {}
        return {key: number for key, number in found.items() if key.startswith("group/")}

    plain = ids()
    assert len(plain) == 3
    for number in range(6):
        simulation.snapshot.put(serving(f"shop/t{number}", f"198.51.100.{130 + number}"))
    more = ids()
    assert {key: more[key] for key in plain} == plain
    assert {key for key in more if key.endswith(f".{CARD}")} == more.keys() - plain.keys() != set()
    assert len(set(more.values())) == len(more)
    for number in range(1, 6):
        simulation.snapshot.drop(names.SERVICE, f"shop/t{number}")
    (left,) = ids().keys() - plain.keys()
    assert ids() == {**plain, left: more[left]}
    simulation.snapshot.drop(names.SERVICE, "shop/t0")
    assert ids() == plain


def test_a_text_of_pools_without_interfaces_is_that_of_earlier_versions() -> None:
    """Nothing of it names pools, so an upgrade changes no configuration."""
    simulation = settled(build.group(), build.pool(), build.service(WEB, group=GROUP, holds=["192.0.2.130"]))
    raw = msgspec.json.decode((simulation.objects.configmaps[GROUP].data or {})[names.AGENT_KEY])
    assert not {"poolInterfaces", "routes"} & raw.keys()
    assert "lacks" not in simulation.text()
