"""The cost of the plan after an event, in operations: it does not grow with the Services of a Shared group."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from kavip import names
from kavip.api.group import Instances
from kavip.api.service import Service
from kavip.memo import Memory
from kavip.names import Reason
from kavip.reconcile.group.outdated import BATCH, Outdated
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.service.advertised import advertised_state
from kavip.reconcile.service.programmed import programmed_state
from kavip.reconcile.service.vips import ServiceVIPs, ServingGroup
from kavip.vrrp.compact import is_compact
from kavip.vrrp.running import running_instances
from tests.reconcile.group.settledgroup import serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, pod
from tests.support import build
from tests.support.operations import instructions

MASTER_NODE = "n1"
CROWDS = (64, 512)
NEW = "shop/new"


def crowd(size: int, *, nodes: int = 2, instances: int = 4) -> SimulatedCluster:
    """A Shared group with that many Services, whose text every node runs and whose conditions are current."""
    group = build.group(unicast_enabled=True, instances=Instances(mode="Shared", count=instances))
    services = [serving(f"shop/s{number:04}", f"198.18.{number // 250}.{number % 250 + 1}") for number in range(size)]
    pods = (pod(f"edge-n{number}", f"n{number}") for number in range(1, nodes + 1))
    simulation = with_pods(settled(group, *services, nodes=nodes), *pods)
    for _ in range(2):
        report(simulation)
        simulation.objects.configmaps.clear()  # written again, without the list of VIPs that are new on the nodes
        simulation.settle(Key(KeyKind.GROUP, GROUP))
    for service in services:
        simulation.service(service.key)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def report(simulation: SimulatedCluster) -> None:
    """Let all nodes run the published text; the first one is the master of everything."""
    running = running_instances(simulation.text())
    at = {vip.address: name for name, run in running.items() for vip in run.virtual_ips}
    runs = frozenset(at)  # the prober shares it between nodes, too
    states = {
        node: NodeState(
            config_hash=simulation.snapshot.groups[GROUP].status.config_hash,
            runs=runs,
            masters=frozenset(at) if node == MASTER_NODE else frozenset(),
            instance_of=at,
            instances=tuple(
                InstanceState(
                    name, run.identity.router_id, 4, MASTER if node == MASTER_NODE else BACKUP, len(run.virtual_ips)
                )
                for name, run in sorted(running.items())
            ),
            reads_compact=True,
            reads_packed=True,
        )
        for node in (each.spec.node_name for each in simulation.objects.pods_of(GROUP))
    }
    simulation.agents = replace(AgentStates({GROUP: states}), probed_from=simulation.now)


def costs(
    change: Callable[[SimulatedCluster], Service | None], *, are_written: bool = False, **shape: int
) -> list[int]:
    """
    The operations of the group's plan after *change* of the Service :data:`NEW`, in a small and a large group.

    With *are_written*, the writes of earlier plans are carried out.
    """
    found = []
    for size in CROWDS:
        simulation = crowd(size, **shape)
        plan = simulation.group if are_written else simulation.plan_group
        for _ in range(3):  # the first plans fill memories
            put(simulation, change(simulation))
            plan()
            put(simulation, None)
            plan()
        put(simulation, change(simulation))
        found.append(instructions(simulation.plan_group))
    return found


def put(simulation: SimulatedCluster, service: Service | None) -> None:
    """Create or replace the Service :data:`NEW`, or delete it."""
    if service is not None:
        simulation.snapshot.put(service)
    elif NEW in simulation.snapshot.services:
        simulation.snapshot.drop(names.SERVICE, NEW)


def test_a_service_that_is_added_costs_the_same_among_few_and_many() -> None:
    """Its instance is edited, not combined again; no other Service is read."""
    few, many = costs(lambda _: serving(NEW, "192.0.2.200"))
    assert many <= 1.02 * few


def test_it_costs_the_same_after_a_text_was_written() -> None:
    """Of that text only the lines that differ from the one before are read, and few VIPs move between instances."""
    few, many = costs(lambda _: serving(NEW, "192.0.2.200"), are_written=True)
    assert many <= 1.02 * few


def test_it_costs_the_same_with_new_vips_that_are_far_apart() -> None:
    """No step is made for each of the VIPs between them."""
    few, many = costs(lambda _: serving(NEW, "192.0.2.1", "203.0.113.200"), are_written=True)
    assert many <= 1.02 * few


def test_it_costs_the_same_where_the_text_is_compact() -> None:
    """On 48 nodes and with 16 instances it is."""
    assert is_compact(crowd(CROWDS[0], nodes=48, instances=16).text())
    few, many = costs(lambda _: serving(NEW, "192.0.2.200"), nodes=48, instances=16)
    assert many <= 1.02 * few


def test_a_service_with_an_instance_of_its_own_costs_the_same_among_few_and_many() -> None:
    """It is special in its shard, whose other Services are not read."""
    few, many = costs(lambda _: serving(NEW, "192.0.2.200", external_traffic_policy="Local"))
    assert many <= 1.02 * few


def test_a_service_that_shares_an_address_reads_only_its_shard_again() -> None:
    """Both Services of the address become special, so their shards are combined again, and the others are not."""
    few, many = costs(lambda _: serving(NEW, "198.18.0.1"))
    assert many - few < 150 * (CROWDS[1] - CROWDS[0]) / 2


def test_a_comparison_of_all_services_never_takes_long_at_once() -> None:
    """The plan begins at the same cost among few and many, and each step costs the same; there are more of them."""
    begins, largest, sums = [], [], []
    for size in CROWDS:
        simulation = crowd(size)
        simulation.plan_group()
        states = simulation.agents.states_of(GROUP)
        changed = replace(states["n2"], missing=frozenset({"vlan20"}))
        simulation.agents = simulation.agents.with_state(GROUP, "n2", state=changed)
        begun: list[Iterator[Outdated]] = []
        begins.append(instructions(partial(begin, simulation, begun)))
        steps = [instructions(partial(next, begun[0], None)) for _ in range(size // BATCH + 1)]
        assert next(begun[0], None) is None
        largest.append(max(steps))
        sums.append(sum(steps))
    assert begins[1] <= 1.02 * begins[0]
    assert largest[1] <= 1.25 * largest[0]  # it also reads the shares of what it compares
    assert sums[1] > 5 * sums[0]


def compared(simulation: SimulatedCluster) -> int:
    """In how many steps the plan of the group compares Services."""
    begun: list[Iterator[Outdated]] = []
    begin(simulation, begun)
    return sum(1 for _ in begun[0])


def test_a_node_that_is_not_ready_or_ready_again_leads_to_no_comparison() -> None:
    """What is served without it stays served, and so it does with a node that runs everything."""
    simulation = crowd(CROWDS[0])
    node = simulation.snapshot.nodes["n2"]
    assert compared(simulation) == 0
    for found in (build.not_ready(node), node):
        simulation.snapshot.put(found)
        assert compared(simulation) == 0
    simulation.snapshot.put(build.not_ready(node))
    assert compared(simulation) == 0
    without = replace(simulation.agents.states_of(GROUP)["n2"], runs=frozenset())
    simulation.agents = simulation.agents.with_state(GROUP, "n2", state=without)
    simulation.plan_group()
    assert compared(simulation) == 0
    simulation.snapshot.put(node)
    assert compared(simulation) > 0


def test_a_node_that_is_silent_for_long_costs_no_comparison() -> None:
    """Only the VIPs that it holds are compared."""
    for node, is_compared in (("n2", False), (MASTER_NODE, True)):
        simulation = crowd(CROWDS[0])
        assert compared(simulation) == 0
        simulation.agents = simulation.agents.with_contact(GROUP, node, contact=Contact(is_silent=True))
        assert (compared(simulation) > 0) is is_compared
        assert (compared(simulation) > 0) is is_compared


def test_a_service_costs_the_same_on_few_and_many_nodes() -> None:
    """Most nodes report the same."""
    found = []
    for nodes in (8, 64):
        simulation = crowd(CROWDS[0], nodes=nodes)
        observed = Observed(simulation.agents, simulation.objects)
        serving_group = ServingGroup.of(simulation.snapshot, GROUP, observed)
        mastership = serving_group.mastership(observed)
        service = simulation.snapshot.services["shop/s0000"]
        vips = ServiceVIPs.of(service, (), serving_group)
        for evaluate in (partial(programmed_state, vips), partial(advertised_state, vips, mastership)):
            evaluate()
            found.append(instructions(evaluate))
        assert (programmed_state(vips).reason, vips.addresses) == (Reason.PROGRAMMED, service.external_addresses)
    assert found[2] <= 1.02 * found[0]
    assert found[3] <= 1.02 * found[1]


def test_plans_while_a_switch_waits_do_not_build_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models with instances of the same names are kept: the one that runs, and the one after the switch."""
    simulation = crowd(CROWDS[0], nodes=24, instances=16)
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, unicast_enabled=False)
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    for _ in range(3):
        simulation.group()
    assert simulation.objects.configmaps[GROUP].binary_data  # the next text, for which no node is prepared yet
    found = instructions(simulation.plan_group)
    monkeypatch.setattr(Memory, "last", lambda _self, function, _name, *arguments: function(*arguments))
    assert found < 0.37 * instructions(simulation.plan_group)


def begin(simulation: SimulatedCluster, begun: list[Iterator[Outdated]]) -> None:
    """Begin the plan of the group, and put its comparison into *begun*."""
    begun.append(iter(simulation.begin_group().comparison))
