"""
Finds the Services of a group whose conditions are outdated, a batch at a time.

Other keys get a turn between two batches, so the Snapshot may change there. The comparison goes on with the members,
the nodes and the agents' answers that it began with: each such change enqueues the group, or the Service, again.

A group has thousands of Services, whose conditions stay right until something changes that they depend on. So those
that are served and report it are skipped (:mod:`~kavip.reconcile.group.served`).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final

from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.names import ConditionType, Reason
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.group.served import Answers, Circumstances, ServedServices, allowed_namespaces, labels_of
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.plan import ConditionChange, GroupRecord, Key, KeyKind, Unconfirmed
from kavip.reconcile.service import throttle
from kavip.reconcile.service.advertised import advertised_state
from kavip.reconcile.service.programmed import programmed_state
from kavip.reconcile.service.vips import ServiceVIPs, ServingGroup
from kavip.snapshot.membership import part_of

BATCH: Final = 50
"""Services that are compared in one step: about 5 ms."""
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
        """Compare nothing before the first step."""
        self._serving, self._mastership, self._record = serving, mastership, record
        self._problems = _problems(desired)
        self._special = self._problems.keys() | serving.snapshot.ledger.disputing()
        self._members = serving.snapshot.parts(serving.key)
        self._served = serving.snapshot.memory(serving.key).state(ServedServices)
        self._circumstances = Circumstances.of(serving)
        self._claimed = {each.address for state in serving.states.values() for each in state.claimed}

    def __iter__(self) -> Iterator[Outdated]:
        """Compare about :data:`BATCH` Services in each step."""
        answers = Answers(self._serving.states, self._mastership.silent, self._serving.ready.names)
        self._served.begin(self._circumstances, answers, self._members.keys())
        for services in self._batches():
            yield self._compare(services)

    def _batches(self) -> Iterator[Sequence[Service]]:
        """The Services to compare: those that are not known as served, and the special ones."""
        special = defaultdict[str, list[str]](list)
        for key in sorted(self._special):
            special[part_of(key)].append(key)
        waiting = list[Service]()
        for share, members in self._members.items():
            others = self._served.others(share, members)
            waiting += others
            if share in special:
                waiting += _among(members, set(special[share]).difference(each.key for each in others))
            for _ in range(len(waiting) // BATCH):
                yield waiting[:BATCH]
                del waiting[:BATCH]
        if waiting:
            yield waiting

    def _compare(self, services: Sequence[Service]) -> Outdated:
        serving, mastership, record = self._serving, self._mastership, self._record
        outdated, reworded, waits, obstructed = list[Key](), list[Key](), list[float](), set[str]()
        unconfirmed = dict[str, Unconfirmed]()
        now, then = (allowed_namespaces(serving), labels_of(serving)), self._circumstances
        is_as_before = now == (then.allowed, then.labels)
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
                and is_as_before
                and mastership.is_certain(vips.addresses)
                and self._claimed.isdisjoint(vips.addresses)  # the machine may be a node's, and another one's later
            ):
                self._served.add(service, vips.addresses)
        return Outdated(
            services=tuple(outdated),
            reworded=tuple(reworded),
            unconfirmed=unconfirmed,
            obstructed=frozenset(obstructed),
            requeue_after=min(waits, default=None),
        )


def _among(members: Sequence[Service], keys: Iterable[str]) -> Iterator[Service]:
    """The Services with *keys* that are in *members*, which are sorted by key."""
    for key in sorted(keys):
        at = bisect_left(members, key, key=_KEY)
        yield from (each for each in members[at : at + 1] if each.key == key)


def _problems(desired: Desired) -> Mapping[str, Refusal]:
    """By Service, why it is not served as it requests."""
    model = desired.configuration.model
    problems = dict(model.problems) if model else {}
    problems |= {member.key: member.problem for member in desired.members.troubled if member.problem}
    return {**problems, **desired.excluded}
