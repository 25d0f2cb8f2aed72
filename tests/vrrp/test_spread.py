"""The nodes of a Service's VIPs, chosen together."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.vrrp.priorities import priorities
from kavip.vrrp.spread import SpreadVIP, leads, most
from tests.support.examples import examples

Nodes = Mapping[int, Collection[str]]
Places = Mapping[SpreadVIP, str]

COUNTS = st.tuples(st.integers(0, 32), st.integers(0, 32)).filter(lambda each: 1 <= sum(each) <= 32)


def vips_of(service: str, ipv4: int, ipv6: int = 0) -> list[SpreadVIP]:
    """The VIPs of one Service."""
    every = [(f"192.0.2.{number}", 4) for number in range(ipv4)] + [
        (f"2001:db8::{number}", 6) for number in range(ipv6)
    ]
    return [SpreadVIP(f"lb/edge shop/{service}/{address}", family) for address, family in every]


def names(count: int) -> list[str]:
    """The names of nodes."""
    return [f"n{number}" for number in range(count)]


def same(nodes: Collection[str]) -> Nodes:
    """The same nodes for both families."""
    return {4: nodes, 6: nodes}


def order_of(vip: SpreadVIP, nodes: Iterable[str], lead: Collection[str] = ()) -> list[str]:
    """*nodes* by priority, as keepalived elects."""
    drawn = dict(priorities(vip.seed, nodes, lead=tuple(lead)))
    return sorted(drawn, key=lambda node: -drawn[node])


@cache
def placed(vips: tuple[SpreadVIP, ...], nodes: frozenset[str]) -> dict[SpreadVIP, list[str]]:
    """The order of the *nodes* of each VIP."""
    chosen = leads(vips, same(nodes))
    return {vip: order_of(vip, nodes, chosen.get(vip.seed, ())) for vip in vips}


def masters(orders: Mapping[SpreadVIP, list[str]], dead: Collection[str] = ()) -> dict[SpreadVIP, str]:
    """The node that keepalived elects for each VIP."""
    return {vip: next(node for node in order if node not in dead) for vip, order in orders.items()}


def is_spread(places: Places, nodes: int) -> bool:
    """Whether no node has more than it must, in total and of each family."""
    total = Counter(places.values())
    kinds = Counter((vip.family, node) for vip, node in places.items())
    counts = Counter(vip.family for vip in places)
    return max(total.values()) <= most(len(places), nodes) and all(
        count <= most(counts[family], nodes) for (family, _), count in kinds.items()
    )


@examples(60)
@given(COUNTS, st.integers(1, 100), st.integers(0, 10**6), st.data())
def test_the_bound_holds_before_and_after_any_death(
    counts: tuple[int, int], size: int, service: int, data: st.DataObject
) -> None:
    """No node is first for more VIPs than it must be, nor after the death of any one node."""
    nodes = names(size)
    orders = placed(tuple(vips_of(f"s{service}", *counts)), frozenset(nodes))
    first = masters(orders)
    assert is_spread(first, size)
    if size > 1:
        after = masters(orders, dead={data.draw(st.sampled_from(sorted(set(first.values()))))})
        assert is_spread(after, size - 1)


@pytest.mark.parametrize("size", range(2, 8))
def test_the_bound_holds_for_all_small_services(size: int) -> None:
    """With up to eight VIPs in any mix of families, and any node dead."""
    for ipv4, ipv6 in product(range(7), range(5)):
        if not ipv4 + ipv6:
            continue
        orders = placed(tuple(vips_of("web", ipv4, ipv6)), frozenset(names(size)))
        assert is_spread(masters(orders), size)
        assert all(is_spread(masters(orders, dead={node}), size - 1) for node in names(size))


@examples(40)
@given(COUNTS, st.integers(1, 12), st.randoms(use_true_random=False))
def test_input_order_does_not_matter(counts: tuple[int, int], size: int, random: Random) -> None:
    """VIPs and nodes in any order give the same result."""
    vips, nodes = vips_of("web", *counts), names(size)
    expected = leads(vips, same(nodes))
    random.shuffle(vips)
    random.shuffle(nodes)
    assert leads(vips, same(nodes)) == expected


@examples(60, deadline=None)
@given(st.integers(0, 4), st.integers(0, 2), st.integers(1, 4), st.integers(0, 10**6))
def test_fewest_changes_to_the_hash_order(ipv4: int, ipv6: int, size: int, service: int) -> None:
    """No assignment within the bounds leaves more VIPs on the first node of their hash order."""
    vips, nodes = vips_of(f"s{service}", ipv4, ipv6), names(size)
    hashed = {vip: order_of(vip, nodes)[0] for vip in vips}

    def changes(places: Places) -> int:
        return sum(places[vip] != hashed[vip] for vip in vips)

    every = (dict(zip(vips, chosen, strict=True)) for chosen in product(nodes, repeat=len(vips)))
    best = min((changes(places) for places in every if not vips or is_spread(places, size)), default=0)
    assert changes(masters(placed(tuple(vips), frozenset(nodes)))) == best


@examples(60)
@given(st.integers(1, 5), st.integers(2, 4), st.integers(0, 10**6))
def test_fewest_changes_to_the_next_nodes(count: int, size: int, service: int) -> None:
    """Of the VIPs of a node that dies, as many as possible go to the best node of their hash order."""
    vips, nodes = tuple(vips_of(f"s{service}", count)), names(size)
    orders = placed(vips, frozenset(nodes))
    first = masters(orders)
    for dead in set(first.values()):
        alive = [node for node in nodes if node != dead]
        stranded = [vip for vip in vips if first[vip] == dead]
        held = {vip: node for vip, node in first.items() if node != dead}
        hashed = {vip: order_of(vip, alive)[0] for vip in stranded}
        every = (dict(zip(stranded, chosen, strict=True)) for chosen in product(alive, repeat=len(stranded)))
        best = min(
            sum(places[vip] != hashed[vip] for vip in stranded)
            for places in every
            if is_spread({**held, **places}, size - 1)
        )
        after = masters(orders, dead={dead})
        assert sum(after[vip] != hashed[vip] for vip in stranded) == best
        assert {vip: after[vip] for vip in held} == held


def test_a_service_within_the_bounds_moves_no_vip() -> None:
    """A Service whose hash order is spread keeps its masters; one that survives each death too has no entry at all."""
    nodes = names(3)
    unmoved = untouched = 0
    for number in range(200):
        vips = vips_of(f"s{number}", 2)
        orders = {vip: order_of(vip, nodes) for vip in vips}
        chosen = leads(vips, same(nodes))
        if is_spread(masters(orders), 3):
            assert all(chosen.get(vip.seed, orders[vip])[0] == orders[vip][0] for vip in vips)
            unmoved += 1
            if all(is_spread(masters(orders, dead={node}), 2) for node in nodes):
                assert chosen == {}
                untouched += 1
    assert unmoved > 100
    assert untouched > 20


def test_a_choice_of_one() -> None:
    """One VIP, one node or no node: the hash order decides."""
    assert leads(vips_of("web", 1), same(names(3))) == {}
    assert leads(vips_of("web", 3), same(["n1"])) == {}
    assert leads(vips_of("web", 3), same([])) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("vips", "size"), [(2, 2), (3, 3), (5, 5), (2, 3)])
def test_services_that_are_not_spread(vips: int, size: int) -> None:
    """Of 2,000 Services the hash alone leaves between a third and nearly all not maximally spread; now none is left."""
    nodes = names(size)
    alone = together = 0
    for number in range(2000):
        some = tuple(vips_of(f"s{number}", vips))
        alone += not is_spread({vip: order_of(vip, nodes)[0] for vip in some}, size)
        together += not is_spread(masters(placed(some, frozenset(nodes))), size)
    assert together == 0
    assert {(2, 2): 900, (3, 3): 1450, (5, 5): 1850, (2, 3): 580}[vips, size] < alone


MOVES = {(2, 2): 0.25, (2, 3): 0.15, (3, 3): 0.45, (3, 5): 0.3, (4, 4): 0.7, (5, 5): 1.0, (8, 3): 0.8, (8, 12): 0.4}
"""By VIPs and nodes, an upper bound of the VIPs of a Service that move to another node than the one that joins."""


@pytest.mark.slow
@pytest.mark.parametrize(("vips", "size"), MOVES)
def test_a_node_that_joins_moves_few(vips: int, size: int) -> None:
    """Most VIPs that move when a node joins go to that node; the others are on average less than one of a Service."""
    others = taken = 0
    for number in range(200):
        some = tuple(vips_of(f"s{number}", vips))
        before = masters(placed(some, frozenset(names(size))))
        after = masters(placed(some, frozenset([*names(size), "joined"])))
        moved = [vip for vip in some if before[vip] != after[vip]]
        taken += sum(after[vip] == "joined" for vip in moved)
        others += sum(after[vip] != "joined" for vip in moved)
    assert others / 200 <= MOVES[vips, size]
    assert taken / 200 <= most(vips, size + 1)


def test_nodes_without_an_address_of_a_family() -> None:
    """A VIP goes only to nodes of its family; the bound of both together is the lowest possible one."""
    vips = vips_of("web", 3, 3)
    chosen = leads(vips, {4: ["a", "b", "c"], 6: ["a"]})
    first = {vip: chosen.get(vip.seed, order_of(vip, ["a", "b", "c"] if vip.family == 4 else ["a"]))[0] for vip in vips}
    assert all(node == "a" for vip, node in first.items() if vip.family == 6)
    assert Counter(node for vip, node in first.items() if vip.family == 4) == {"a": 1, "b": 1, "c": 1}


@examples(60)
@given(COUNTS, st.integers(2, 12), st.integers(0, 10**6), st.data())
def test_the_bound_holds_after_any_deaths(
    counts: tuple[int, int], size: int, service: int, data: st.DataObject
) -> None:
    """With several nodes dead no other node has more than it must, and nodes that return take their VIPs back."""
    vips, nodes = tuple(vips_of(f"s{service}", *counts)), names(size)
    dead = frozenset(data.draw(st.sets(st.sampled_from(nodes), max_size=size - 1)))
    settled, chosen = leads(vips, same(nodes)), leads(vips, same(nodes), dead)
    orders = {vip: order_of(vip, nodes, chosen.get(vip.seed, ())) for vip in vips}
    assert is_spread(masters(orders, dead=dead), size - len(dead))
    if len(dead) <= 1:
        assert chosen == settled
    for vip in vips:
        before, after = settled.get(vip.seed, ()), chosen.get(vip.seed, ())
        rest = tuple(node for node in before if node != after[0]) if after else before
        assert after == before or (after[1:] == rest and after[0] not in dead)


@examples(60)
@given(st.integers(1, 5), st.integers(3, 5), st.integers(0, 10**6), st.data())
def test_deaths_move_the_fewest(count: int, size: int, service: int, data: st.DataObject) -> None:
    """No fewer moves restore the bound for the nodes that are left."""
    vips, nodes = tuple(vips_of(f"s{service}", count)), names(size)
    dead = frozenset(data.draw(st.sets(st.sampled_from(nodes), min_size=2, max_size=size - 1)))
    alive = [node for node in nodes if node not in dead]
    held = masters(placed(vips, frozenset(nodes)), dead=dead)
    chosen = leads(vips, same(nodes), dead)
    after = masters({vip: order_of(vip, nodes, chosen.get(vip.seed, ())) for vip in vips}, dead=dead)

    def moves(places: Places) -> int:
        return sum(places[vip] != held[vip] for vip in vips)

    every = (dict(zip(vips, some, strict=True)) for some in product(alive, repeat=count))
    assert moves(after) == min(moves(places) for places in every if is_spread(places, len(alive)))
