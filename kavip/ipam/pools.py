"""
All VIPPools together: which are in force, in which order they are tried, and which one an address belongs to.

Pools that overlap would assign one address twice: the oldest of them stays in force, a younger one is not in force
until one of them is edited. A malformed pool is not in force and does not affect others.
"""

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from kavip.api.address import Address
from kavip.api.pool import PoolInterface, VIPPool
from kavip.api.refusal import Refusal
from kavip.ipam.eligibility import Audiences, in_order
from kavip.ipam.pool import ON_REQUEST, Barred, Pool, parse_pool
from kavip.ipam.ranges import Range, find, first_overlap, merged
from kavip.ipam.request import Request
from kavip.names import Reason


class _Reading(NamedTuple):
    """The result of parsing *wire*."""

    wire: VIPPool
    pool: Pool | None
    findings: tuple[Refusal, ...]

    def is_of(self, wire: VIPPool) -> bool:
        """Whether *wire* is the same, except for its status."""
        mine = self.wire
        return mine is wire or (mine.metadata.age_key == wire.metadata.age_key and mine.spec == wire.spec)


@dataclass(frozen=True, slots=True)
class Pools:
    """
    The pools *in_force*, in the order in which they are tried: by priority, then name.

    *audiences*: of those with ``autoAssign``. *privileged*: the Services for which addresses are reserved.
    *problems*: name -> why that pool is not in force. *known*: all that could be read, in force or not, by age.
    *readings*: name -> the result of parsing, without the ranges *barred*. *unprobed*: the ranges of pools whose
    ``conflictDetection`` is off. *interfaces*: those of pools that name one, by range; also of pools that are not in
    force, so that an edit that breaks a pool moves no VIP. *announcing*: by pool and range, what its VIPs are announced
    with, where that is not the default.
    """

    in_force: tuple[Pool, ...] = ()
    problems: Mapping[str, Refusal] = field(default_factory=dict)
    known: tuple[Pool, ...] = ()
    audiences: Audiences = field(default_factory=lambda: Audiences(()))
    privileged: frozenset[str] = frozenset()
    _named: Mapping[str, Pool] = field(default_factory=dict)
    _ranges: tuple[Range, ...] = ()
    _owners: Mapping[Range, Pool] = field(default_factory=dict)
    barred: tuple[Barred, ...] = ()
    readings: Mapping[str, _Reading] = field(default_factory=dict)
    unprobed: tuple[Range, ...] = ()
    interfaces: Mapping[Range, PoolInterface] = field(default_factory=dict)
    _interface_spans: tuple[Range, ...] = ()
    announcing: Mapping[tuple[str, Range], object] = field(default_factory=dict)

    @classmethod
    def of(cls, wires: Iterable[VIPPool], *, barred: Iterable[Barred] = (), before: "Pools | None" = None) -> "Pools":
        """
        Read *wires*, in any order. *barred*: ranges that no pool may assign.

        Pools that are the same in *before* are not parsed again.
        """
        cuts = tuple(barred)
        remembered = before.readings if before is not None and before.barred == cuts else {}
        read: dict[str, _Reading] = {}
        known: list[Pool] = []
        in_force: list[Pool] = []
        problems: dict[str, Refusal] = {}
        ranges: list[Range] = []
        owners: dict[Range, Pool] = {}
        for wire in sorted(wires, key=lambda wire: wire.metadata.age_key):
            reading = remembered.get(wire.name)
            if reading is None or not reading.is_of(wire):
                reading = _Reading(wire, *parse_pool(wire, barred=cuts))
            read[wire.name] = reading
            pool, findings = reading.pool, reading.findings
            known += [pool] if pool else []
            if pool is None or findings:
                problems[wire.name] = findings[0]
            elif overlaps := _overlaps(pool, ranges, owners):
                problems[wire.name] = overlaps[0]
            else:
                in_force.append(pool)
                owners.update(dict.fromkeys(pool.ranges, pool))
                for span in pool.ranges:
                    insort(ranges, span)
        interfaces = _interfaces(known, ranges, owners)
        in_force.sort(key=lambda pool: pool.rank)
        return cls(
            in_force=tuple(in_force),
            problems=dict(sorted(problems.items())),
            known=tuple(known),
            audiences=Audiences(pool for pool in in_force if pool.auto_assign),
            privileged=frozenset(service for pool in in_force for service in pool.reserved),
            _named={pool.name: pool for pool in in_force},
            _ranges=tuple(ranges),
            _owners=owners,
            barred=cuts,
            readings=read,
            unprobed=tuple(sorted(span for pool in in_force if not pool.detects_conflicts for span in pool.ranges)),
            interfaces=interfaces,
            _interface_spans=tuple(interfaces),
            announcing=_announcing(known, interfaces, owners),
        )

    def get(self, name: str) -> Pool | None:
        """The pool *name*, if it is in force."""
        return self._named.get(name)

    def read(self, name: str) -> Pool | None:
        """The pool *name*, in force or not, if it could be read."""
        return self.readings[name].pool if name in self.readings else None

    def pool_of(self, address: Address) -> Pool | None:
        """The pool whose ranges hold *address*, even if the pool never assigns it; in O(log n)."""
        span = find(self._ranges, address)
        return self._owners[span] if span else None

    def interface_of(self, address: Address) -> PoolInterface | None:
        """The interface that the pool of *address* names; None: it is that of the group; in O(log n)."""
        span = find(self._interface_spans, address) if self._interface_spans else None
        return self.interfaces[span] if span else None

    def differing(self, before: "Pools") -> list[Range]:
        """The ranges whose VIPs have another interface, other routes or other detection than *before*; merged."""
        old, new = before.announcing, self.announcing
        return merged(key[1] for key in old.keys() | new.keys() if old.get(key) != new.get(key))

    def eligible(self, request: Request, namespace_labels: Mapping[str, str] | None) -> tuple[Pool, ...]:
        """The pools that serve *request* without being named, in the order in which they are tried."""
        return in_order(self.audiences.of(request, namespace_labels))

    def are_named_by(self, request: Request) -> bool:
        """Whether *request* names a pool, or an address in one: kavip then assigns even if the platform does."""
        return bool(request.pool) or any(self.pool_of(address) for address in request.wanted)

    def is_chosen(self, pool: Pool, request: Request) -> bool:
        """Whether *request* names *pool* or an address in it."""
        return request.pool == pool.name or any(self.pool_of(each) is pool for each in request.wanted)

    def why_closed(self, pool: Pool, request: Request, namespace_labels: Mapping[str, str] | None) -> str:
        """Why *pool* gives *request* no new address now; "" if it may. Completes "pool X ..."."""
        if not pool.auto_assign and not self.is_chosen(pool, request):
            return ON_REQUEST
        return pool.mismatch(request, namespace_labels)

    def nearest(self, name: str) -> str:
        """The most similar name of a pool, or ""."""
        return next(iter(get_close_matches(name, self._named, 1)), "")

    def check(self, pool: Pool | None, findings: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
        """*findings* of parsing *pool*, and those against storing it beside these, in the place of one of its name."""
        if pool is None:
            return findings
        faulty = [other for name in self.problems if name != pool.name and (other := self.read(name))]
        ranges, owners = self._ranges, self._owners
        if pool.name in self._named:
            ranges = tuple(span for span in ranges if owners[span].name != pool.name)
        found = _overlaps(pool, ranges, owners)
        for other in sorted(faulty, key=lambda each: each.age):  # in force as soon as their own problems are fixed
            found += _overlaps(pool, other.ranges, dict.fromkeys(other.ranges, other))
        return (*findings, *found)


def _interfaces(known: list[Pool], ranges: list[Range], owners: Mapping[Range, Pool]) -> dict[Range, PoolInterface]:
    """The interfaces by range, sorted; where pools that are not in force overlap, the oldest one counts."""
    taken, found = list(ranges), dict[Range, Pool]()
    for pool in known:
        for span in pool.ranges:
            if owners.get(span) is pool or first_overlap(taken, span) is None:
                found[span] = pool
                if span not in owners:
                    insort(taken, span)
    return {
        span: PoolInterface(pool.interface, pool.name, pool.routing is not None)
        for span, pool in sorted(found.items(), key=lambda entry: entry[0])
        if pool.interface
    }


def _announcing(
    known: list[Pool], interfaces: Mapping[Range, PoolInterface], owners: Mapping[Range, Pool]
) -> dict[tuple[str, Range], object]:
    """What the groups of VIPs read of their pools: the interface, whether conflicts are detected, and the routes."""
    found: dict[tuple[str, Range], object] = {}
    for pool in known:
        routes = (pool.routing, pool.ranges) if pool.routing is not None else None
        for span in pool.ranges:
            interface = interfaces.get(span)
            is_unprobed = not pool.detects_conflicts and owners.get(span) is pool
            if interface or routes or is_unprobed:
                found[pool.name, span] = interface, routes, is_unprobed
    return found


def _overlaps(pool: Pool, ranges: tuple[Range, ...] | list[Range], owners: Mapping[Range, Pool]) -> list[Refusal]:
    """One refusal for each range of *pool* that overlaps one of *ranges*."""
    result = []
    for span in pool.ranges:
        rival = first_overlap(ranges, span)
        if rival is not None:
            owner = owners[rival].name
            message = f"spec.addresses: {span} overlaps {rival} of pool {owner}; remove it from one of the two"
            result.append(Refusal(Reason.OVERLAP, message, "spec.addresses"))
    return result
