"""
The order in which nodes come to know of each other: peers are added before and removed after.

A node that sends what others do not hear, or does not hear what others send, becomes a second master. So a node that
comes is a peer of all others first, and is held out itself (it has no source address, which keepalived calls FAULT)
until they run that text. One that goes stays a peer until its pod is gone. Whoever changes its address does both.

Everything follows from what runs: the text in the ConfigMap, the pods, and which text each agent says that it runs. So
a controller that starts in the middle goes on where the other one stopped. Where nothing runs yet, all join at once.

A node that cannot answer cannot agree, and nobody waits for it for ever: only those are waited for that have a pod and
whose agent answers, or did a moment ago.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from kavip.api.address import BITS, Address
from kavip.api.cluster import Node, Pod
from kavip.api.group import KeepalivedGroup
from kavip.reconcile.observed.nodes import AgentStates, Contact, NodeState
from kavip.reconcile.plan import age
from kavip.snapshot import Snapshot
from kavip.vrrp.members import Peer
from kavip.vrrp.priorities import priorities
from kavip.vrrp.running import RunningNodes, running_nodes

PATIENCE: Final = 30.0
"""Seconds of silence after which an agent is not waited for: longer than it takes to restart."""
RECHECK: Final = 5.0
"""Seconds after which a group in which somebody waits is looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """
    What there is to see when the next text is made.

    Who takes part in the text that is *running* as *config_hash*, the last *states* of the agents and when they were
    *heard*, and the nodes with *pods*. *lingering*: those that have left, but for a pod that still runs there. *at*:
    this moment by the monotonic clock; *asked*: the seconds for which the agents have been asked.
    """

    running: RunningNodes
    config_hash: str
    states: Mapping[str, NodeState]
    heard: Mapping[str, Contact]
    pods: frozenset[str]
    lingering: frozenset[str]
    at: float
    asked: float

    def is_settled(self, nodes: Iterable[str]) -> bool:
        """Whether all who could be master run the text that was written last."""
        return not self.lingering and not any(map(self._lags, nodes))

    def _lags(self, node: str) -> bool:
        if node not in self.pods or node not in self.running.listed:
            return False
        if node not in self.states:
            return self.asked <= PATIENCE
        if self.states[node].config_hash == self.config_hash:
            return False
        return node not in self.heard or self.at - self.heard[node].last <= PATIENCE


def scene_of(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    pods: Mapping[str, Pod],
    agents: AgentStates,
    *,
    text: str,
    config_hash: str,
    now: datetime,
) -> Scene:
    """The scene of *group*, whose ConfigMap holds *text* under *config_hash*."""
    staying = snapshot.keeping_nodes(group)
    leaving = [pod for pod in pods.values() if pod.spec.node_name not in staying and not _is_lost(pod, now)]
    return Scene(
        running=running_nodes(text),
        config_hash=config_hash,
        states=agents.states_of(group.key),
        heard=agents.contacts_of(group.key),
        pods=frozenset(pod.spec.node_name for pod in pods.values()),
        lingering=frozenset(
            pod.spec.node_name
            for pod in leaving
            if (node := snapshot.nodes.get(pod.spec.node_name)) is not None and node.is_ready
        ),
        at=agents.at,
        asked=agents.at - agents.since,
    )


def peers_of(nodes: Iterable[Node], scene: Scene | None, *, seeds: Iterable[str]) -> tuple[Peer, ...]:
    """
    The nodes as they may take part next, by name; without a *scene*, or where nothing runs, as they are.

    *seeds* are what the priorities of the group's instances are drawn from.
    """
    wanted = _wanted(nodes, scene)
    if scene is None or not scene.running.listed:
        return tuple(wanted[name] for name in sorted(wanted))
    running = scene.running
    asked = [name for name, peer in wanted.items() if peer.ipv4 or peer.ipv6]
    is_settled = scene.is_settled(asked)
    listed = running.listed
    if is_settled:
        known = {name for name, peer in wanted.items() if name in listed or _is_heard(peer, running)}
        listed = _step(listed, known | (listed & scene.pods), seeds)
    return tuple(
        _peer(name, wanted.get(name), running, is_listed=name in listed, is_settled=is_settled)
        for name in sorted(listed | wanted.keys())
    )


def _is_lost(pod: Pod, now: datetime) -> bool:
    """Whether *pod* should be gone for long: whatever it waits for, its containers have ended."""
    end = pod.metadata.deletion_timestamp
    return end is not None and age(end, now) > PATIENCE


def is_over(nodes: Iterable[Node], peers: Iterable[Peer], scene: Scene | None = None) -> bool:
    """Whether *peers* are what *nodes* want to be in the *scene*."""
    return sorted(_wanted(nodes, scene).values(), key=_name) == sorted(peers, key=_name)


def _wanted(nodes: Iterable[Node], scene: Scene | None) -> dict[str, Peer]:
    """
    The nodes as they are to take part at last, by name.

    One that speaks already goes on from where it does as long as it has that address, in whatever order a cloud
    provider lists them, and while it is said to have none.
    """
    running = scene.running if scene else RunningNodes()
    return {
        (name := node.metadata.name): Peer(name, _speaking(node, 4, running), _speaking(node, 6, running))
        for node in nodes
    }


def _speaking(node: Node, family: int, running: RunningNodes) -> Address | None:
    first, source = node.internal_ip(family), running.source(node.metadata.name, family)
    return source if source and (first is None or source in node.host_addresses) else first


def _name(peer: Peer) -> str:
    return peer.name


def _is_heard(peer: Peer, running: RunningNodes) -> bool:
    """Whether the others hear *peer* wherever it is to send."""
    return all(
        (address := peer.address(family)) is None or address in running.heard_at(peer.name, family)
        for family in running.families()
    )


def _peer(name: str, wanted: Peer | None, running: RunningNodes, *, is_listed: bool, is_settled: bool) -> Peer:
    sources: dict[int, Address | None] = {}
    heard: set[Address] = set()
    for family in BITS:
        source, known = running.source(name, family), running.heard_at(name, family)
        if wanted is None:
            sources[family] = source
            heard |= known
            continue
        new = wanted.address(family)
        may_send = new is None or family not in running.families() or (is_settled and new in known)
        sources[family] = (new if may_send or new == source else source) if is_listed else None
        is_over = is_settled and is_listed and source == new
        heard |= ({new} if new else set()) | (frozenset() if is_over else known)
    further = tuple(sorted(heard - set(sources.values())))
    return Peer(name, sources[4], sources[6], further, is_listed)


def _step(current: frozenset[str], target: set[str], seeds: Iterable[str]) -> frozenset[str]:
    """
    The nodes that may be listed next.

    All of *target*, unless nodes with the old and with the new text would then disagree on who leads whom; the coming
    or going of one node alone never makes them.
    """
    changed = sorted(current ^ target)
    if len(changed) > 1 and not all(_agree(seed, current, target) for seed in seeds):
        return current ^ {changed[0]}
    return frozenset(target)


def _agree(seed: str, current: Iterable[str], target: Iterable[str]) -> bool:
    before, after = dict(priorities(seed, current)), dict(priorities(seed, target))
    both = sorted(before.keys() & after.keys(), key=lambda node: (-before[node], -after[node]))
    return all(
        min(before[higher], after[higher]) >= max(before[lower], after[lower]) for higher, lower in pairwise(both)
    )
