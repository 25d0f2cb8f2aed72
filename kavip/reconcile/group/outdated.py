"""
Finds the Services of a group whose conditions are outdated, a batch at a time.

Other keys get a turn between two batches, so the Snapshot may change there. The comparison goes on with the members,
the nodes and the agents' answers that it began with: each such change enqueues the group, or the Service, again. A
group has thousands of Services, whose conditions stay right until something changes that they depend on. Services
that are served and report it are remembered, and skipped until their object changes or a node reports a change of their
VIPs. The Snapshot keeps that memory (:mod:`kavip.memo`).
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.memo import change_of
from kavip.names import ConditionType, Reason
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.observed.agentstates import NO_STATES, ExcludedInstance, NodeState
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.plan import ConditionChange, GroupRecord, Key, KeyKind, Unconfirmed
from kavip.reconcile.service import throttle
from kavip.reconcile.service.advertised import advertised_state
from kavip.reconcile.service.programmed import programmed_state
from kavip.reconcile.service.vips import ServiceVIPs, ServingGroup
from kavip.snapshot.membership import part_of

BATCH: Final = 100
"""Services that are compared in one step: 5 to 10 ms."""
_SPARE: Final = 1000
_NAME: Final = attrgetter("name")
_KEY: Final = attrgetter("key")


@dataclass(frozen=True, slots=True)
class Outdated:
    """
    The *services* whose conditions are outdated; *reworded*: those of which nothing differs but messages.

    *unconfirmed* and *obstructed*: see :class:`~kavip.reconcile.plan.GroupRecord`. *requeue_after*: after how many
    seconds to reconcile the group again, because one of the Services may be outdated then.
    """

    services: tuple[Key, ...] = ()
    reworded: tuple[Key, ...] = ()
    unconfirmed: Mapping[str, Unconfirmed] = field(default_factory=dict, hash=False)
    obstructed: frozenset[str] = frozenset()
    requeue_after: float | None = None

    @classmethod
    def merge(cls, batches: Sequence["Outdated"]) -> "Outdated":
        """What all *batches* of one comparison found."""
        return cls(
            services=tuple(sorted(chain.from_iterable(each.services for each in batches), key=_NAME)),
            reworded=tuple(sorted(chain.from_iterable(each.reworded for each in batches), key=_NAME)),
            unconfirmed=dict(chain.from_iterable(each.unconfirmed.items() for each in batches)),
            obstructed=frozenset(chain.from_iterable(each.obstructed for each in batches)),
            requeue_after=min((each.requeue_after for each in batches if each.requeue_after is not None), default=None),
        )


class Comparison:
    """
    Compares the conditions of the Services with what is desired and observed. Iterate over it once.

    *record*: of the last plan. Services without conditions are skipped: they have a plan of their own.
    """

    def __init__(self, serving: ServingGroup, desired: Desired, mastership: Mastership, record: GroupRecord) -> None:
        """Find the Services to compare, and compare none before the first step."""
        self._serving, self._mastership, self._record = serving, mastership, record
        self._problems = _problems(desired)
        self._special = self._problems.keys() | serving.snapshot.ledger.disputing()
        members = serving.snapshot.parts(serving.key)
        self._memory = _refresh_memory(serving, mastership, sum(map(len, members.values())))
        self._services = _unknown(members, self._memory, self._special)
        self._allowed = _allowed(serving)

    def __iter__(self) -> Iterator[Outdated]:
        """Compare :data:`BATCH` Services in each step."""
        for first in range(0, len(self._services), BATCH):
            if _allowed(self._serving) != self._allowed:
                self._memory.circumstances = None  # what follows is true of other circumstances
            yield self._compare(self._services[first : first + BATCH])

    def _compare(self, services: Sequence[Service]) -> Outdated:
        serving, mastership, record = self._serving, self._mastership, self._record
        outdated, reworded, waits, obstructed = list[Key](), list[Key](), list[float](), set[str]()
        unconfirmed = dict[str, Unconfirmed]()
        for service in services:
            if throttle.stored_condition(service, ConditionType.SERVICE_PROGRAMMED) is None:
                continue
            given = service.ingress_addresses if service.is_load_balancer else ()
            vips = ServiceVIPs.of(service, given, serving, problems=self._problems)
            found = advertised_state(vips, mastership)
            held = throttle.unconfirmed_of(service, found, record.unconfirmed.get(service.key), at=mastership.at)
            if held:
                unconfirmed[service.key] = held
            confirmed, state = throttle.confirmed_state(service, found, held, mastership), programmed_state(vips)
            progress = throttle.programmed_change(service, state, record)
            change = max(progress, throttle.advertised_change(service, confirmed))
            if state.status == "False" and (progress or not state.is_progress):
                obstructed.add(service.key)
            if change is ConditionChange.STATE:
                outdated.append(Key(KeyKind.SERVICE, service.key))
            elif confirmed is None and (wait := throttle.next_confirmation(service, found, held, mastership)):
                waits.append(wait)
            elif change:
                reworded.append(Key(KeyKind.SERVICE, service.key))
            elif (
                confirmed
                and (state.status, confirmed.reason) == ("True", Reason.MASTER)  # endpoints may change with any slice
                and service.key not in self._special
                and mastership.strangers.keys().isdisjoint(vips.addresses)  # these may count later
            ):
                self._memory.served[id(service)] = _Served(service, vips.addresses)
        return Outdated(
            services=tuple(outdated),
            reworded=tuple(reworded),
            unconfirmed=unconfirmed,
            obstructed=frozenset(obstructed),
            requeue_after=min(waits, default=None),
        )


def _problems(desired: Desired) -> Mapping[str, Refusal]:
    """By Service, why it is not served as it requests."""
    model = desired.configuration.model
    problems = dict(model.problems) if model else {}
    problems |= {member.key: member.problem for member in desired.members.troubled if member.problem}
    return {**problems, **desired.excluded}


# --- the memory -------------------------------------------------------------------------------------------------------
class _Served(NamedTuple):
    """A Service that is served and reports it. The object is kept, so that no other object gets its identity."""

    service: Service
    vips: tuple[Address, ...]


class _Circumstances(NamedTuple):
    """What conditions depend on, besides the Service, its problem, the holders of its VIPs, and the nodes' masters."""

    has_group: bool
    allowed: tuple[str, ...] | None
    has_nodes: bool
    ready: tuple[str, ...]
    apart: tuple[tuple[str, tuple[ExcludedInstance, ...], frozenset[str], frozenset[str]], ...]
    routed: tuple[tuple[str, frozenset[str]], ...]


class _Memory:
    """The Services of one group that are *served*, by identity, under the *circumstances* of the last plan."""

    circumstances: _Circumstances | None = None
    states: Mapping[str, NodeState] = NO_STATES

    def __init__(self) -> None:
        self.served: dict[int, _Served] = {}
        self.seen: dict[str, tuple[tuple[Service, ...], tuple[Service, ...]]] = {}
        """The shares of members that were read last, and those of their Services that were not served."""


def _refresh_memory(serving: ServingGroup, mastership: Mastership, members: int) -> _Memory:
    """The Services that are still served; the caller adds those that it finds."""
    kept = serving.snapshot.memory(serving.key)
    if not mastership.is_undisputed(kept):
        return _Memory()
    memory, circumstances = kept.state(_Memory), _circumstances(serving)
    if memory.circumstances != circumstances or len(memory.served) > 2 * members + _SPARE:  # most are old objects
        memory.served.clear()
        memory.seen.clear()
    elif changed := _changed(memory.states, serving.states):
        memory.served = {key: each for key, each in memory.served.items() if changed.isdisjoint(each.vips)}
        memory.seen.clear()
    memory.circumstances, memory.states = circumstances, serving.states
    return memory


def _changed(before: Mapping[str, NodeState], after: Mapping[str, NodeState]) -> set[Address]:
    """
    The VIPs that a node has started or stopped to run, or to be master of, or to hear claims on.

    Both have the same nodes.
    """
    found: set[Address] = set()
    for node, state in after.items():
        if state is not before[node]:
            found |= (state.runs ^ before[node].runs) | (state.masters ^ before[node].masters)
            found |= {each.address for each in {*state.claimed} ^ {*before[node].claimed}}
    return found


def _unknown(
    members: Mapping[str, tuple[Service, ...]], memory: _Memory, special: Collection[str]
) -> Sequence[Service]:
    """The Services to compare: those that are not known as served, and the *special* ones."""
    served, found = memory.served, list[Service]()
    for share, some in members.items():
        known, rest = memory.seen.get(share, ((), ()))
        if known is not some:
            change = change_of(known, some)
            gone = set(map(id, change.left))
            rest = tuple(each for each in (*rest, *change.come) if id(each) not in gone)
        elif not rest:
            continue
        rest = tuple(each for each in rest if id(each) not in served)
        memory.seen[share] = some, rest
        found += rest
    for key in sorted(special):
        there = members.get(part_of(key), ())
        at = bisect_left(there, key, key=_KEY)
        found += [each for each in there[at : at + 1] if each.key == key and id(each) in served]
    return found


def _circumstances(serving: ServingGroup) -> _Circumstances:
    states = sorted(serving.states.items())
    apart = tuple((node, state.excluded, state.unready, state.missing) for node, state in states)
    routed = tuple((node, state.routed) for node, state in states if state.fails_to_route)
    is_there = serving.group is not None
    return _Circumstances(is_there, _allowed(serving), serving.has_nodes, serving.ready, apart, routed)


def _allowed(serving: ServingGroup) -> tuple[str, ...] | None:
    """The namespaces that the group allows; None: all of them."""
    group, snapshot = serving.group, serving.snapshot
    if group is None or group.spec.allowed_namespaces is None:
        return None
    return tuple(sorted(name for name in snapshot.namespaces if snapshot.allows(group, name)))
