"""
The order in which the nodes of a group join and leave: peers are added before, and removed after.

A node becomes a second master if the others do not hear what it sends, or if it does not hear what they send. So a new
node is first listed as a peer of all others. Until they run that text, the node itself takes no part: it has no source
address, which keepalived reports as FAULT. A node that leaves stays a peer until its pod is gone. A node that changes
its address does both.

Everything follows from what runs: the text in the ConfigMap, the pods, and the text that each agent reports. So a new
controller continues where the last one stopped. If nothing runs yet, all nodes join at once.

The controller waits only for nodes that can answer: those with a pod whose agent answers, or did so a moment ago.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.api.address import BITS, Address
from kavip.api.cluster import Node, Pod
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import age
from kavip.reconcile.rollout.configmap import Revision
from kavip.snapshot import Snapshot
from kavip.vrrp.drain import Turns, drained_among
from kavip.vrrp.members import Peer, behind_of, turns_of
from kavip.vrrp.preference import levels_of, preference_of
from kavip.vrrp.priorities import NO_HOMES, priorities
from kavip.vrrp.running import RunningNodes, running_nodes

PATIENCE: Final = 30.0
"""Seconds of silence after which the controller no longer waits for an agent: longer than its restart takes."""
RECHECK: Final = 5.0
"""Seconds after which a group is reconciled again while a node waits to join or to leave."""

Lacking = Mapping[str, frozenset[str]]
"""By node, the interfaces that it lacks."""

NOTHING_LACKING: Final[Lacking] = MappingProxyType({})
_NO_INTERFACES: Final = frozenset[str]()
_NAME: Final = attrgetter("name")
_NO_PARTICIPANTS: Final = RunningNodes()
_DEFAULTS: Final = GroupSpec()


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """
    How far the nodes are with the text that was published last.

    *running*: the participants in that text. *pods*: the nodes with a pod. *behind*: the nodes that do not run the text
    yet and for which the controller waits. *leaving*: ready nodes outside the group whose pod still runs.
    """

    running: RunningNodes = _NO_PARTICIPANTS
    pods: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()

    def is_complete(self, nodes: Iterable[str]) -> bool:
        """Whether every node that could be master runs the text; *nodes* are those that take part."""
        return not self.leaving and self.behind.isdisjoint(nodes)


def rollout_status(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    running: Revision | None,
    now: datetime,
) -> RolloutStatus:
    """How far the nodes of *group* are with the revision that is *running*."""
    participants = running_nodes(running.content) if running else RunningNodes(drained=drained_before(group))
    if running is None:
        running = Revision("", "")
    pods = observed.objects.pods_of(group.key)
    nodes = frozenset(pod.spec.node_name for pod in pods)
    outside = {pod.spec.node_name for pod in pods if not _is_overdue(pod, now)} - snapshot.keeping_nodes(group)
    return RolloutStatus(
        running=participants,
        pods=nodes,
        behind=frozenset(
            node for node in nodes & participants.listed if _is_behind(node, group.key, running.hash, observed.agents)
        ),
        leaving=frozenset(name for name in outside if (node := snapshot.nodes.get(name)) is not None and node.is_ready),
    )


def drained_before(group: KeepalivedGroup) -> Turns:
    """The nodes that the last text drained, as far as known without it."""
    return {name: turn for turn, name in enumerate(group.status.drained_nodes or (), 1)}


class _Order(NamedTuple):
    """What the priorities of the nodes depend on."""

    homes: Mapping[str, str]
    levels: Mapping[str, int]
    behind: Mapping[str, int]

    def priorities(self, seed: str, nodes: Iterable[str]) -> dict[str, int]:
        """The priorities of *nodes* for the instance with *seed*."""
        home = self.homes.get(seed, "")
        return dict(priorities(seed, nodes, preference=self.levels, behind=self.behind, home=home))


def next_peers(
    nodes: Iterable[Node],
    status: RolloutStatus,
    *,
    seeds: Iterable[str],
    homes: Mapping[str, str] = NO_HOMES,
    spec: GroupSpec = _DEFAULTS,
    lacking: Lacking = NOTHING_LACKING,
    memory: Memory = KEEPS_NOTHING,
) -> tuple[Peer, ...]:
    """
    The peers of the next text, by name: *nodes* as far as they may join, leave or move now.

    *seeds* are the strings from which the priorities of the group's instances are derived, *homes* the homes of some of
    them. *spec* is the group's, which says which nodes it prefers, and what drains one. A node that leaves stays
    drained, but is not preferred any more. *lacking*: by node, the interfaces that it lacks. *memory*: of the group.
    """
    running = status.running
    final = memory.last(_final_peers, "", tuple(nodes), running, spec, lacking)
    if not running.listed:
        return tuple(final[name] for name in sorted(final))
    is_complete = status.is_complete(name for name, peer in final.items() if peer.ipv4 or peer.ipv6)
    listed = running.listed
    if is_complete:
        known = {name for name, peer in final.items() if name in listed or _is_accepted(peer, running)}
        order = _Order(homes, levels_of(final.values()), behind_of(final.keys(), turns_of(final.values())))
        listed = _next_listed(listed, known | (listed & status.pods), seeds, order)
    return memory.same("peers", memory.last(_peers, "", final, running, frozenset(listed), is_complete))


def is_final(
    peers: Iterable[Peer],
    nodes: Iterable[Node],
    status: RolloutStatus,
    spec: GroupSpec = _DEFAULTS,
    *,
    lacking: Lacking = NOTHING_LACKING,
    memory: Memory = KEEPS_NOTHING,
) -> bool:
    """Whether *peers* are the final state of *nodes*, of a group with *spec*."""
    final = memory.last(_final_peers, "", tuple(nodes), status.running, spec, lacking)
    return memory.last(_are_equal, "", final, tuple(peers))


def _is_overdue(pod: Pod, now: datetime) -> bool:
    """
    Whether *pod* should have ended long ago: its containers have ended, and only its deletion waits for something.
    """
    end = pod.metadata.deletion_timestamp
    return end is not None and age(end, now) > PATIENCE


def _is_behind(node: str, group: str, config_hash: str, agents: AgentStates) -> bool:
    """Whether the controller waits for *node*, which runs a pod. The times are of the monotonic clock."""
    state = agents.states_of(group).get(node)
    if state is None:
        return agents.at - agents.since <= PATIENCE
    if state.config_hash == config_hash:
        return False
    contact = agents.contacts_of(group).get(node)
    return contact is None or agents.at - contact.last <= PATIENCE


def _final_peers(
    nodes: tuple[Node, ...], running: RunningNodes, spec: GroupSpec, lacking: Lacking
) -> Mapping[str, Peer]:
    """
    The final participation of the nodes, by name.

    A node keeps its current source address while it has that address. The order in which a cloud provider lists
    addresses does not matter, nor does an API server that reports none for a while.
    """
    drained = drained_among(nodes, spec, running.drained)
    return {
        (name := node.metadata.name): Peer(
            name,
            _source(node, 4, running),
            _source(node, 6, running),
            preference=preference_of(spec.placement, node.metadata.labels),
            drain_turn=drained.get(name, 0),
            lacking=lacking.get(name, _NO_INTERFACES),
        )
        for node in nodes
    }


def _source(node: Node, family: int, running: RunningNodes) -> Address | None:
    first, source = node.internal_ip(family), running.source(node.metadata.name, family)
    return source if source and (first is None or source in node.host_addresses) else first


def _is_accepted(peer: Peer, running: RunningNodes) -> bool:
    """Whether the other nodes accept adverts of *peer* from every address that it will send from."""
    return all(
        (address := peer.address(family)) is None or address in running.accepted_from(peer.name, family)
        for family in running.families
    )


def _are_equal(final: Mapping[str, Peer], peers: tuple[Peer, ...]) -> bool:
    return sorted(final.values(), key=_NAME) == sorted(peers, key=_NAME)


def _peers(
    final: Mapping[str, Peer], running: RunningNodes, listed: frozenset[str], is_complete: bool
) -> tuple[Peer, ...]:
    return tuple(
        _peer(name, final.get(name), running, is_listed=name in listed, is_complete=is_complete)
        for name in sorted(listed | final.keys())
    )


def _peer(name: str, final: Peer | None, running: RunningNodes, *, is_listed: bool, is_complete: bool) -> Peer:
    sources: dict[int, Address | None] = {}
    accepted: set[Address] = set()
    for family in BITS:
        source, known = running.source(name, family), running.accepted_from(name, family)
        if final is None:
            sources[family] = source
            accepted |= known
            continue
        new = final.address(family)
        may_send = new is None or family not in running.families or (is_complete and new in known)
        sources[family] = (new if may_send or new == source else source) if is_listed else None
        is_done = is_complete and is_listed and source == new
        accepted |= ({new} if new else set()) | (frozenset() if is_done else known)
    further = tuple(sorted(accepted - set(sources.values())))
    if final is not None:
        preference, turn, lacking = final.preference, final.drain_turn, final.lacking
    else:
        preference, turn, lacking = 0, running.drained.get(name, 0), running.lacking_of(name)
    return Peer(name, sources[4], sources[6], further, is_listed, preference, turn, lacking)


def _next_listed(current: frozenset[str], target: set[str], seeds: Iterable[str], order: _Order) -> frozenset[str]:
    """
    The nodes that the next text may list.

    All of *target* at once, unless nodes with the old and nodes with the new text would then disagree about the order
    of their priorities. One node that joins or leaves alone never causes that.
    """
    changed = sorted(current ^ target)
    if len(changed) > 1 and not all(_agree(seed, current, target, order) for seed in seeds):
        return current ^ {changed[0]}
    return frozenset(target)


def _agree(seed: str, current: Iterable[str], target: Iterable[str], order: _Order) -> bool:
    """Whether the two texts put no pair of nodes into opposite order."""
    before, after = (order.priorities(seed, nodes) for nodes in (current, target))
    both = sorted(before.keys() & after.keys(), key=lambda node: (-before[node], -after[node]))
    return all(
        min(before[higher], after[higher]) >= max(before[lower], after[lower]) for higher, lower in pairwise(both)
    )
