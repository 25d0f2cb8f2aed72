"""The order in which nodes join, leave and change their addresses."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import parse_address
from kavip.api.cluster import Node
from kavip.memo import Memory
from kavip.reconcile.observed.agentstates import AgentStates, Contact, NodeState
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import Key, KeyKind, timestamp
from kavip.reconcile.rollout.configmap import Revision
from kavip.reconcile.rollout.peers import (
    PATIENCE,
    RECHECK,
    RolloutStatus,
    is_final,
    next_peers,
    rollout_status,
)
from kavip.snapshot import Snapshot
from kavip.vrrp.config import Config, render
from kavip.vrrp.instances import model_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.running import RunningNodes, running_nodes
from tests.reconcile.group.settledgroup import WEB, serving, settled
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, pod, running
from tests.support import build
from tests.support.examples import examples
from tests.vrrp.samples import peer_of

UNICAST: dict[str, Any] = {"unicast_enabled": True, "vrrp_version": 3}
NODES = [f"n{number}" for number in range(1, 8)]
SEEDS = ("lb/edge shop/web",)


def address(node: str, generation: int = 0) -> str:
    """The InternalIP of *node*, another one in each generation."""
    return f"192.0.2.{10 * (1 + generation) + int(node[1:])}"


def text_of(peers: Sequence[Peer]) -> Config:
    """The text for one Service on *peers*."""
    member = Member(key="shop/web", addresses=(parse_address("192.0.2.200"),), created="2026-01-01")
    return render(model_of(build.group(**UNICAST), [member], peers, {"shop/web": 7}))


def status(config: Config, **hashes: str) -> RolloutStatus:
    """The status of nodes with pods that run the *hashes*, while the ConfigMap holds *config*."""
    states = {node: NodeState(config_hash=config_hash) for node, config_hash in hashes.items()}
    return status_of(config, hashes, AgentStates({GROUP: states}))


def status_of(config: Config, pods: Iterable[str], agents: AgentStates) -> RolloutStatus:
    """The status of nodes with *pods* whose *agents* answered."""
    objects = OwnedObjects(pods={GROUP: {node: pod(f"edge-{node}", node) for node in pods}})
    running = Revision(config.text, config.hash)
    return rollout_status(Snapshot(), build.group(), Observed(agents, objects), running=running, now=NOW)


def nodes(*names: str) -> list[Node]:
    """Nodes with their first addresses."""
    return [build.node(name, address(name)) for name in names]


def test_the_wait_for_a_first_answer_is_measured_by_the_monotonic_clock() -> None:
    """A wall clock that jumps when the controller starts does not end the wait."""
    two = text_of([peer_of(each) for each in nodes("n1", "n2")])
    agents = AgentStates(probed_from=NOW - timedelta(days=1), since=10.0, at=12.0)
    assert status_of(two, ["n1", "n2"], agents).behind == {"n1", "n2"}
    assert not status_of(two, ["n1", "n2"], replace(agents, at=10.0 + PATIENCE + 1)).behind


# --- one node -------------------------------------------------------------------------------------------------------
def test_all_join_at_once_where_nothing_runs() -> None:
    """The first text of a group lists every node."""
    assert next_peers(nodes("n2", "n1"), RolloutStatus(), seeds=SEEDS) == tuple(map(peer_of, nodes("n1", "n2")))
    assert next_peers(nodes("n1"), status(Config((), "", "")), seeds=SEEDS) == tuple(map(peer_of, nodes("n1")))


def test_a_new_node_is_a_peer_before_it_sends() -> None:
    """The text lists it as a peer first. It gets a source address and a priority when all others run that text."""
    two = text_of([peer_of(each) for each in nodes("n1", "n2")])
    held = next_peers(nodes("n1", "n2", "n3"), status(two, n1=two.hash, n2=two.hash), seeds=SEEDS)
    first = text_of(held)
    assert "@^n3 192.0.2.13 min_ttl 255" in first.text
    assert "@n3 " not in first.text
    late = status(first, n1=first.hash, n2=two.hash, n3=first.hash)
    assert next_peers(nodes("n1", "n2", "n3"), late, seeds=SEEDS) == held
    ready = status(first, n1=first.hash, n2=first.hash, n3="")
    assert next_peers(nodes("n1", "n2", "n3"), ready, seeds=SEEDS) == tuple(map(peer_of, nodes("n1", "n2", "n3")))


def test_peers_are_computed_once_until_a_node_or_the_text_changes() -> None:
    """With many nodes that is most of a plan; a plan of the same nodes has the same objects."""
    memory, found = Memory(), nodes("n1", "n2")
    two = text_of([peer_of(each) for each in found])
    ready = status(two, n1=two.hash, n2=two.hash)
    peers = next_peers(found, ready, seeds=SEEDS, memory=memory)
    assert is_final(peers, found, ready, memory=memory)
    assert next_peers(found, ready, seeds=SEEDS, memory=memory) is peers
    behind = status(two, n1=two.hash, n2="before")
    assert not behind.is_complete(["n1", "n2"])
    assert next_peers(found, behind, seeds=SEEDS, memory=memory) is peers
    moved = [found[0], build.node("n2", "192.0.2.99")]
    assert not is_final(peers, moved, ready, memory=memory)
    assert next_peers(moved, ready, seeds=SEEDS, memory=memory) == next_peers(moved, ready, seeds=SEEDS)
    assert next_peers(found, ready, seeds=SEEDS, memory=memory) == peers


def test_a_node_that_leaves_stays_a_peer_until_its_pod_has_ended() -> None:
    """It may be master until then. Afterwards the text does not name it."""
    three = text_of([peer_of(each) for each in nodes("n1", "n2", "n3")])
    all_nodes = dict.fromkeys(("n1", "n2", "n3"), three.hash)
    still = next_peers(nodes("n1", "n2"), status(three, **all_nodes), seeds=SEEDS)
    assert text_of(still) == three
    gone = next_peers(nodes("n1", "n2"), status(three, n1=three.hash, n2=three.hash), seeds=SEEDS)
    assert gone == tuple(map(peer_of, nodes("n1", "n2")))


def test_a_new_address_is_a_peer_beside_the_old_one() -> None:
    """Both addresses are peers until the node sends from the new one."""
    before = text_of([peer_of(each) for each in nodes("n1", "n2")])
    wanted = [build.node("n1", address("n1", 1)), *nodes("n2")]
    both = text_of(next_peers(wanted, status(before, n1=before.hash, n2=before.hash), seeds=SEEDS))
    assert "@n1 unicast_src_ip 192.0.2.11\n" in both.text
    assert {"@^n1 192.0.2.11 min_ttl 255", "@^n1 192.0.2.21 min_ttl 255"} <= {*map(str.strip, both.text.split("\n"))}
    moved = text_of(next_peers(wanted, status(both, n1=both.hash, n2=both.hash), seeds=SEEDS))
    assert "@n1 unicast_src_ip 192.0.2.21\n" in moved.text
    assert "@^n1 192.0.2.11 min_ttl 255" in moved.text
    late = text_of(next_peers(wanted, status(moved, n1=both.hash, n2=moved.hash), seeds=SEEDS))
    assert late == moved
    over = next_peers(wanted, status(moved, n1=moved.hash, n2=moved.hash), seeds=SEEDS)
    assert over == tuple(map(peer_of, wanted))


def test_a_node_that_leaves_with_two_addresses_stays_a_peer_with_both() -> None:
    """It may send from both until its pod is gone."""
    before = text_of([peer_of(each) for each in nodes("n1", "n2")])
    wanted = [build.node("n1", address("n1", 1)), *nodes("n2")]
    both = text_of(next_peers(wanted, status(before, n1=before.hash, n2=before.hash), seeds=SEEDS))
    assert text_of(next_peers(nodes("n2"), status(both, n1=both.hash, n2=both.hash), seeds=SEEDS)) == both


@pytest.mark.parametrize(("service", "joined"), [("shop/s0", 3), ("shop/s23", 1)])
def test_several_join_one_by_one_where_priorities_would_cross(service: str, joined: int) -> None:
    """Three nodes join thirty: together, except where two of the thirty would change their order for a Service."""
    names = [f"n{number}" for number in range(1, 34)]
    wanted = nodes(*names)
    thirty = text_of([peer_of(each) for each in wanted[:30]])
    accepted = text_of(next_peers(wanted, status(thirty, **dict.fromkeys(names[:30], thirty.hash)), seeds=SEEDS))
    ready = status(accepted, **dict.fromkeys(names, accepted.hash))
    found = next_peers(wanted, ready, seeds=[f"lb/edge {service}"])
    assert sum(each.is_listed for each in found) == 30 + joined


# --- nodes that must answer before a change ---------------------------------------------------------------------------
def _waits(*, pods: tuple[str, ...], silent: float | None, answered: bool) -> bool:
    two = text_of([peer_of(each) for each in nodes("n1", "n2")])
    accepted = text_of(next_peers(nodes("n1", "n2", "n3"), status(two, n1=two.hash, n2=two.hash), seeds=SEEDS))
    states = {"n1": NodeState(config_hash=accepted.hash)}
    if answered:
        states["n2"] = NodeState(config_hash=two.hash)
    contacts = {} if silent is None or not answered else {"n2": Contact(last=-silent)}
    found = status_of(accepted, pods, AgentStates({GROUP: states}, {GROUP: contacts}, since=-(silent or 0.0)))
    three = nodes("n1", "n2", "n3")
    return not is_final(next_peers(three, found, seeds=SEEDS), three, found)


def test_agents_that_cannot_answer_are_not_waited_for() -> None:
    """Agents that answer, or did so a moment ago, are waited for; long silent ones and nodes without a pod are not."""
    both = ("n1", "n2")
    assert _waits(pods=both, silent=None, answered=True)
    assert _waits(pods=both, silent=None, answered=False)  # a new controller has no answers yet
    assert _waits(pods=both, silent=PATIENCE - 1, answered=True)
    assert not _waits(pods=both, silent=PATIENCE + 1, answered=True)
    assert not _waits(pods=both, silent=PATIENCE + 1, answered=False)
    assert not _waits(pods=("n1",), silent=None, answered=True)


# --- through the plan -------------------------------------------------------------------------------------------------
def test_a_node_joins_through_the_plan() -> None:
    """The node is a peer first, then a full member. The group is reconciled again meanwhile."""
    simulation = settled(build.group(**UNICAST), serving(WEB, "192.0.2.130"))
    assert "@n2 unicast_src_ip" in simulation.text()
    simulation.objects.pods[GROUP] = {each.metadata.key: each for each in (pod("edge-1", "n1"), pod("edge-2", "n2"))}
    _answer(simulation, "n1", "n2")
    simulation.snapshot.put(build.node("n3", "192.0.2.13"))
    plan = simulation.group()
    assert plan.requeue_after == RECHECK
    assert "@^n3 192.0.2.13 " in simulation.text()
    assert "@n3 " not in simulation.text()
    _answer(simulation, "n1")
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert "@n3 " not in simulation.text()
    _answer(simulation, "n1", "n2")
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert "@n3 unicast_src_ip 192.0.2.13" in simulation.text()
    assert simulation.group().requeue_after != RECHECK


def test_a_pod_stuck_in_deletion_does_not_delay_new_nodes() -> None:
    """New nodes wait while the pod of a node that left ends, but not if it is stuck."""
    chosen = {"edge": "yes"}
    simulation = settled(build.group(**UNICAST, node_selector=chosen), serving(WEB, "192.0.2.130"), nodes=0)
    for number in (1, 2):
        simulation.snapshot.put(build.node(f"n{number}", f"192.0.2.{10 + number}", labels=chosen))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    simulation.snapshot.put(build.node("n2", "192.0.2.12"))  # it is ready, but not in the group any more
    simulation.snapshot.put(build.node("n3", "192.0.2.13", labels=chosen))
    last = pod("edge-2", "n2")
    for seconds, is_in in ((0.0, False), (PATIENCE + 1, True)):
        ended = msgspec.structs.replace(last.metadata, deletion_timestamp=timestamp(NOW - timedelta(seconds=seconds)))
        ending = msgspec.structs.replace(last, metadata=ended)
        simulation.objects.pods[GROUP] = {each.metadata.key: each for each in (pod("edge-1", "n1"), ending)}
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        _answer(simulation, "n1")
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        assert ("@n3 unicast_src_ip 192.0.2.13" in simulation.text()) is is_in
        assert "@^n2 192.0.2.12 " in simulation.text()


def _answer(simulation: SimulatedCluster, *names: str) -> None:
    """The agents of these nodes run the current text."""
    meta = simulation.objects.configmaps[GROUP].data or {}
    found = re.search(r'"configHash":"(\w+)"', meta["agent.json"])
    assert found
    for name in names:
        simulation.agents = simulation.agents.with_state(GROUP, name, state=running(found[1]))


# --- every history ----------------------------------------------------------------------------------------------------
class History:
    """Nodes that join, leave, change their address, and read the text at any time."""

    def __init__(self, count: int) -> None:
        self.addresses = dict.fromkeys(NODES[:count], 0)
        self.texts = [text_of([peer_of(each) for each in self.nodes()])]
        self.pods = dict.fromkeys(self.addresses, 0)  # the text that each node runs

    def nodes(self) -> list[Node]:
        """The current nodes of the group."""
        return [build.node(name, address(name, made)) for name, made in sorted(self.addresses.items())]

    def act(self, node: str, what: str) -> None:
        """Change *node* where possible, and plan."""
        match what:
            case "join":
                self.addresses.setdefault(node, 0)
            case "leave" if len(self.addresses) > 1:
                self.addresses.pop(node, None)
            case "move" if node in self.addresses:
                self.addresses[node] += 1
            case "read" if node in self.pods:
                self.pods[node] = len(self.texts) - 1
            case "start" if node in self.addresses:
                self.pods.setdefault(node, len(self.texts) - 1)
            case "stop" if node not in self.addresses:
                self.pods.pop(node, None)
        self.plan()

    def plan(self) -> None:
        """Plan, and write the next text where it differs."""
        last = self.texts[-1]
        found = status(last, **{name: self.texts[text].hash for name, text in self.pods.items()})
        found = replace(found, leaving=found.pods - self.addresses.keys())
        fresh = text_of(next_peers(self.nodes(), found, seeds=SEEDS))
        if fresh != last:
            self.texts.append(fresh)

    def check(self) -> None:
        """
        All senders hear each other, and no node outranks another by one text and is outranked by it by another text.
        """
        runs = {name: running_nodes(self.texts[text].text) for name, text in self.pods.items()}
        speakers = {name: own for name, found in runs.items() if (own := found.source(name, 4))}
        for name, own in speakers.items():
            for other in speakers.keys() - {name}:
                assert own in runs[other].accepted_from(name, 4), f"{other} does not hear {name}"
        self._check_order()

    def _check_order(self) -> None:
        drawn = [_priorities(self.texts[text].text) for text in self.pods.values()]
        for one, other in permutations(drawn, 2):
            for first, second in permutations(one.keys() & other.keys(), 2):
                if one[first] > one[second]:
                    assert other[first] >= one[second], f"{second} would outrank {first}"
                    assert one[first] >= other[second], f"{second} would outrank {first}"


def _priorities(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"@(\S+) priority (\d+)", text)}


EVENTS = st.lists(
    st.tuples(st.sampled_from(NODES), st.sampled_from(["join", "leave", "move", "read", "read", "start", "stop"])),
    max_size=40,
)


@pytest.mark.slow
@examples(60, deadline=None)
@given(st.integers(min_value=1, max_value=4), EVENTS)
def test_all_senders_hear_each_other_in_every_history(count: int, events: list[tuple[str, str]]) -> None:
    """This holds in every history, for any text on each node. After all have read, the text is the final one."""
    history = History(count)
    for node, what in events:
        history.act(node, what)
        history.check()
    for _ in range(2 * len(NODES)):
        for node in sorted({*history.addresses, *history.pods}):
            for what in ("stop", "start", "read"):
                history.act(node, what)
                history.check()
    assert history.texts[-1] == text_of([peer_of(each) for each in history.nodes()])


def test_running_nodes_are_read_from_the_text() -> None:
    """Both families are read, from the first instance of each. A text of another program has none."""
    group = build.group(**UNICAST)
    both = parse_address("192.0.2.200"), parse_address("2001:db8::1")
    members = [
        Member(key="shop/web", addresses=both, created="2026-01-01"),
        Member(key="shop/api", addresses=(parse_address("192.0.2.201"),), created="2026-01-02"),
    ]
    peers = [peer_of(build.node("n1", "192.0.2.11", "2001:db8::11")), peer_of(build.node("n2", "192.0.2.12"))]
    found = running_nodes(render(model_of(group, members, peers, {"shop/web": 7, "shop/api": 8})).text)
    assert found.listed == {"n1", "n2"}
    assert found.sources == {(each.name, own) for each in peers for own in each.addresses} == found.accepted
    assert running_nodes("vrrp_instance VI_1 {\n    interface eth0\n}\n") == RunningNodes()
