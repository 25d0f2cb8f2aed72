"""Which VIPs move one after the other when an older text did not spread them."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kavip.vrrp import keys
from kavip.vrrp.homes import PlacedUnits
from kavip.vrrp.instances import Model, model_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.priorities import priorities, seed_of
from tests.support import build
from tests.support.examples import examples
from tests.vrrp.test_homes import firsts, member, peers_of

GROUP = build.group("lb/edge")


def router_ids(members: Sequence[Member]) -> dict[str, int]:
    """A VRID for each key of *members*."""
    return {key: 1 + index % 255 for index, key in enumerate(keys.wanted_keys(GROUP, members))}


def after(members: Sequence[Member], peers: Sequence[Peer], placed: PlacedUnits) -> Model:
    """The model of *members* after what is *placed*."""
    return model_of(GROUP, members, peers, router_ids(members), placed=placed)


def hash_order(members: Sequence[Member], peers: Sequence[Peer]) -> dict[str, str]:
    """The first node of each instance in a text of kavip 0.1.0."""
    names = [peer.name for peer in peers]
    units = [key for each in members for key in keys.keys_of(GROUP, each)]
    return {unit: max(priorities(seed_of(GROUP.key, unit), names), key=lambda each: each[1])[0] for unit in units}


def moves(before: dict[str, str], model: Model) -> set[str]:
    """The instances whose first node *model* changes."""
    return {name for name, node in firsts(model).items() if before[name] != node}


def spread_members(vips: Sequence[int]) -> list[Member]:
    """Services with so many VIPs that are spread, and one without spread."""
    return [*(member(number, vips=count, spread=True) for number, count in enumerate(vips)), member(99)]


@examples(60, deadline=None)
@given(vips=st.lists(st.integers(1, 5), min_size=1, max_size=4), nodes=st.integers(1, 8))
def test_one_vip_moves_at_a_time(vips: list[int], nodes: int) -> None:
    """Each text moves at most one VIP; none while a move may not begin; the last text is the one of a new group."""
    members, peers = spread_members(vips), peers_of(nodes)
    before = hash_order(members, peers)
    names, spread = frozenset(before), frozenset[str]()
    waiting = after(members, peers, PlacedUnits(names))
    assert firsts(waiting) == before
    for left in range(len(waiting.unspread), 0, -1):
        model = after(members, peers, PlacedUnits(names, spread=spread, may_move=True))
        assert len(model.unspread) == left
        assert {(unit, firsts(model)[unit]) for unit in moves(before, model)} == {model.unspread[0]}
        before, spread = firsts(model), frozenset(model.spread)
        assert firsts(after(members, peers, PlacedUnits(names, spread=spread))) == before
    done = after(members, peers, PlacedUnits(names, spread=spread, may_move=True))
    assert not done.unspread and set(done.spread) == names - {"shop/s99"}
    assert firsts(done) == before == firsts(model_of(GROUP, members, peers, router_ids(members)))


def test_a_new_service_waits_for_nothing() -> None:
    """Its VIPs are spread at once, while those of another Service still wait."""
    peers = peers_of(3)
    every = [member(number, vips=3, spread=True) for number in range(100)]
    old, new, *_ = [each for each in every if len(set(hash_order([each], peers).values())) == 1]
    names = frozenset(hash_order([old], peers))
    model = after([old, new], peers, PlacedUnits(names))
    assert set(model.spread) >= set(keys.keys_of(GROUP, new))
    assert len({firsts(model)[unit] for unit in keys.keys_of(GROUP, new)}) == 3
    assert len({firsts(model)[unit] for unit in names}) == 1
    assert len(model.unspread) == 2


def test_no_vip_moves_to_a_drained_node() -> None:
    """While a node is drained, the VIPs are spread over the others; they move back when it returns, as always."""
    members, peers = spread_members([3, 3, 3]), peers_of(4, drained=["n1"])
    model = after(members, peers, PlacedUnits(frozenset(hash_order(members, peers_of(4)))))
    assert model.unspread and "n1" not in dict(model.unspread).values()
    assert {unit for unit, _ in model.unspread}.isdisjoint(model.spread)
