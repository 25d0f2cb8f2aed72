"""Results are kept by name, compared by value, and bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.memo import KEEPS_NOTHING, TURNS, Change, Memory, Recent, change_of, index_of, recent
from tests.support.examples import examples


class Counter:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def join(self, name: str, words: tuple[str, ...]) -> str:
        """Join *name* and *words*, and count the call."""
        self.calls.append(name)
        return " ".join((name, *words))


def test_a_function_is_called_again_only_for_other_arguments() -> None:
    """Equal arguments give the kept result, whichever objects they are; each name has a result of its own."""
    counter, memory = Counter(), Memory(most=2)

    def joined(name: str, words: tuple[str, ...]) -> str:
        return memory.last(join, name, name, words)

    join = counter.join
    assert joined("a", ("b", "c")) == joined("a", tuple("bc")) == "a b c"
    assert joined("b", ()) == "b"
    assert joined("a", ("b", "c")) == "a b c"
    assert counter.calls == ["a", "b"]
    assert joined("a", ("c",)) == "a c"
    assert joined("c", ()) == "c"  # one name too many: the oldest is dropped
    assert joined("a", ("c",)) == "a c"
    assert counter.calls == ["a", "b", "a", "c", "a"]


def test_equal_values_are_one_object() -> None:
    """The newest value counts; a memory that keeps nothing returns what it gets."""
    memory, first, equal, other = Memory(), (1, [2]), (1, [2]), (1, [3])
    assert memory.same("a", first) is memory.same("a", equal) is first
    assert memory.same("a", other) is other
    assert memory.same("a", equal) is equal
    assert KEEPS_NOTHING.same("a", first) is first


def test_functions_do_not_share_results() -> None:
    """The same name and arguments give each function its own result, and each memory keeps its own."""
    memory = Memory()
    assert (memory.last(min, "a", (1, 2)), memory.last(max, "a", (1, 2))) == (1, 2)
    counter = Counter()
    for each in (memory, Memory(), memory):
        each.last(counter.join, "a", "a", ())
    assert counter.calls == ["a", "a"]


def test_a_state_is_made_once() -> None:
    """Each memory has one object of a class."""
    memory = Memory()
    assert memory.state(Counter) is memory.state(Counter)
    assert memory.state(Counter) is not Memory().state(Counter)


def test_a_state_that_is_not_used_is_dropped() -> None:
    """One that is used stays."""
    memory = Memory()
    used, unused = memory.state(Counter), memory.state(dict)
    for _ in range(2 * TURNS):
        memory.begin_turn()
        assert memory.state(Counter) is used
    assert memory.state(dict) is not unused


def test_a_part_replaces_no_results_of_the_whole() -> None:
    """Two uses of one function and name, with other arguments each, are both kept."""
    counter, memory = Counter(), Memory()
    join = counter.join
    for _ in range(2):
        assert memory.last(join, "a", "a", ("b",)) == "a b"
        assert memory.part("next").last(join, "a", "a", ("c",)) == "a c"
    assert counter.calls == ["a", "a"]
    assert KEEPS_NOTHING.part("next") is KEEPS_NOTHING


@pytest.mark.parametrize("part", ["", "next"])
def test_results_that_are_not_used_are_dropped(part: str) -> None:
    """Those that each turn uses stay, however many turns there are."""
    counter, whole = Counter(), Memory()
    memory = whole.part(part) if part else whole
    join = counter.join

    def joined(items: tuple[str, ...]) -> int:
        counter.calls.append("joined")
        return len(items)

    items = tuple(map(str, range(5 * TURNS)))
    for turn in range(5 * TURNS):
        whole.begin_turn()
        longer = memory.follow(joined, lambda before, change: before + len(change.come), "", items[: turn + 1])
        assert longer == turn + 1
        memory.last(join, "stays", "stays", ())
        if turn < 2:
            memory.last(join, "leaves", "leaves", ())
    assert counter.calls == ["joined", "stays", "leaves"]
    for _ in range(2):
        memory.last(join, "leaves", "leaves", ())
        assert counter.calls == ["joined", "stays", "leaves", "leaves"]


def test_the_memory_that_keeps_nothing_is_the_default() -> None:
    """Every call is made, and every state is new."""
    counter = Counter()
    for _ in range(2):
        assert KEEPS_NOTHING.last(counter.join, "a", "a", ()) == "a"
    assert counter.calls == ["a", "a"]
    assert KEEPS_NOTHING.state(Counter) is not KEEPS_NOTHING.state(Counter)


OBJECTS = [object() for _ in range(12)]
SEQUENCES = st.lists(st.sampled_from(OBJECTS), unique=True).map(lambda found: tuple(sorted(found, key=OBJECTS.index)))


@examples(100)
@given(SEQUENCES, SEQUENCES)
def test_a_change_has_what_is_in_one_sequence_only(before: tuple[object, ...], after: tuple[object, ...]) -> None:
    """Objects are compared by identity, and stay in order."""
    left, come = change_of(before, after)
    assert left == tuple(each for each in before if each not in after)
    assert come == tuple(each for each in after if each not in before)


def test_a_small_change_updates_the_last_result() -> None:
    """A large one, other arguments and another name make it again."""
    calls: list[object] = []

    def whole(items: tuple[int, ...], sign: str) -> frozenset[str]:
        calls.append(len(items))
        return frozenset(f"{sign}{each}" for each in items)

    def update(before: frozenset[str], change: Change[int], sign: str) -> frozenset[str]:
        calls.append(change)
        return before - {f"{sign}{each}" for each in change.left} | {f"{sign}{each}" for each in change.come}

    memory, items = Memory(), tuple(range(100))
    for some in (items, items, items[1:], (*items[1:], 100)):
        assert memory.follow(whole, update, "a", some, "-") == whole(some, "-")
        calls.pop()
    assert calls == [100, Change((0,), ()), Change((), (100,))]
    calls.clear()
    assert memory.follow(whole, update, "a", items[:50], "-") == frozenset(f"-{each}" for each in range(50))
    memory.follow(whole, update, "a", items[:50], "+")
    memory.follow(whole, update, "b", items[:50], "+")
    KEEPS_NOTHING.follow(whole, update, "b", items[:50], "+")
    assert calls == [50] * 4


def test_a_failed_update_is_not_repeated() -> None:
    """The next call makes the result again, from all items."""

    def update(before: int, change: Change[int]) -> int:
        raise ValueError("not there")

    memory, items = Memory(), tuple(range(100))
    assert memory.follow(sum, update, "a", items) == sum(items)
    with pytest.raises(ValueError, match="not there"):
        memory.follow(sum, update, "a", items[1:])
    assert memory.follow(sum, update, "a", items[1:]) == sum(items)


def test_what_is_not_there_has_no_index() -> None:
    """Otherwise an edit would remove its neighbour."""
    assert [index_of((1, 3, 5), each) for each in (1, 3, 5)] == [0, 1, 2]
    for absent in (0, 4, 6):
        with pytest.raises(ValueError, match=f"{absent} is not there"):
            index_of((1, 3, 5), absent)


def test_the_results_of_the_texts_that_were_used_last_are_kept() -> None:
    """Equal texts have one result, whichever objects they are. The text that was not used for longest is dropped."""
    calls: list[str] = []

    @recent(most=2)
    def length(text: str) -> int:
        """The length of *text*."""
        calls.append(text)
        return len(text)

    assert [length(text) for text in ("aa", "b", "".join("aa"), "ccc", "b", "aa")] == [2, 1, 2, 3, 1, 2]
    assert calls == ["aa", "b", "ccc", "b", "aa"]
    assert length.__doc__ == "The length of *text*."
    kept, none = Recent[int](1), Recent[int](0)
    assert kept.keep("a", 5) == none.keep("a", 5) == kept.get("a") == 5
    assert kept.get("b") is none.get("a") is None
