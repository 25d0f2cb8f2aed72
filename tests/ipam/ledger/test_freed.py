"""Which freed address gives way: that of the namespace that has most, whatever the order of what was freed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import Address
from kavip.ipam.ledger.freed import FreedAddresses

MOST = 6


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc"), st.booleans())))
def test_the_namespace_with_most_loses_its_oldest(changes: list[tuple[int, str, bool]]) -> None:
    """A namespace with no more than its share never loses an address; of equal ones the oldest address goes."""
    freed, model = FreedAddresses(), dict[int, str]()
    for value, namespace, is_freed in changes:
        model.pop(value, None)
        if is_freed:
            model[value] = namespace
            freed.add(Address(4, value), f"{namespace}/web")
        else:
            freed.discard(Address(4, value))
        surplus = freed.surplus(MOST)
        assert (surplus is None) == (len(model) <= MOST)
        if surplus is not None:
            counts = Counter(model.values())
            most = [each for each, owner in model.items() if counts[owner] == max(counts.values())]
            assert surplus.value == most[0]
            freed.discard(surplus)
            del model[surplus.value]
        assert [(address.value, service) for address, service in freed.items()] == [
            (value, f"{namespace}/web") for value, namespace in model.items()
        ]
