"""
Sets of addresses as few spans, ``first-last`` or one address: what ``agent.json`` says about thousands of VIPs.

A set is described within a larger one: a span has no other address *of the larger set* in it. VIPs come from ranges, so
a span holds hundreds of them. The larger set is given in sorted parts, one for each instance: a change of few addresses
then costs a few searches, and not an order of all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from kavip.api.address import Address, read_address

MOST: Final = 128
"""Spans of one set in ``agent.json``: at most 12 KB of a ConfigMap."""

_FIRST: Final = itemgetter(0)
_SEARCH: Final = 8  # addresses that are sorted in the time of one search

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
    is_between, found = _searching(among) if _are_few(spans, among) else _walking(among), list[Span]()
    for each in spans:
        before = found[-1] if found else None
        if before and before.last.family == each.first.family and not is_between(before.last, each.first):
            found[-1] = Span(before.first, max(before.last, each.last))
        else:
            found.append(each)
    return AddressSpans(found)


def held_by(spans: AddressSpans, *, among: Parts) -> Iterator[Address]:
    """The addresses of *among* in *spans*."""
    parts = among if _are_few(spans.spans, among) else (sorted(chain.from_iterable(among)),)
    for first, last in spans.spans:
        for part in parts:
            yield from part[bisect_left(part, first) : bisect_right(part, last)]


def narrowed(spans: AddressSpans, addresses: Sequence[Address]) -> Iterator[Span]:
    """Each of *spans* from the first to the last of the sorted *addresses* in it; those without one are left out."""
    at = 0
    while at < len(addresses):
        after = bisect_right(spans.spans, addresses[at], key=_FIRST)
        if after and addresses[at] <= spans.spans[after - 1].last:
            end = bisect_right(addresses, spans.spans[after - 1].last, at)
            yield Span(addresses[at], addresses[end - 1])
            at = end
        else:
            at = bisect_left(addresses, spans.spans[after].first, at) if after < len(spans.spans) else len(addresses)


def _are_few(spans: Sequence[Span], parts: Parts) -> bool:
    """Whether a search in each of *parts* for each of *spans* takes less time than an order of all addresses."""
    return len(spans) * len(parts) * _SEARCH <= sum(map(len, parts))


def _searching(parts: Parts) -> Callable[[Address, Address], bool]:
    """Whether an address of *parts* lies between two: by searches."""
    return lambda one, other: any(bisect_right(part, one) < bisect_left(part, other) for part in parts)


def _walking(parts: Parts) -> Callable[[Address, Address], bool]:
    """The same for pairs of addresses that come in their order: all of *parts* are passed once."""
    ordered = iter(sorted(chain.from_iterable(parts)))
    ahead = next(ordered, None)

    def is_between(one: Address, other: Address) -> bool:
        nonlocal ahead
        while ahead is not None and ahead <= one:
            ahead = next(ordered, None)
        return ahead is not None and ahead < other

    return is_between


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
