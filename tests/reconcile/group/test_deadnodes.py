"""Which nodes count as dead, and what then changes: only proof moves a VIP."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from itertools import combinations, count

import pytest

from kavip import names
from kavip.api.cluster import Node
from kavip.api.service import Service
from kavip.reconcile.observed.agentstates import AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.running import first_nodes, running_nodes
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

VIPS = ("192.0.2.130", "192.0.2.131", "192.0.2.132")
NODES = ("n1", "n2", "n3", "n4", "n5")
SPREAD = {names.SPREAD_ANNOTATION: "true"}


def planned(service: Service) -> SimulatedCluster:
    """A group on five nodes with *service*, after all plans are carried out."""
    simulation = SimulatedCluster(cluster(service, build.group(), build.pool(), nodes=len(NODES)))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def web(number: int) -> Service:
    """A Service whose VIPs are spread."""
    return build.service(f"shop/s{number}", holds=VIPS, group=GROUP, annotations=SPREAD)


def elected(simulation: SimulatedCluster, dead: Collection[str]) -> dict[str, str]:
    """The masters that keepalived elects by the text on the nodes that are not *dead*."""
    return dict(first_nodes(simulation.text(), dead=frozenset(dead)))


def report(
    simulation: SimulatedCluster, *, dead: Collection[str] = (), stale: Collection[str] = (), only_silent: bool = False
) -> None:
    """
    Let all agents answer, except those of *dead* nodes, which have answered once; those of *stale* run an older text.

    With *only_silent* the daemons of the dead nodes continue: no other node becomes master.
    """
    held = elected(simulation, () if only_silent else dead)
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    agents = AgentStates()
    for node in NODES:
        roles = [
            InstanceState(name, 1, 4, "MASTER" if master == node else "BACKUP", 1) for name, master in held.items()
        ]
        state = NodeState(config_hash="old" if node in stale else config_hash, instances=tuple(roles))
        agents = agents.with_state(GROUP, node, state=state)
        agents = agents.with_contact(GROUP, node, contact=Contact(is_silent=node in dead))
    simulation.agents = agents


def broken_by() -> tuple[SimulatedCluster, frozenset[str]]:
    """A Service and two nodes without which two of its three VIPs meet on one of the three nodes that are left."""
    for number in count():
        simulation = planned(web(number))
        for dead in combinations(NODES, 2):
            if max(Counter(elected(simulation, dead).values()).values()) > 1:
                return simulation, frozenset(dead)
    raise AssertionError


def unready(name: str) -> Node:
    """The node of that *name*, not ready."""
    return build.not_ready(build.node(name, f"192.0.2.1{name[1:]}"))


def settle(simulation: SimulatedCluster) -> None:
    """Plan until nothing is written."""
    simulation.settle(Key(KeyKind.GROUP, GROUP))


@pytest.fixture
def broken() -> tuple[SimulatedCluster, frozenset[str]]:
    """The same."""
    return broken_by()


def test_one_death_changes_nothing(broken: tuple[SimulatedCluster, frozenset[str]]) -> None:
    """keepalived alone keeps the bound, so the text stays."""
    simulation, dead = broken
    before = simulation.text()
    for node in sorted(dead):
        report(simulation, dead={node})
        settle(simulation)
        assert simulation.text() == before


def test_two_deaths_move_one_vip_and_their_return_moves_it_back(
    broken: tuple[SimulatedCluster, frozenset[str]],
) -> None:
    """The text names the dead nodes and ranks a free node first for one VIP, until they run that text again."""
    simulation, dead = broken
    before, held = simulation.text(), elected(simulation, dead)
    report(simulation, dead=dead)
    settle(simulation)
    assert running_nodes(simulation.text()).dead == dead
    after = elected(simulation, dead)
    assert sorted(Counter(after.values()).values()) == [1, 1, 1]
    assert sum(held[name] != after[name] for name in held) == 1
    changed = simulation.text()
    report(simulation, dead=dead)
    settle(simulation)
    assert simulation.text() == changed
    report(simulation, stale=dead)
    settle(simulation)
    assert simulation.text() == changed, "the nodes that are back do not run the text yet"
    report(simulation)
    settle(simulation)
    assert simulation.text() == before


def test_a_node_that_led_nothing_is_dead_too() -> None:
    """It ranks first for no VIP until another node is dead, so it is proven dead only after that one."""
    for number in count():
        simulation = planned(build.service(f"shop/s{number}", holds=VIPS[:2], group=GROUP, annotations=SPREAD))
        first = elected(simulation, ())
        idle = set(NODES) - {*first.values()}
        for dead in ({node, other} for node in first.values() for other in idle):
            if len({*elected(simulation, dead).values()}) == 1:
                report(simulation, dead=dead)
                settle(simulation)
                assert running_nodes(simulation.text()).dead == dead
                assert len({*elected(simulation, dead).values()}) == 2
                return


def test_a_new_controller_changes_nothing(broken: tuple[SimulatedCluster, frozenset[str]]) -> None:
    """The text is the memory: dead nodes stay dead for a controller that no agent has answered yet."""
    simulation, dead = broken
    report(simulation, dead=dead)
    settle(simulation)
    before = simulation.text()
    simulation.agents = AgentStates()
    settle(simulation)
    assert simulation.text() == before


def test_silence_moves_nothing(broken: tuple[SimulatedCluster, frozenset[str]]) -> None:
    """Nodes whose agents are silent while no other node is master are alive, and so are all if none answers."""
    simulation, dead = broken
    before = simulation.text()
    report(simulation, dead=dead, only_silent=True)
    settle(simulation)
    assert simulation.text() == before
    report(simulation, dead=NODES)
    settle(simulation)
    assert simulation.text() == before


def test_a_daemon_that_does_not_run_is_dead(broken: tuple[SimulatedCluster, frozenset[str]]) -> None:
    """An agent that reports FAULT, or that keepalived does not run, is as good as silent."""
    simulation, dead = broken
    first, second = sorted(dead)
    report(simulation, dead=dead)
    states = simulation.agents.states_of(GROUP)
    fault = tuple(replace(each, state="FAULT") for each in states[second].instances)
    for node, state in ((first, NodeState(running=False)), (second, NodeState(instances=fault))):
        simulation.agents = simulation.agents.with_state(GROUP, node, state=state)
        simulation.agents = simulation.agents.with_contact(GROUP, node, contact=Contact())
    settle(simulation)
    assert running_nodes(simulation.text()).dead == dead


def test_nodes_that_checks_lower_are_not_counted(broken: tuple[SimulatedCluster, frozenset[str]]) -> None:
    """The VIPs are spread over the others, as after deaths; a pod that hands its VIPs over changes nothing."""
    simulation, dead = broken
    before = simulation.text()
    report(simulation, dead=dead)
    states = simulation.agents.states_of(GROUP)
    for priority, expected in ((1, frozenset()), (80, dead)):
        for node in dead:
            lowered = tuple(replace(each, priority=priority) for each in states[node].instances)
            state = replace(states[node], instances=lowered)
            simulation.agents = simulation.agents.with_state(GROUP, node, state=state)
            simulation.agents = simulation.agents.with_contact(GROUP, node, contact=Contact())
        settle(simulation)
        assert running_nodes(simulation.text()).dead == expected
    report(simulation)
    settle(simulation)
    assert simulation.text() == before


def test_a_node_that_never_answered(broken: tuple[SimulatedCluster, frozenset[str]]) -> None:
    """It is dead only if Kubernetes says that it is not ready: a pod that starts has not answered either."""
    simulation, dead = broken
    before = simulation.text()
    report(simulation, dead=dead)
    alive = [node for node in NODES if node not in dead]
    simulation.agents = simulation.agents.with_nodes(GROUP, alive)
    settle(simulation)
    assert simulation.text() == before
    for node in dead:
        simulation.snapshot.put(unready(node))
    settle(simulation)
    assert running_nodes(simulation.text()).dead == dead


def test_no_preempt(broken: tuple[SimulatedCluster, frozenset[str]]) -> None:
    """Where other first nodes would move no VIP, the text stays."""
    simulation, dead = broken
    simulation.snapshot.put(build.group(no_preempt=True))
    settle(simulation)
    before = simulation.text()
    report(simulation, dead=dead)
    settle(simulation)
    assert simulation.text() == before
