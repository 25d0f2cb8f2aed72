"""A large group is published in the compact notation once its agents read it, and then it does not end at 1 MiB."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.agent.config.localize import node_lines
from kavip.api.group import Instances
from kavip.reconcile.observed.agentstates import AgentStates, NodeState
from kavip.reconcile.plan import Key, KeyKind, ReconcileOptions
from kavip.reconcile.rollout.configmap import read_published, settings_of
from kavip.reconcile.rollout.peers import PATIENCE
from kavip.vrrp import config
from kavip.vrrp.compact import Unreadable, expand, is_compact
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build
from tests.vrrp.samples import NEW

READS, OLD = NodeState(reads_compact=True), NodeState()
SERVICES, NODES = 60, 20
"""About 110 kB in full."""


def simulated(count: int = SERVICES, nodes: int = NODES, *, pods: bool = True, **spec: Any) -> SimulatedCluster:
    """A group of *count* Services, the oldest one first, on *nodes* whose agents have not answered yet."""
    services = [
        build.service(
            f"shop/s{n:05}",
            group=GROUP,
            type="ClusterIP",
            external_ips=[f"198.18.{n // 250}.{n % 250 + 1}"],
            created=f"2026-01-{n // 1440 + 1:02}T{n // 60 % 24:02}:{n % 60:02}:00Z",
        )
        for n in range(count)
    ]
    found = SimulatedCluster(cluster(build.group(**{**NEW, **spec}), *services, nodes=nodes))
    if pods:
        found.objects.pods[GROUP] = {f"lb/p{n}": pod(f"p{n}", f"n{n}") for n in range(1, nodes + 1)}
    return found


def answered(simulation: SimulatedCluster, state: NodeState, *nodes: str) -> None:
    """Let *nodes*, by default all that have a pod, answer with *state*."""
    known = simulation.agents.states_of(GROUP)
    every = nodes or [each.spec.node_name for each in simulation.objects.pods_of(GROUP)]
    simulation.agents = replace(simulation.agents, states={GROUP: {**known, **dict.fromkeys(every, state)}})


def content(simulation: SimulatedCluster) -> str:
    """What the ConfigMap holds after everything is written."""
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation.text()


def data(simulation: SimulatedCluster) -> Mapping[str, str]:
    """All keys of the ConfigMap."""
    return simulation.objects.configmaps[GROUP].data or {}


def in_full(simulation: SimulatedCluster) -> str:
    """The text of the ConfigMap in full."""
    found = expand(content(simulation))
    assert not isinstance(found, Unreadable)
    return found


def kept(simulation: SimulatedCluster, agents: AgentStates) -> str:
    """The text, which stays the same when the controller has no other reports than those of *agents*."""
    before = content(simulation)
    simulation.agents = agents
    assert content(simulation) == before
    return before


def after_a_downgrade(simulation: SimulatedCluster, state: NodeState, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text after an agent answers with *state*, which stays the same as long as it does not fit otherwise."""
    short = content(simulation)
    with monkeypatch.context() as patch:
        patch.setattr(config, "MOST_BYTES", 2 * len(short))
        answered(simulation, state, "n3")
        assert content(simulation) == short
        assert not simulation.records.groups[GROUP].excluded
    return content(simulation)


@pytest.mark.slow
def test_255_services_fit_on_200_nodes() -> None:
    """In full they need over 5 MB. No Service is excluded, and each node runs the same as with the text in full."""
    simulation = simulated(255, 200)
    answered(simulation, READS)
    short = content(simulation)
    assert is_compact(short)
    assert sum(map(len, data(simulation).values())) < 400_000
    assert not simulation.records.groups[GROUP].excluded
    text = in_full(simulation)
    assert text.count("\nvrrp_instance ") == 255
    other = SimulatedCluster(simulation.snapshot, options=ReconcileOptions(compact_text=False))
    other.objects.pods = simulation.objects.pods
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "MOST_BYTES", 10_000_000)
        full = content(other)
    assert len(full) > 4_900_000
    assert text == full
    assert data(simulation)[names.AGENT_KEY] == data(other)[names.AGENT_KEY]
    assert [*node_lines(text, "n7")] == [*node_lines(full, "n7")]


@pytest.mark.slow
def test_20_000_vips_fit_in_a_shared_group_on_200_nodes() -> None:
    """With IPv4 addresses and an interface of four letters, which is what their lines need."""
    simulation = simulated(20_000, 200, instances=Instances(mode="Shared", count=16))
    answered(simulation, READS)
    assert is_compact(content(simulation))
    assert not simulation.records.groups[GROUP].excluded
    assert in_full(simulation).count("/32 dev eth0\n") == 20_000 + 16
    assert 700_000 < sum(map(len, data(simulation).values())) < config.MOST_BYTES


def test_an_old_agent_keeps_the_group_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as one reports no capability, even if Services are excluded, which report it; the last one ends that."""
    simulation = simulated()
    answered(simulation, READS)
    answered(simulation, OLD, "n3")
    assert not is_compact(content(simulation))
    assert not simulation.records.groups[GROUP].excluded
    monkeypatch.setattr(config, "MOST_BYTES", len(content(simulation)) // 2)
    assert not is_compact(content(simulation))
    excluded = simulation.records.groups[GROUP].excluded
    assert SERVICES // 3 < len(excluded) < SERVICES
    assert all("once every agent reports CompactText and PackedText" in each.message for each in excluded.values())
    answered(simulation, READS, "n3")
    assert is_compact(content(simulation))
    assert not simulation.records.groups[GROUP].excluded


def test_the_notation_changes_nothing_else() -> None:
    """Neither what agents and pods are told, nor the hash in the status, nor a VRID."""
    simulation = simulated()
    answered(simulation, OLD)
    full, known, status = content(simulation), data(simulation), simulation.snapshot.groups[GROUP].status
    pods = simulation.objects.pods_of(GROUP)
    answered(simulation, READS)
    assert is_compact(content(simulation))
    assert in_full(simulation) == full
    assert data(simulation)[names.AGENT_KEY] == known[names.AGENT_KEY]
    assert simulation.objects.pods_of(GROUP) == pods
    assert simulation.snapshot.groups[GROUP].status == status


@pytest.mark.parametrize("agents", [AgentStates(), AgentStates({GROUP: {"n1": READS}})], ids=["none", "one"])
def test_a_compact_group_stays_so_without_reports(agents: AgentStates) -> None:
    """A new controller, and one that hears few agents, does not change the notation."""
    simulation = simulated()
    answered(simulation, READS)
    assert is_compact(kept(simulation, agents))


def test_a_compact_group_with_an_old_agent_is_in_full_where_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it does not fit, the node keeps what it runs: excluding Services would end their VIPs on all nodes."""
    simulation = simulated()
    answered(simulation, READS)
    assert not is_compact(after_a_downgrade(simulation, OLD, monkeypatch))


def test_agents_that_have_not_answered_are_awaited() -> None:
    """A new controller hears the agents one by one: one of them may be old. It waits as long as for any change."""
    simulation = simulated()
    assert not is_compact(content(simulation))
    simulation.agents = replace(simulation.agents, since=0.0)
    answered(simulation, READS, "n1")
    assert not is_compact(content(simulation))
    simulation.later(PATIENCE + 1)
    assert is_compact(content(simulation))


def test_a_node_that_is_not_ready_is_not_awaited() -> None:
    """Its agent cannot answer."""
    simulation = simulated()
    assert not is_compact(content(simulation))
    simulation.agents = replace(simulation.agents, since=0.0)
    answered(simulation, READS, *(f"n{number}" for number in range(2, NODES + 1)))
    assert not is_compact(content(simulation))
    simulation.snapshot.put(build.not_ready(build.node("n1", "192.0.2.11"), "Unknown"))
    assert is_compact(content(simulation))


def test_a_group_without_pods_gets_agents_that_read_it() -> None:
    """Its first pods are of this version; with an image of the user's own that is not known."""
    assert is_compact(content(simulated(pods=False)))
    assert not is_compact(content(simulated(pods=False, agent_image="example.org/kavip:0.1.0")))


def test_static_groups_are_in_full() -> None:
    """Where the option excludes it, no report changes that."""
    simulation = simulated()
    simulation.options = ReconcileOptions(compact_text=False)
    answered(simulation, READS)
    assert not is_compact(content(simulation))


def test_a_change_at_one_instant_is_compact_too() -> None:
    """The next text is compressed from the notation, and is read back as the text that it was made of."""
    simulation = simulated()
    answered(simulation, READS)
    before, group = in_full(simulation), simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, advert_interval_milliseconds=400)
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    assert in_full(simulation) == before
    published = read_published(simulation.objects.configmaps[GROUP], settings_of(group))
    assert published is not None
    assert published.next is not None
    assert is_compact(published.next.content)
    assert published.next.text == before.replace("advert_int 0.2\n", "advert_int 0.4\n")
