"""
Sets of addresses as few spans, ``first-last`` or one address: what ``agent.json`` says about thousands of VIPs.

A set is described within a larger one: a span has no other address *of the larger set* in it. VIPs come from ranges, so
a span holds hundreds of them. The larger set is given in sorted parts, one for each instance: a change of few addresses
then costs a few searches, and not an order of all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from kavip.api.address import Address, read_address

MOST: Final = 128
"""Spans of one set in ``agent.json``: at most 12 KB of a ConfigMap."""

_FIRST: Final = itemgetter(0)

Parts = Sequence[Sequence[Address]]
"""Addresses in parts, each of them sorted."""


class Span(NamedTuple):
    """The addresses from *first* to *last*, both included and of one family."""

    first: Address
    last: Address

    def __str__(self) -> str:
        """``first-last``, or the only address."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class AddressSpans:
    """A set of addresses, given by sorted and disjoint *spans*."""

    __slots__ = ("spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        """Sort *spans*; they are disjoint."""
        self.spans = tuple(sorted(spans))

    def __contains__(self, address: Address) -> bool:
        """Whether one of the spans holds *address*."""
        found = bisect_right(self.spans, address, key=_FIRST)
        return found > 0 and address <= self.spans[found - 1].last

    def __eq__(self, other: object) -> bool:
        """Whether *other* has the same spans."""
        return isinstance(other, AddressSpans) and self.spans == other.spans

    def __hash__(self) -> int:
        """By the spans."""
        return hash(self.spans)

    def __bool__(self) -> bool:
        """Whether it holds any address."""
        return bool(self.spans)

    def addresses(self, *, most: int) -> tuple[Address, ...] | None:
        """All addresses that it holds; None: these are more than *most*."""
        if sum(last.value - first.value + 1 for first, last in self.spans) > most:
            return None
        return tuple(
            Address(first.family, value) for first, last in self.spans for value in range(first.value, last.value + 1)
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """The spans as text."""
        return tuple(map(str, self.spans))


def spans_of(addresses: Iterable[Address], *, among: Parts) -> AddressSpans:
    """The spans of *addresses*, which are part of *among*; no span holds another address of *among*."""
    return joined([Span(each, each) for each in sorted(set(addresses))], among=among)


def joined(spans: Sequence[Span], *, among: Parts) -> AddressSpans:
    """*spans*, which are sorted, as fewer ones: two become one if no address of *among* lies between them."""
    parts, found = _merged(among, len(spans)), list[Span]()
    for each in spans:
        before = found[-1] if found else None
        if before and before.last.family == each.first.family and not _is_between(before.last, each.first, parts):
            found[-1] = Span(before.first, max(before.last, each.last))
        else:
            found.append(each)
    return AddressSpans(found)


def held_by(spans: AddressSpans, *, among: Parts) -> Iterator[Address]:
    """The addresses of *among* in *spans*."""
    parts = _merged(among, len(spans.spans))
    for first, last in spans.spans:
        for part in parts:
            yield from part[bisect_left(part, first) : bisect_right(part, last)]


def narrowed(spans: Iterable[Span], addresses: Sequence[Address]) -> Iterator[Span]:
    """Each of *spans* from the first to the last of the sorted *addresses* in it; those without one are left out."""
    for each in spans:
        first, end = bisect_left(addresses, each.first), bisect_right(addresses, each.last)
        if first < end:
            yield Span(addresses[first], addresses[end - 1])


def _is_between(one: Address, other: Address, parts: Parts) -> bool:
    """Whether an address of *parts* lies between *one* and *other*."""
    return any(bisect_right(part, one) < bisect_left(part, other) for part in parts)


def _merged(parts: Parts, times: int) -> Parts:
    """*parts* as they are, or as one part if that is faster for so many searches in each of them."""
    is_faster = times * len(parts) > sum(map(len, parts))
    return (sorted(chain.from_iterable(parts)),) if is_faster else parts


def runs_of(addresses: Iterable[Address]) -> AddressSpans:
    """The spans of *addresses*, with nothing else in them."""
    found: list[Span] = []
    for address in sorted(set(addresses)):
        if found and found[-1].last == (address.family, address.value - 1):
            found[-1] = Span(found[-1].first, address)
        else:
            found.append(Span(address, address))
    return AddressSpans(found)


def widened(spans: AddressSpans, most: int = MOST) -> AddressSpans:
    """*spans* if there are at most *most*; otherwise the smallest gaps between them are closed, so it holds more."""
    found = list(spans.spans)
    if (surplus := len(found) - most) <= 0:
        return spans
    gaps = sorted(
        (after.first.value - before.last.value, number)
        for number, (before, after) in enumerate(pairwise(found))
        if before.last.family == after.first.family
    )
    for _, number in sorted(gaps[:surplus], key=itemgetter(1), reverse=True):
        found[number : number + 2] = [Span(found[number].first, found[number + 1].last)]
    return AddressSpans(found)


def read_spans(texts: Iterable[str]) -> AddressSpans:
    """The readable ones of *texts*; what overlaps an earlier one is left out."""
    found = sorted(filter(None, map(_read, texts)))
    kept: list[Span] = []
    for each in found:
        if not kept or each.first > kept[-1].last:
            kept.append(each)
    return AddressSpans(kept)


def _read(text: str) -> Span | None:
    first_text, dash, last_text = text.partition("-")
    first, last = read_address(first_text), read_address(last_text if dash else first_text)
    if first is None or last is None or first.family != last.family or last < first:
        return None
    return Span(first, last)
