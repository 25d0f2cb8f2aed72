"""The VIPs by text are those of all parts, after any history."""

from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import Address
from kavip.controller import viptexts
from kavip.controller.viptexts import VIPTexts
from tests.support.examples import examples

PART = st.frozensets(st.integers(1, 2 * viptexts._FEW), max_size=2 * viptexts._FEW)


@examples(60)
@given(st.lists(st.lists(PART, max_size=4), max_size=8))
def test_texts_are_those_of_all_parts(history: list[list[frozenset[int]]]) -> None:
    """A text stays while any part has it; parts that are equal may be other objects."""
    texts = VIPTexts()
    for numbers in history:
        parts = tuple({str(each): each for each in (Address(4, number) for number in part)} for part in numbers)
        kept = parts[:1] + parts[:1] + parts[1:]
        for some in (parts, kept, parts[1:], parts):
            texts.update(some)
            assert texts.found == {text: address for part in some for text, address in part.items()}
