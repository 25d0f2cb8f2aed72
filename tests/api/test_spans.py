"""Spans: sets of addresses in few words."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api import spans
from kavip.api.address import Address, parse_address
from kavip.api.spans import AddressSpans, Span, held_by, joined, narrowed, read_spans, runs_of, spans_of, widened

addresses = st.builds(Address, st.sampled_from([4, 6]), st.integers(1, 300))


@given(st.sets(addresses), st.lists(st.sets(addresses), max_size=4))
def test_spans_hold_no_other_address_of_the_larger_set(chosen: set[Address], parts: list[set[Address]]) -> None:
    """They survive being written and read; each holds addresses of one family, and there are as few as possible."""
    among, every = [sorted(part) for part in parts], sorted(chosen.union(*parts))
    found = spans_of(chosen, among=among)
    assert [each for each in every if each in found] == sorted(chosen)
    assert read_spans(found.texts) == found
    assert all(each.first.family == each.last.family for each in found.spans)
    for one, other in pairwise(found.spans):
        between = every[every.index(one.last) + 1 : every.index(other.first)]
        assert between or one.last.family != other.first.family
    assert set(held_by(found, among=among)) == chosen.intersection(chain(*among))


@given(st.sets(addresses), st.lists(st.sets(addresses), max_size=4), st.sampled_from([0, 1 << 20]))
def test_a_search_and_a_walk_find_the_same(chosen: set[Address], parts: list[set[Address]], search: int) -> None:
    """Which of the two is faster depends on the numbers."""
    among, usual = [sorted(part) for part in parts], spans_of(chosen, among=[sorted(part) for part in parts])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "_SEARCH", search)
        found = spans_of(chosen, among=among)
        assert found == usual
        assert set(held_by(found, among=among)) == chosen.intersection(chain(*among))


def test_few_searches_need_no_order_of_all() -> None:
    """A few new VIPs among thousands, and few VIPs in thousands of ranges."""
    comparisons = 0

    class Counted(Address):
        def __lt__(self, other: Address) -> bool:  # type: ignore[override]
            nonlocal comparisons
            comparisons += 1
            return tuple(self) < tuple(other)

    among = [[Counted(4, number) for number in range(part, 16_000, 16)] for part in range(16)]
    spans_of([Address(4, 40), Address(4, 9_000)], among=among)
    assert 0 < comparisons < 1_000
    comparisons = 0
    ranges = AddressSpans(Span(Address(4, first), Address(4, first + 2)) for first in range(0, 16_000, 4))
    assert len(list(narrowed(ranges, [Counted(4, 5), Counted(4, 9_000)]))) == 2
    assert 0 < comparisons < 1_000


@given(st.lists(st.sets(addresses), max_size=4), st.lists(st.integers(1, 301), max_size=6, unique=True))
def test_the_spans_of_ranges(parts: list[set[Address]], ends: list[int]) -> None:
    """Joined, those of all parts are the spans of all addresses in the ranges."""
    among = [sorted(part) for part in parts]
    ranges = [Span(Address(4, first), Address(4, last - 1)) for first, last in pairwise(sorted(ends))][::2]
    parted = sorted(chain.from_iterable(narrowed(AddressSpans(ranges), part) for part in among))
    inside = {each for each in chain(*among) if each in AddressSpans(ranges)}
    assert joined(parted, among=among) == spans_of(inside, among=among)


@given(st.sets(addresses))
def test_runs_hold_nothing_else(chosen: set[Address]) -> None:
    """Consecutive addresses are one run."""
    found = runs_of(chosen)
    every = {Address(family, value) for family in (4, 6) for value in range(302)}
    assert {each for each in every if each in found} == chosen
    assert len(found.spans) == sum(Address(each.family, each.value - 1) not in chosen for each in chosen)


@given(st.sets(addresses), st.integers(2, 20))
def test_widened_spans_hold_at_least_the_same(chosen: set[Address], most: int) -> None:
    """They are few, and of one family each."""
    found = widened(runs_of(chosen), most)
    assert all(each in found for each in chosen)
    assert len(found.spans) <= most
    assert all(each.first.family == each.last.family for each in found.spans)


def test_the_smallest_gaps_are_closed() -> None:
    """What is far apart stays apart."""
    spans = read_spans(["192.0.2.1", "192.0.2.3", "192.0.2.9-192.0.2.10", "2001:db8::1"])
    assert widened(spans, 3).texts == ("192.0.2.1-192.0.2.3", "192.0.2.9-192.0.2.10", "2001:db8::1")


def test_the_addresses_of_a_few_spans() -> None:
    """They are not listed if they are too many."""
    spans = read_spans(("192.0.2.1", "192.0.2.8-192.0.2.9", "2001:db8::1"))
    listed = spans.addresses(most=4)
    assert listed is not None and [str(each) for each in listed] == [
        "192.0.2.1",
        "192.0.2.8",
        "192.0.2.9",
        "2001:db8::1",
    ]
    assert spans.addresses(most=3) is None


def test_what_cannot_be_read_is_left_out() -> None:
    """Another version or another program may have written it."""
    bad = ["", "192.0.2.1-", "192.0.2.9-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.6", "x-y"]
    texts = [*bad, "192.0.2.5-192.0.2.7"]
    assert read_spans(texts).texts == ("192.0.2.5-192.0.2.7",)
    assert parse_address("192.0.2.6") in read_spans(texts)
    assert not AddressSpans() and parse_address("192.0.2.6") not in AddressSpans()
