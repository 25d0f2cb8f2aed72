"""Results are kept by name, compared by value, and bounded."""

from kavip.memo import KEEPS_NOTHING, Memory


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


def test_the_memory_that_keeps_nothing_is_the_default() -> None:
    """Every call is made, and every state is new."""
    counter = Counter()
    for _ in range(2):
        assert KEEPS_NOTHING.last(counter.join, "a", "a", ()) == "a"
    assert counter.calls == ["a", "a"]
    assert KEEPS_NOTHING.state(Counter) is not KEEPS_NOTHING.state(Counter)
