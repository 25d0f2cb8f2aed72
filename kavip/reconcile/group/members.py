"""
What the plan of a group makes of its Services: whose conditions are wrong, and when to look again.

Thousands of Services say what is so, and will as long as nothing changes that their conditions depend on. Of those that
are served and say so it is remembered, until their object is another or a node says something else of their VIPs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.api.service import Service
from kavip.names import Condition as ConditionType
from kavip.reconcile.group.desired import Roster
from kavip.reconcile.group.status import subjects_of
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.observed.nodes import NO_STATES, ExcludedInstance, NodeState
from kavip.reconcile.plan import ConditionChange, GroupRecord, Key, KeyKind, Unconfirmed
from kavip.reconcile.service import throttle
from kavip.reconcile.service.advertised import advertised_state
from kavip.reconcile.service.programmed import programmed_state
from kavip.reconcile.service.vips import ServiceVIPs, ServingGroup

_SPARE: Final = 1000
_NAME: Final = attrgetter("name")


@dataclass(frozen=True, slots=True)
class Judged:
    """
    The Services whose conditions are *wrong*, or only *reworded*, and when to evaluate the group again.

    *doubts* and *obstructed*: see :class:`~kavip.reconcile.plan.GroupRecord`.
    """

    wrong: tuple[Key, ...]
    reworded: tuple[Key, ...]
    doubts: Mapping[str, Unconfirmed]
    obstructed: frozenset[str]
    waits: tuple[float, ...]


def judge(ground: ServingGroup, roster: Roster, mastership: Mastership, record: GroupRecord) -> Judged:
    """Compare what is so with what Services say; new ones have a plan of their own."""
    problems = dict(roster.model.problems) if roster.model else {}
    problems |= {member.key: member.problem for member in roster.members.troubled if member.problem}
    problems |= roster.left_out
    members = ground.snapshot.parts(ground.key)
    special = problems.keys() | ground.snapshot.ledger.disputing()
    memory = _recalled(ground, mastership, sum(map(len, members.values())))
    before, wrong, reworded, waits, doubts, obstructed = record.unconfirmed, [], [], [], {}, set()
    for service in _unknown(members, memory, special):
        if throttle.stored_condition(service, ConditionType.SERVICE_PROGRAMMED) is None:
            continue
        given = service.ingress_addresses if service.is_load_balancer else ()
        vips = ServiceVIPs.of(service, given, ground, problems=problems)
        found = advertised_state(vips, mastership)
        held = throttle.unconfirmed_of(service, found, before.get(service.key), at=mastership.at)
        if held:
            doubts[service.key] = held
        confirmed, state = throttle.confirmed_state(service, found, held, mastership), programmed_state(vips)
        progress = throttle.programmed_change(service, state, record)
        change = max(progress, throttle.advertised_change(service, confirmed))
        if state.status == "False" and (progress or not state.is_progress):
            obstructed.add(service.key)
        if change is ConditionChange.STATE:
            wrong.append(Key(KeyKind.SERVICE, service.key))
        elif confirmed is None and (wait := throttle.next_confirmation(service, found, held, mastership)):
            waits.append(wait)
        elif change:
            reworded.append(Key(KeyKind.SERVICE, service.key))
        elif confirmed and (state.status, confirmed.status) == ("True", "True") and service.key not in special:
            memory.fine[id(service)] = _Fine(service, vips.addresses)
    for name, subject in subjects_of(ground.group, roster):
        held_by = mastership.master_of(subject)
        if held_by.reason in throttle.UNCERTAIN:
            doubts[name] = throttle.unconfirmed(held_by.reason, before.get(name), at=mastership.at)
        if wait := throttle.next_master_check(held_by, doubts.get(name), mastership):
            waits.append(wait)
    return Judged(
        wrong=tuple(sorted(wrong, key=_NAME)),
        reworded=tuple(sorted(reworded, key=_NAME)),
        doubts=doubts,
        obstructed=frozenset(obstructed),
        waits=tuple(waits),
    )


class _Fine(NamedTuple):
    """A Service that is served, and says so; it is kept, so that no other has its identity."""

    service: Service
    vips: tuple[Address, ...]


class _World(NamedTuple):
    """What conditions depend on beside the Service, its problem, who else has its VIPs and what nodes do with them."""

    has_group: bool
    allowed: tuple[str, ...] | None
    has_nodes: bool
    ready: tuple[str, ...]
    apart: tuple[tuple[str, tuple[ExcludedInstance, ...], frozenset[str]], ...]


class _Memory:
    """The Services of one group that are *fine*, by identity, in the *world* as it was last."""

    world: _World | None = None
    states: Mapping[str, NodeState] = NO_STATES

    def __init__(self) -> None:
        self.fine: dict[int, _Fine] = {}
        self.whole: dict[str, Sequence[Service]] = {}
        """Shares of members that are all fine."""


def _recalled(ground: ServingGroup, mastership: Mastership, members: int) -> _Memory:
    """Those that are fine still; whoever finds more enters them."""
    kept = ground.snapshot.memory(ground.key)
    if not mastership.is_undisputed(kept):
        return _Memory()
    memory, world = kept.state(_Memory), _world(ground)
    if memory.world != world or len(memory.fine) > 2 * members + _SPARE:  # most are Services as they once were
        memory.fine.clear()
        memory.whole.clear()
    elif changed := _changed(memory.states, ground.states):
        memory.fine = {key: each for key, each in memory.fine.items() if changed.isdisjoint(each.vips)}
        memory.whole.clear()
    memory.world, memory.states = world, ground.states
    return memory


def _changed(before: Mapping[str, NodeState], after: Mapping[str, NodeState]) -> set[Address]:
    """The VIPs that one of the same nodes has begun or ceased to run, or to be master of."""
    found: set[Address] = set()
    for node, state in after.items():
        if state is not before[node]:
            found |= (state.runs ^ before[node].runs) | (state.masters ^ before[node].masters)
    return found


def _unknown(members: Mapping[str, Sequence[Service]], memory: _Memory, special: Collection[str]) -> Sequence[Service]:
    """Those that have to be looked at: not those that are fine, unless there is something *special* about them."""
    fine, found = memory.fine, list[Service]()
    for share, some in members.items():
        if special:
            found += [each for each in some if id(each) not in fine or each.key in special]
        elif memory.whole.get(share) is some:
            continue
        elif unknown := [each for each in some if id(each) not in fine]:
            found += unknown
        else:
            memory.whole[share] = some
    return found


def _world(ground: ServingGroup) -> _World:
    group, snapshot, allowed = ground.group, ground.snapshot, None
    if group and group.spec.allowed_namespaces is not None:
        allowed = tuple(sorted(name for name in snapshot.namespaces if snapshot.allows(group, name)))
    apart = tuple((node, state.excluded, state.unready) for node, state in sorted(ground.states.items()))
    return _World(group is not None, allowed, ground.has_nodes, ground.ready, apart)
