"""
The addresses of a pool as spans of one use each: assigned, in cool-down, reserved, excluded or free.

The work is in proportion to the holders, reservations and ranges, not to the addresses: a /64 costs as much as a /28.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.cli.views.picture.rows import SpanRow, shown
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import Range, subtract
from kavip.snapshot import Snapshot

MOST_SPANS: Final = 1024
"""Spans of a pool that are shown."""
_MOST_AVOIDING: Final = 1 << 16  # addresses of a range


class Use(StrEnum):
    """What an address of a pool is used for."""

    ASSIGNED = "Assigned"
    COOLING = "Cooling"
    RESERVED = "Reserved"
    EXCLUDED = "Excluded"
    FREE = "Free"


class AddressMap(NamedTuple):
    """*counts*: the number of addresses by use. *spans*: in order, of which *omitted* are left out."""

    counts: dict[str, str]
    spans: tuple[SpanRow, ...]
    omitted: int


class _Span(NamedTuple):
    addresses: Range
    use: Use
    holder: str = ""


def address_map(pool: Pool, snapshot: Snapshot) -> AddressMap:
    """The map of *pool*."""
    counts: Counter[Use] = Counter()
    spans: list[SpanRow] = []
    omitted = 0
    for each in _spans(pool, _marked(pool, snapshot)):
        counts[each.use] += each.addresses.size
        if len(spans) < MOST_SPANS:
            spans.append(_row(each))
        else:
            omitted += 1
    return AddressMap({str(use): str(counts[use]) for use in Use}, tuple(spans), omitted)


def _marked(pool: Pool, snapshot: Snapshot) -> dict[Address, tuple[Use, str]]:
    """The addresses with a use of their own; what is assigned is neither in cool-down nor reserved."""
    holders: defaultdict[Address, set[str]] = defaultdict(set)
    for address, terms, is_in_status in snapshot.ledger.claims_in(pool):
        if is_in_status:
            holders[address].add(terms.key)
    found = dict.fromkeys(_avoided(pool), (Use.EXCLUDED, ""))
    found |= {address: (Use.RESERVED, service) for address, service in pool.reservations.items()}
    found |= {each.address: (Use.COOLING, each.service) for each in snapshot.ledger.cooldown.of(pool.name)}
    return found | {address: (Use.ASSIGNED, ", ".join(sorted(keys))) for address, keys in holders.items()}


def _spans(pool: Pool, marked: dict[Address, tuple[Use, str]]) -> Iterator[_Span]:
    ranges = sorted(
        (*((each, Use.FREE) for each in pool.usable), *((each, Use.EXCLUDED) for each in _unusable(pool))),
    )
    addresses = sorted(marked)
    at = 0
    for span, use in ranges:
        family, first, last = span
        while at < len(addresses) and addresses[at] < (family, first):
            at += 1
        while at < len(addresses) and addresses[at] <= (family, last):
            value = addresses[at].value
            if first < value:
                yield _Span(Range(family, first, value - 1), use)
            yield _Span(Range(family, value, value), *marked[addresses[at]])
            first, at = value + 1, at + 1
        if first <= last:
            yield _Span(Range(family, first, last), use)


def _avoided(pool: Pool) -> Iterator[Address]:
    """The addresses that ``avoidBuggyIPs`` skips, in ranges of a size for which a list of addresses is of use."""
    for family, first, last in pool.usable if pool.avoid_buggy else ():
        if family == 4 and last - first < _MOST_AVOIDING:
            found = (value for base in range(first & ~255, last + 1, 256) for value in (base, base + 255))
            yield from (Address(family, value) for value in found if first <= value <= last)


def _unusable(pool: Pool) -> tuple[Range, ...]:
    return subtract(sorted(pool.ranges), pool.usable)


def _row(span: _Span) -> SpanRow:
    family, first, last = span.addresses
    return SpanRow(
        first=str(Address(family, first)),
        last=str(Address(family, last)),
        size=str(span.addresses.size),
        use=str(span.use),
        holder=shown(span.holder),
    )
