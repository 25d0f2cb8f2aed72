"""The cheapest assignment within limited room."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kavip.vrrp.flow import Item, Network, Room, assign
from tests.support.examples import examples

PLACES = ("a", "b", "c")
ITEMS = st.lists(
    st.builds(Item, st.sampled_from([4, 6]), st.dictionaries(st.sampled_from(PLACES), st.integers(0, 9), min_size=1)),
    max_size=5,
)
ROOMS = st.fixed_dictionaries(
    {
        place: st.builds(Room, st.integers(0, 3), st.fixed_dictionaries({4: st.integers(0, 2), 6: st.integers(0, 2)}))
        for place in PLACES
    }
)


def fits(items: list[Item], places: tuple[str, ...], room: dict[str, Room]) -> bool:
    """Whether each place has room for its items."""
    return all(
        sum(chosen == place for chosen in places) <= room[place].total
        and all(
            sum(chosen == place and item.kind == kind for item, chosen in zip(items, places, strict=True)) <= limit
            for kind, limit in room[place].kinds.items()
        )
        for place in PLACES
    )


def cost(items: list[Item], places: tuple[str, ...]) -> int:
    """The sum of the costs."""
    return sum(item.costs[place] for item, place in zip(items, places, strict=True))


@examples(200)
@given(ITEMS, ROOMS)
def test_cheapest_of_all(items: list[Item], room: dict[str, Room]) -> None:
    """The assignment fits, costs as little as the best of all, and is missing only if there is none."""
    every = [places for places in product(*(item.costs for item in items)) if fits(items, places, room)]
    found = assign(items, room)
    if found is None:
        assert not every
    else:
        assert fits(items, found, room)
        assert cost(items, found) == min(cost(items, places) for places in every)


def test_no_items() -> None:
    """Nothing to assign is an assignment."""
    assert assign([], {}) == ()


def test_an_item_gives_way() -> None:
    """An item leaves its best place where another one has no choice."""
    items = [Item(4, {"a": 0, "b": 1}), Item(4, {"a": 0})]
    assert assign(items, {"a": Room(1, {}), "b": Room(1, {})}) == ("b", "a")


def test_steps_are_bounded() -> None:
    """32 items that all want the same order of 32 places need at most 600 steps for each of their edges."""
    network = Network()
    items = [Item(4, {f"p{place:02}": place * (1 + item) for place in range(32)}) for item in range(32)]
    assert assign(items, {f"p{place:02}": Room(1, {}) for place in range(32)}, network) is not None
    assert network.steps < 600 * len(items) * 32
