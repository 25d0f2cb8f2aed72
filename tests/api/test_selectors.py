"""Label selectors: what they match, and that matching does not depend on how many terms they have."""

from collections.abc import Iterator, Mapping
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from kavip.api.meta import LabelSelector, Requirement

KEYS = st.sampled_from("abc")
VALUES = st.sampled_from(["", "x", "y"])
TERMS = st.builds(
    Requirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.none() | st.lists(VALUES, max_size=3),
)


def satisfies(term: Requirement, labels: Mapping[str, str]) -> bool:
    """The definition of Kubernetes, term by term."""
    values = term.values or []
    return {
        "In": labels.get(term.key) in values,
        "NotIn": labels.get(term.key) not in values,
        "Exists": term.key in labels,
        "DoesNotExist": term.key not in labels,
    }[term.operator]


@given(st.none() | st.dictionaries(KEYS, VALUES), st.lists(TERMS, max_size=5), st.dictionaries(KEYS, VALUES))
def test_a_selector_matches_what_satisfies_every_term(
    wanted: dict[str, str] | None, terms: list[Requirement], labels: dict[str, str]
) -> None:
    """Several terms about one key are one conjunction."""
    expected = (wanted or {}).items() <= labels.items() and all(satisfies(term, labels) for term in terms)
    assert LabelSelector(match_labels=wanted, match_expressions=terms).matches(labels) == expected


def test_an_unknown_operator_matches_nothing() -> None:
    """So does one of node affinity, which label selectors do not have."""
    for operator in ("Is", "", "Gt"):
        selector = LabelSelector(match_expressions=[Requirement(key="a", operator=operator, values=["1"])])
        assert not selector.matches({"a": "2"})
    assert LabelSelector().matches(None)


def test_terms_are_read_once() -> None:
    """However many objects are compared with the selector."""
    read: list[int] = []

    class Terms(list[Requirement]):
        def __iter__(self) -> Iterator[Requirement]:
            read.append(len(self))
            return super().__iter__()

    selector = LabelSelector(match_expressions=Terms([Requirement(key="a", operator="Exists")]))
    assert [selector.matches(labels) for labels in ({}, {"a": ""}, {"b": ""})] == [False, True, False]
    assert read == [1]


def test_the_cost_of_a_comparison_does_not_grow_with_terms_and_values() -> None:
    """10,000 terms and as many values cost about what ten cost; term by term it would be a thousand times that."""

    def cost(count: int) -> float:
        names = [f"k{number}" for number in range(count)]
        terms = [Requirement(key=name, operator="DoesNotExist") for name in names]
        selector = LabelSelector(match_expressions=[*terms, Requirement(key="a", operator="NotIn", values=names)])
        assert selector.matches({"a": "b"})  # compiled
        start = process_time()
        for _ in range(2_000):
            selector.matches({"a": "b", "c": "d"})
        return process_time() - start

    assert cost(10_000) < 20 * min(cost(10) for _ in range(3))
