"""The fewest moves that balance a group."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kavip.vrrp.rebalance import Balance, balance_of
from tests.support.examples import examples

NODES = ("n1", "n2", "n3")


def carried_out(firsts: dict[str, str], balance: Balance) -> dict[str, str]:
    """The first nodes after all moves, of which each finds room on its node."""
    after = dict(firsts)
    for unit, node in balance.moves:
        assert after[unit] != node
        after[unit] = node
        assert Counter(after.values())[node] <= balance.most
    return after


def excess(firsts: dict[str, str], most: int) -> int:
    """By how many units the nodes are over the bound."""
    return sum(max(0, load - most) for load in Counter(firsts.values()).values())


@examples(150, deadline=None)
@given(data=st.data(), count=st.integers(1, 6))
def test_as_few_as_an_exhaustive_search_finds(data: st.DataObject, count: int) -> None:
    """Of all assignments that preferences allow: the least excess, and of these the fewest moves."""
    units = [f"u{number}" for number in range(count)]
    firsts = {unit: data.draw(st.sampled_from(NODES)) for unit in units}
    allowed = {unit: data.draw(st.frozensets(st.sampled_from(NODES), min_size=1)) for unit in units}
    movable = {unit: some for unit, some in allowed.items() if data.draw(st.booleans())}
    balance = balance_of(firsts, movable, NODES)
    after = carried_out(firsts, balance)
    assert all(node in movable[unit] for unit, node in balance.moves)
    choices = [sorted({firsts[unit], *movable.get(unit, ())}) for unit in units]
    found = [dict(zip(units, chosen, strict=True)) for chosen in product(*choices)]
    best = min((excess(each, balance.most), sum(each[unit] != firsts[unit] for unit in units)) for each in found)
    assert (excess(after, balance.most), len(balance.moves)) == best


@examples(40, deadline=None)
@given(data=st.data(), nodes=st.integers(1, 40), count=st.integers(1, 200))
def test_the_bound_holds_afterwards(data: st.DataObject, nodes: int, count: int) -> None:
    """And a balanced group has no moves."""
    names = [f"n{number}" for number in range(nodes)]
    few = data.draw(st.integers(1, nodes))
    firsts = {f"u{number}": data.draw(st.sampled_from(names[:few])) for number in range(count)}
    allowed = dict.fromkeys(firsts, frozenset(names))
    balance = balance_of(firsts, allowed, names)
    after = carried_out(firsts, balance)
    assert balance.most == -(-5 * count // (4 * nodes))
    assert max(Counter(after.values()).values()) <= balance.most
    again = balance_of(after, allowed, names)
    assert again.moves == () and again.highest <= again.most
    left = balance_of({**firsts, **dict(balance.moves[:1])}, allowed, names)
    assert len(left.moves) == max(0, len(balance.moves) - 1)


def test_a_node_that_may_hold_nothing_gets_nothing() -> None:
    """Units of nodes that are not up are counted where they are first now; "" is no node."""
    firsts = {"u1": "n1", "u2": "n1", "u3": "n1", "u4": ""}
    assert balance_of(firsts, dict.fromkeys(firsts, frozenset({"n1", "n2", "n9"})), ["n1", "n2"]).moves == (
        ("u3", "n2"),
    )
    assert balance_of({}, {}, []) == Balance(0, 0, 0)


def test_a_group_of_two_hundred_nodes() -> None:
    """All 255 instances on one node: 253 moves."""
    names = [f"n{number}" for number in range(200)]
    firsts = {f"u{number}": "n0" for number in range(255)}
    assert len(balance_of(firsts, dict.fromkeys(firsts, frozenset(names)), names).moves) == 253
