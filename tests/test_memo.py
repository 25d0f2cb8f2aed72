"""What is remembered by value: made again where an argument is another, bounded, forgotten on demand."""

from kavip.memo import forget, last


def test_is_made_again_only_where_an_argument_is_another() -> None:
    """Equal arguments are the same, whichever objects they are; each name has a last result of its own."""
    made = []

    @last(2)
    def join(name: str, words: tuple[str, ...]) -> str:
        made.append(name)
        return " ".join((name, *words))

    assert join("a", ("b", "c")) == join("a", tuple("bc")) == "a b c"
    assert join("b", ()) == "b"
    assert join("a", ("b", "c")) == "a b c"
    assert made == ["a", "b"]
    assert join("a", ("c",)) == "a c"
    assert join("c", ()) == "c"  # one name too many: the oldest is forgotten
    assert join("a", ("c",)) == "a c"
    assert made == ["a", "b", "a", "c", "a"]
    forget()
    assert join("a", ("c",)) == "a c"
    assert made == ["a", "b", "a", "c", "a", "a"]
