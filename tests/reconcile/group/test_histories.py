"""
Deaths, returns, drains and silences in any order: the VIPs of a Service stay spread, and silence moves nothing.

keepalived is an oracle here: of the nodes that are up, the one with the highest priority in its own text is master.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.agent.config import blocks
from kavip.api.service import Service
from kavip.reconcile.observed.agentstates import AgentStates, Contact, InstanceState, NodeState
from kavip.vrrp.priorities import STEP_DOWN
from kavip.vrrp.running import running_nodes
from kavip.vrrp.spread import most
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build
from tests.support.examples import examples

EVENTS = ("dies", "returns", "is drained", "is undrained", "fails a check", "passes its checks", "is silent")
MOST_ROUNDS = 20
SPREAD = {names.SPREAD_ANNOTATION: "true"}
_PRIORITY = re.compile(r"^    @(\S+) priority (\d+)$", re.MULTILINE)


@lru_cache(maxsize=64)
def priorities_of(text: str) -> Mapping[str, Mapping[str, int]]:
    """The priority of each node, by instance."""
    found = {each.name: _PRIORITY.findall(each.text) for each in blocks.split(text) if each.name}
    return {name: {node: int(number) for node, number in drawn} for name, drawn in found.items()}


class Nodes:
    """
    The nodes of a group, with the controller's plans.

    *up*: the nodes that run, *failing*: those that fail a check, *silent*: those whose agents do not answer. *texts*:
    the text and the hash that each node runs.
    """

    def __init__(self, number: int, *services: Service) -> None:
        self.simulation = SimulatedCluster(cluster(build.pool(), build.group(), *services, nodes=number))
        self.names = tuple(sorted(self.simulation.snapshot.nodes))
        pods = [pod(f"edge-{name}", name) for name in self.names]
        self.simulation.objects.pods[GROUP] = {each.metadata.key: each for each in pods}
        self.simulation.group()
        self.simulation.group()
        self.up, self.failing, self.silent = {*self.names}, set[str](), set[str]()
        self._reports: dict[str, NodeState] = {}
        self.texts = dict.fromkeys(self.names, self._published())

    def change(self, event: str, name: str) -> None:
        """Let *event* happen to the node of that *name*; the last one that is up stays up."""
        match event:
            case "dies" if len(self.up) > 1:
                self.up.discard(name)
            case "returns" if name not in self.up:
                self.up.add(name)
                self.texts[name] = self._published()
            case "is drained" | "is undrained":
                found = self.simulation.snapshot.nodes[name]
                value = {names.DRAIN_ANNOTATION: "true"} if event == "is drained" else None
                metadata = msgspec.structs.replace(found.metadata, annotations=value)
                self.simulation.snapshot.put(msgspec.structs.replace(found, metadata=metadata))
            case "fails a check":
                self.failing.add(name)
            case "passes its checks":
                self.failing.discard(name)

    def settle(self, late: str) -> None:
        """Plan, and let the nodes run what is published, *late* after the others, until nothing changes."""
        for _ in range(MOST_ROUNDS):
            before = self.text, self.masters()
            for some in (self.up - {late}, self.up):
                self._report()
                self.simulation.group()
                self.texts |= dict.fromkeys(some, self._published())
            self._report()
            self.simulation.group()
            self.simulation.later(1)
            if before == (self.text, self.masters()):
                return
        raise AssertionError("not settled")

    @property
    def text(self) -> str:
        """The published text."""
        return self.simulation.text()

    def masters(self) -> dict[str, str]:
        """The master of each instance."""
        found: dict[str, tuple[int, str]] = {}
        for name in sorted(self.up):
            for instance, number in self._priorities(name).items():
                found[instance] = max(found.get(instance, (0, "")), (number, name))
        return {instance: name for instance, (_, name) in found.items()}

    def bound(self, vips: int) -> int:
        """How many of *vips* a node may have: those that are up, well and undrained share them, if there are any."""
        eligible = self.up - self.failing - running_nodes(self.text).drained.keys()
        return most(vips, len(eligible)) if eligible else vips

    def _priorities(self, name: str) -> dict[str, int]:
        lower = STEP_DOWN if name in self.failing else 0
        text, _ = self.texts[name]
        return {instance: numbers[name] - lower for instance, numbers in priorities_of(text).items()}

    def _published(self) -> tuple[str, str]:
        return self.text, self.simulation.snapshot.groups[GROUP].status.config_hash

    def _report(self) -> None:
        """Let the agents of the nodes that are up, and not silent, answer."""
        masters, agents = self.masters(), AgentStates()
        for name in self.names:
            is_silent = name not in self.up or name in self.silent
            if not is_silent:
                roles = (
                    InstanceState(each, 1, 4, "MASTER" if masters[each] == name else "BACKUP", 1, priority=number)
                    for each, number in self._priorities(name).items()
                )
                self._reports[name] = NodeState(config_hash=self.texts[name][1], instances=tuple(roles))
            contact = Contact(last=-1000.0, is_silent=True) if is_silent else Contact()
            agents = agents.with_contact(GROUP, name, contact=contact)
            if name in self._reports:
                agents = agents.with_state(GROUP, name, state=self._reports[name])
        self.simulation.agents = agents


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], int, list[tuple[str, str, str]]]:
    """The VIPs of each Service, the number of nodes, and events, each with its node and one that is late."""
    number = draw(st.integers(2, 7))
    name = st.sampled_from([f"n{each}" for each in range(1, number + 1)])
    events = st.lists(st.tuples(st.sampled_from(EVENTS), name, name), min_size=1, max_size=8)
    return draw(st.lists(st.integers(2, 6), min_size=1, max_size=2)), number, draw(events)


@examples(100)
@given(histories(), st.integers(0, 10**6))
def test_vips_stay_spread(history: tuple[list[int], int, list[tuple[str, str, str]]], seed: int) -> None:
    """After each event no node has more VIPs than it must; at the end of all events the first text is back."""
    counts, number, events = history
    services = {
        f"shop/s{seed}-{index}": [f"192.0.2.{130 + 10 * index + each}" for each in range(count)]
        for index, count in enumerate(counts)
    }
    objects = [build.service(key, holds=vips, group=GROUP, annotations=SPREAD) for key, vips in services.items()]
    nodes = Nodes(number, *objects)
    nodes.settle("n1")
    first = nodes.text
    for event, name, late in events:
        before = nodes.text
        nodes.change(event, name)
        nodes.silent = {name, late} if event == "is silent" else set()
        nodes.settle(late)
        assert event != "is silent" or nodes.text == before
        masters = nodes.masters()
        for key, vips in services.items():
            held = Counter(masters[f"{key}/{vip}"] for vip in vips)
            assert max(held.values()) <= nodes.bound(len(vips)), (event, name, held)
    for name in nodes.names:
        for event in ("returns", "is undrained", "passes its checks"):
            nodes.change(event, name)
    nodes.settle("n1")
    assert nodes.text == first
