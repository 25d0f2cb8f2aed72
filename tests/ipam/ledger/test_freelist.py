"""The lowest free address."""

from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import Address
from kavip.ipam.ledger.freelist import FreeList
from kavip.ipam.ranges import Range, is_buggy, parse_range

SPANS = (Range(4, 250, 258), Range(4, 300, 303))
ALL = [value for span in SPANS for value in range(span.first, span.last + 1)]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(ALL))), st.booleans())
def test_lowest_is_that_of_a_set(events: list[tuple[bool, int]], avoid: bool) -> None:
    """After any history of taking and freeing, the lowest free value and the count are those of a plain set."""
    model = {value for value in ALL if not (avoid and is_buggy(Address(4, value)))}
    space, usable = FreeList(SPANS, avoid_buggy=avoid), frozenset(model)
    for is_taken, value in events:
        if value in usable:
            (space.take if is_taken else space.free)(value)
            (model.discard if is_taken else model.add)(value)
        assert (space.lowest(), space.available) == (min(model, default=None), len(model))
        assert (space.lowest_of(3), space.available) == (sorted(model)[:3], len(model))


def test_memory_does_not_grow_with_time() -> None:
    """Freeing and taking the same values a thousand times leaves no trace in the heap."""
    space = FreeList((parse_range("10.0.0.0/24"),), avoid_buggy=False)
    first = parse_range("10.0.0.0/24").first
    for value in range(first, first + 256):
        space.lowest()
        space.take(value)
    assert space.lowest() is None
    for _ in range(1000):
        for value in (first + 7, first + 3):
            space.free(value)
        for value in (first + 3, first + 7):
            space.take(value)
    assert len(space._freed) <= 2
    assert space.lowest() is None


def test_a_wide_range_costs_nothing() -> None:
    """A /8 of IPv6 with its last address taken still hands out its first."""
    span = parse_range("2000::/8")
    space = FreeList((span,), avoid_buggy=True)
    space.take(span.last)
    assert (space.lowest(), space.available) == (span.first, 2**120 - 1)
