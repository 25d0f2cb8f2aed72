"""
What ``agent.json`` says about address conflicts: which VIPs are new, which pools are switched off, who the nodes are.

A VIP is new if no published text had it and no agent runs it; so an upgrade makes none new, and a lost ConfigMap only
those that no node runs. It stays in the list until an agent runs it *and* the ConfigMap is written for another reason,
or the list is long and has not changed for :data:`SHORTEN`: a write for each VIP that runs would cost each node a
change of its mount. A node that starts meanwhile asks for a VIP that is announced, and hears that a node has it.

There are two exceptions. A VIP that runs and that another machine claims leaves the list at once, so that it is known
after a restart of all agents that it was announced before. And hardware addresses are written at once if a node waits
for them: it hears a machine of which only the controller knows that it is a node.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.agentconfig import DetectionConfig, decode_config
from kavip.api.group import KeepalivedGroup
from kavip.api.spans import MOST, AddressSpans, Parts, Span, held_by, joined, narrowed, read_spans, spans_of, widened
from kavip.ipam.ranges import Range, find
from kavip.memo import Memory
from kavip.reconcile.group.configuration import GroupConfiguration
from kavip.reconcile.group.existing import Existing
from kavip.reconcile.observed.agentstates import AgentStates, ClaimedAddress, NodeState
from kavip.reconcile.observed.foreignclaims import hardware_of
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import PublishedList
from kavip.snapshot import Snapshot
from kavip.vrrp.instances import Instance
from kavip.vrrp.running import RunningInstance, running_instances

MOST_HARDWARE: Final = 768
"""Hardware addresses in ``agent.json``, which have 15 KB. Agents recognise their unicast peers without them."""

SHORTEN: Final = 60.0
"""Seconds after its last change until a long list is shortened by a write of its own."""
LONG: Final = 32
"""VIPs of a list that is not long: a node that starts asks for them at once, while it tests its configuration."""

_NOTHING: Final = DetectionConfig()


@dataclass(frozen=True)
class Detection:
    """
    Address conflicts of one group.

    *new*: the VIPs that no text had before. *vips*: all of its VIPs, those of each instance sorted. *unprobed*: the
    ranges of switched-off pools; *off*: the spans of VIPs in them. *published*: what the ConfigMap says now; *listed*:
    its list of VIPs, *at* this time. *hardware*: what the nodes report; *are_complete*: all of them do.
    """

    new: frozenset[Address]
    vips: Parts
    unprobed: tuple[Range, ...]
    off: tuple[Span, ...]
    published: DetectionConfig
    listed: PublishedList
    at: float
    states: Mapping[str, NodeState]
    hardware: tuple[str, ...]
    are_complete: bool

    @property
    def kept(self) -> DetectionConfig:
        """What is written if nothing else of the ConfigMap changes: as little as possible."""
        published, is_listed = self.published, self._listed.__contains__
        new, contested = self._probed(self.new), {each.address for each in self._claimed if each.is_held}
        is_right = not self._is_too_long and all(map(is_listed, new)) and not any(map(is_listed, contested))
        awaited = {each.hardware for each in self._claimed}.difference(published.hardware_addresses)
        return DetectionConfig(
            probe=published.probe if is_right else self.fresh.probe,
            off=self._off,
            hardware_addresses=published.hardware_addresses
            if awaited.isdisjoint(self.hardware)
            else self.fresh.hardware_addresses,
        )

    @cached_property
    def fresh(self) -> DetectionConfig:
        """What is written with another change."""
        pending = _not_run(self._listed_vips, self.states) if self._listed else frozenset[Address]()
        probe = spans_of(self._probed(self.new | pending), among=self.vips)
        known = self.hardware if self.are_complete else (*self.hardware, *self.published.hardware_addresses)
        return DetectionConfig(
            probe=widened(probe, MOST).texts,
            off=self._off,
            hardware_addresses=tuple(sorted(tuple(dict.fromkeys(known))[:MOST_HARDWARE])),
        )

    @property
    def examined_in(self) -> float:
        """After how many seconds it is examined whether the list is too long; infinite if it is short in any case."""
        return self.listed.since + SHORTEN - self.at if self._listed.addresses(most=LONG) is None else inf

    @property
    def examined(self) -> PublishedList:
        """The list for the record of the plan. Each of its VIPs is looked up once a minute, and not in each plan."""
        if self.examined_in > 0:
            return self.listed
        return replace(self.listed, since=self.at if self._is_too_long else inf)

    @cached_property
    def _is_too_long(self) -> bool:
        """Whether the list is to be shortened now; few VIPs that are far apart are a span of many addresses."""
        return self.examined_in <= 0 and len(self._listed_vips) > LONG

    @cached_property
    def _listed_vips(self) -> frozenset[Address]:
        """The VIPs that the published list has: mostly one or two of thousands."""
        return frozenset(held_by(self._listed, among=self.vips))

    def _probed(self, vips: Collection[Address]) -> Collection[Address]:
        """*vips* without those of switched-off pools."""
        return [each for each in vips if not find(self.unprobed, each)] if self.unprobed else vips

    @cached_property
    def _off(self) -> tuple[str, ...]:
        return joined(self.off, among=self.vips).texts[:MOST]

    @cached_property
    def _listed(self) -> AddressSpans:
        return read_spans(self.published.probe)

    @cached_property
    def _claimed(self) -> tuple[ClaimedAddress, ...]:
        return tuple(each for state in self.states.values() for each in state.claimed)


def published_detection(existing: Existing) -> DetectionConfig:
    """What the ConfigMap of the group says now."""
    data = (existing.configmap.data if existing.configmap and existing.published else None) or {}
    config = decode_config(data.get(names.AGENT_KEY, ""))
    return (config.conflict_detection if config else None) or _NOTHING


def detection_of(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    configuration: GroupConfiguration,
    memory: Memory,
) -> Detection:
    """The detection for *configuration*, after what is *existing*."""
    agents, listed = observed.agents, observed.records.group(group.key).listed
    states, models = agents.states_of(group.key), (configuration.model, configuration.final)
    instances = {each.name: each for model in models if model for each in model.instances}
    candidates, published = _candidates(instances, existing, memory), published_detection(existing)
    unprobed = snapshot.parsed_pools.unprobed
    ranges = memory.last(_spans, "", unprobed)
    off = [memory.last(_off, each.name, each.ordered, ranges) for each in instances.values() if unprobed]
    others = [group.key, *sorted(agents.states.keys() - {group.key})]
    return Detection(
        new=_not_run(candidates, states),
        vips=tuple(each.ordered for each in instances.values()),
        unprobed=unprobed,
        off=tuple(sorted(chain.from_iterable(off))),
        published=published,
        listed=listed.after(published.probe, at=agents.at),
        at=agents.at,
        states=states,
        hardware=hardware_of(agents, others),
        are_complete=bool(states) and all(node in states and states[node].hardware for node in _nodes(existing)),
    )


def _candidates(instances: Mapping[str, Instance], existing: Existing, memory: Memory) -> frozenset[Address]:
    """The VIPs of *instances* that no text has that nodes may run; most instances have none."""
    published = existing.published
    running = [running_instances(published.current.content, memory)] if published else []
    if published and published.next:
        running.append(running_instances(published.next.content, memory.part("next")))
    found = frozenset[Address]().union(
        *(
            memory.last(_missing, each.name, each.carried, tuple(known.get(each.name) for known in running))
            for each in instances.values()
        )
    )
    if not found:
        return found
    old = frozenset(address for each in existing.takeover.instances for address in each.addresses)
    return _without(found, chain((old,), (each.carried for text in running for each in text.values())))


def _not_run(vips: frozenset[Address], states: Mapping[str, NodeState]) -> frozenset[Address]:
    """Those of *vips* that no node runs."""
    return _without(vips, (state.runs for state in states.values()))


def _without(few: frozenset[Address], others: Iterable[frozenset[Address]]) -> frozenset[Address]:
    """*few* addresses without all *others*: each difference reads the smaller set, which a union does not."""
    for each in others:
        few -= each
    return few


def _missing(wanted: frozenset[Address], running: tuple[RunningInstance | None, ...]) -> frozenset[Address]:
    return wanted.difference(*(each.carried for each in running if each))


def _spans(ranges: Iterable[Range]) -> AddressSpans:
    return AddressSpans(Span(Address(family, first), Address(family, last)) for family, first, last in ranges)


def _off(vips: Sequence[Address], unprobed: AddressSpans) -> tuple[Span, ...]:
    """The spans of *vips* in those *unprobed*."""
    return tuple(narrowed(unprobed, vips))


def _nodes(existing: Existing) -> set[str]:
    """The nodes with a pod of the group."""
    return {pod.spec.node_name for pod in existing.pods} - {""}


# --- instances that no node has loaded --------------------------------------------------------------------------------
def without_unloaded(
    running: Mapping[str, RunningInstance], existing: Existing, agents: AgentStates, group: KeepalivedGroup
) -> Mapping[str, RunningInstance]:
    """
    *running* without the instances that no node has loaded, because another machine has their anchor.

    Their anchor may change without a switch: no two nodes can disagree about it.
    """
    states, contacts = agents.states_of(group.key), agents.contacts_of(group.key)
    withheld = {each.address for state in states.values() for each in state.claimed if not each.is_held}
    if not withheld:
        return running
    silent = any(node not in states or (node in contacts and contacts[node].is_silent) for node in _nodes(existing))
    run = frozenset[Address]().union(*(state.runs for state in states.values()))
    unloaded = {
        name
        for name, each in running.items()
        if each.identity.anchor.address in withheld and run.isdisjoint(each.carried)
    }
    return running if silent else {name: each for name, each in running.items() if name not in unloaded}
