"""Which changes of a group's status only report progress, so that they may be written a little later."""

from collections.abc import Callable

import msgspec
import pytest

from kavip.api.group import Instances
from kavip.reconcile.observed.agentstates import AgentStates, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from tests.reconcile.group.settledgroup import API, PROGRAMMED, WEB, condition, serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, agent_states, pod
from tests.support import build

EDGE = Key(KeyKind.GROUP, GROUP)
Change = Callable[[SimulatedCluster], object]


def answers(simulation: SimulatedCluster, *, master: str = "n1", vips: int = 1) -> AgentStates:
    """Both nodes run the newest configuration."""
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    states = {node: "MASTER" if node == master else "BACKUP" for node in ("n1", "n2")}
    return agent_states(
        **{
            node: NodeState(config_hash=config_hash, instances=(InstanceState("group/0", 1, 4, state, vips),))
            for node, state in states.items()
        }
    )


def working(mode: str = "Shared") -> SimulatedCluster:
    """A group with one Service that all nodes run."""
    group = build.group(instances=Instances(mode=mode, count=1))
    pods = pod("p1", "n1"), pod("p2", "n2")
    simulation = with_pods(settled(group, serving(WEB, "192.0.2.130")), *pods)
    simulation.agents = answers(simulation)
    simulation.settle(EDGE)
    assert condition(simulation, PROGRAMMED)[0] == "True"
    return simulation


def patch(simulation: SimulatedCluster) -> StatusPatch:
    """The patch of the group's status."""
    (found,) = [each for each in simulation.plan_group().writes if isinstance(each, StatusPatch)]
    return found


def another_service(simulation: SimulatedCluster) -> None:
    """One more VIP of the instance."""
    simulation.snapshot.put(serving(API, "192.0.2.131"))


def followed(simulation: SimulatedCluster) -> None:
    """All nodes run a configuration with one more VIP, and the status shows their old one."""
    another_service(simulation)
    before = simulation.snapshot.groups[GROUP].status
    simulation.settle(EDGE)
    group = simulation.snapshot.groups[GROUP]
    simulation.agents = answers(simulation, vips=2)
    simulation.snapshot.put(msgspec.structs.replace(group, status=before))


def waited(simulation: SimulatedCluster) -> None:
    """All nodes run a configuration for which the status says that it waits."""
    another_service(simulation)
    simulation.settle(EDGE)
    assert condition(simulation, PROGRAMMED)[1] == "Pending"
    simulation.agents = answers(simulation, vips=2)


def failed_over(simulation: SimulatedCluster) -> None:
    """The other node is master."""
    simulation.agents = answers(simulation, master="n2")


def lost_a_pod(simulation: SimulatedCluster) -> None:
    """A pod is not ready."""
    with_pods(simulation, pod("p1", "n1", ready=False), pod("p2", "n2"))


def edited(simulation: SimulatedCluster) -> None:
    """An edit of the group that changes nothing else."""
    group = simulation.snapshot.groups[GROUP]
    metadata = msgspec.structs.replace(group.metadata, generation=2)
    simulation.snapshot.put(msgspec.structs.replace(group, metadata=metadata))


@pytest.mark.parametrize("change", [another_service, followed])
def test_what_nodes_have_not_followed_yet_or_have_followed_already_is_progress(change: Change) -> None:
    """The hash, counts of VIPs and nodes, messages, and `Programmed` that becomes Pending."""
    simulation = working()
    change(simulation)
    found = patch(simulation)
    assert found.is_progress
    assert found.body["status"].keys() <= {"configHash", "instances", "nodes", "conditions"}


def waits_for_a_switch(simulation: SimulatedCluster) -> None:
    """The VRID of the instance must change on all nodes at once: `Programmed` says so after the edit is observed."""
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, blacklist_router_ids=[1])
    metadata = msgspec.structs.replace(group.metadata, generation=2)
    simulation.snapshot.put(msgspec.structs.replace(group, metadata=metadata, spec=spec))
    simulation.group()
    assert condition(simulation, PROGRAMMED)[0] == "True"


@pytest.mark.parametrize("change", [waited, failed_over, lost_a_pod, edited, waits_for_a_switch])
def test_another_state_is_none(change: Change) -> None:
    """Programmed that becomes True or waits for a switch, another master, Ready, an edit of the group."""
    simulation = working()
    change(simulation)
    assert not patch(simulation).is_progress


def test_a_router_id_is_none() -> None:
    """The status reserves it, so it is never withheld."""
    simulation = working("PerService")
    another_service(simulation)
    assert not patch(simulation).is_progress


def test_the_first_status_is_none() -> None:
    """Also `Programmed`, which is Pending from the beginning."""
    simulation = SimulatedCluster(settled(build.group()).snapshot)
    group = simulation.snapshot.groups[GROUP]
    simulation.snapshot.put(msgspec.structs.replace(group, status=type(group.status)()))
    assert not patch(simulation).is_progress
