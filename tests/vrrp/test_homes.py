"""Where new instances go, and that no others move."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import parse_address
from kavip.api.group import KeepalivedGroup
from kavip.vrrp import keys
from kavip.vrrp.homes import PlacedUnits
from kavip.vrrp.instances import Model, model_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.spread import most
from tests.support import build
from tests.support.examples import examples

GROUP = build.group(unicast_enabled=True)
NOTHING = Model(group=GROUP.key, globals=(), instances=())


def peers_of(count: int, *, drained: Collection[str] = (), preferred: Collection[str] = ()) -> list[Peer]:
    """Nodes n1, n2 and so on."""
    names = [f"n{number}" for number in range(1, count + 1)]
    return [
        Peer(
            name, parse_address(f"10.0.0.{number}"), drain_turn=int(name in drained), preference=int(name in preferred)
        )
        for number, name in enumerate(names, 1)
    ]


def member(number: int, *, vips: int = 1, spread: bool = False, ipv6: bool = False) -> Member:
    """A Service with so many VIPs."""
    addresses = [f"192.0.{number // 50}.{number % 50 * 5 + index}" for index in range(vips)]
    addresses += [f"2001:db8::{number:x}"] if ipv6 else []
    return Member(key=f"shop/s{number}", addresses=tuple(map(parse_address, addresses)), spread=spread)


def grown(
    before: Model,
    members: Iterable[Member],
    peers: Collection[Peer],
    *,
    group: KeepalivedGroup = GROUP,
    dead: Collection[str] = (),
    holders: Mapping[str, str] | None = None,
) -> Model:
    """The model with *members* after *before*."""
    every = list(members)
    wanted = keys.wanted_keys(group, every)
    ids = {key: 1 + index % 255 for index, key in enumerate(wanted)}
    names = frozenset(keys.unit_name(each.name, each.family) for each in before.instances)
    placed = PlacedUnits(names, dict(before.homes), frozenset(before.spread), holders or {})
    return model_of(group, every, list(peers), ids, placed=placed, dead=frozenset(dead))


def firsts(model: Model) -> dict[str, str]:
    """The node that ranks first, by instance."""
    return {each.name: max(each.priorities, key=lambda each: each[1])[0] for each in model.instances}


def loads(model: Model) -> Counter[str]:
    """For how many instances each node ranks first."""
    return Counter(firsts(model).values())


@examples(60, deadline=None)
@given(nodes=st.integers(1, 30), count=st.integers(1, 60), one_by_one=st.booleans())
def test_new_instances_are_balanced(nodes: int, count: int, one_by_one: bool) -> None:
    """No node gets more than it must, whether the Services come together or one after the other."""
    peers, members, model = peers_of(nodes), [member(number) for number in range(count)], NOTHING
    for end in range(1, count + 1) if one_by_one else (count,):
        model = grown(model, members[:end], peers)
    assert max(loads(model).values()) == most(count, nodes)


@pytest.mark.slow
def test_the_largest_group_is_balanced() -> None:
    """500 instances on 100 nodes, which come and go."""
    peers, members = peers_of(100), [member(number) for number in range(500)]
    model = grown(NOTHING, members, peers)
    assert set(loads(model).values()) == {5}
    replaced = [each for each in members if int(each.key.removeprefix("shop/s")) % 3]
    model = grown(grown(model, replaced, peers), members, peers)
    assert set(loads(model).values()) == {5}


@examples(60, deadline=None)
@given(data=st.data(), nodes=st.integers(1, 8))
def test_no_service_moves_another(data: st.DataObject, nodes: int) -> None:
    """Whatever Services come and go, while any nodes are dead or drained."""
    names = [peer.name for peer in peers_of(nodes)]
    some = st.sets(st.sampled_from(names), max_size=nodes - 1)
    model = NOTHING
    present: dict[int, Member] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        peers, dead = peers_of(nodes, drained=data.draw(some)), data.draw(some)
        before, settled = firsts(grown(model, present.values(), peers, dead=dead)), model
        number = data.draw(st.integers(0, 8))
        if number in present:
            del present[number]
        else:
            present[number] = member(number, spread=data.draw(st.booleans()), vips=data.draw(st.integers(1, 4)))
        model = grown(settled, present.values(), peers, dead=dead)
        own = f"shop/s{number}"
        kept = {name: node for name, node in before.items() if name != own and not name.startswith(f"{own}/")}
        assert kept.items() <= firsts(model).items()


def test_a_new_node_takes_only_what_the_hash_gives_it() -> None:
    """It takes no instance that has a home on another node, although it has the fewest."""
    members = [member(number) for number in range(40)]
    before = grown(NOTHING, members, peers_of(4))
    after = grown(before, members, peers_of(5))
    moved = {name for name, node in firsts(after).items() if firsts(before)[name] != node}
    assert moved and {firsts(after)[name] for name in moved} == {"n5"}
    assert moved.isdisjoint(dict(before.homes))
    assert after.homes == before.homes


def test_a_node_that_leaves_is_no_home() -> None:
    """Its instances go to the nodes that rank next; no other one moves."""
    members = [member(number) for number in range(12)]
    before = grown(NOTHING, members, peers_of(3))
    after = grown(before, members, peers_of(2))
    assert "n3" not in dict(after.homes).values()
    assert all(node == firsts(before)[name] for name, node in firsts(after).items() if firsts(before)[name] != "n3")


def test_dead_and_drained_nodes_get_nothing_new() -> None:
    """And take back only what was theirs."""
    members = [member(number) for number in range(12)]
    before = grown(NOTHING, members[:6], peers_of(4))
    for peers, dead in ((peers_of(4, drained=["n2"]), []), (peers_of(4), ["n2"])):
        model = grown(before, members, peers, dead=dead)
        again = firsts(grown(model, members, peers_of(4)))
        new = {each.key for each in members[6:]}
        assert "n2" not in {again[name] for name in new}
        assert all(again[name] == node for name, node in firsts(before).items())


def test_an_instance_that_no_node_can_hold_has_no_home() -> None:
    """Only the drained node has an IPv6 address; it keeps the VIP."""
    only = parse_address("2001:db8:1::1")
    nodes = [replace(each, ipv6=only if each.drain_turn else None) for each in peers_of(3, drained=["n1"])]
    model = grown(NOTHING, [member(1, vips=0, ipv6=True)], nodes)
    assert [each.family for each in model.instances] == [6] and model.homes == ()


def test_preferred_nodes_come_first() -> None:
    """New instances are balanced over these; a home on another node waits behind them."""
    members = [member(number) for number in range(6)]
    model = grown(NOTHING, members, peers_of(4, preferred=["n1", "n4"]))
    assert loads(model) == {"n1": 3, "n4": 3}
    elsewhere = grown(model, members, peers_of(4, preferred=["n2"]))
    assert loads(elsewhere) == {"n2": 6}
    assert firsts(grown(elsewhere, members, peers_of(4, preferred=["n1", "n4"]))) == firsts(model)


def test_spread_comes_before_balance() -> None:
    """The VIPs of one Service go to different nodes, each to the one with fewest of them."""
    plain = [member(number) for number in range(7)]
    model = grown(NOTHING, plain, peers_of(4))
    service = member(9, vips=3, spread=True)
    after = grown(model, [*plain, service], peers_of(4))
    assert len({node for name, node in firsts(after).items() if name.startswith("shop/s9/")}) == 3
    assert max(loads(after).values()) == 3
    assert loads(grown(NOTHING, [member(number, vips=2, spread=True) for number in range(6)], peers_of(3))) == {
        "n1": 4,
        "n2": 4,
        "n3": 4,
    }


def test_the_instances_of_a_dual_stack_service_stay_together() -> None:
    """They have one home."""
    peers = [replace(each, ipv6=parse_address(f"2001:db8:1::{each.name[1:]}")) for each in peers_of(3)]
    model = grown(NOTHING, [member(number, ipv6=True) for number in range(6)], peers)
    found = firsts(model)
    assert len(found) == 12 and loads(model) == {"n1": 4, "n2": 4, "n3": 4}
    assert all(found[name] == found[name.removesuffix("/v6")] for name in found)


def test_without_a_text_the_holders_stay() -> None:
    """Each instance stays on its master; an instance without a master goes to a node with fewest."""
    members = [member(number) for number in range(6)]
    holders = {f"shop/s{number}": "n1" for number in range(4)}
    model = grown(NOTHING, members, peers_of(3), holders={**holders, "shop/s4": "unknown"})
    assert holders.items() <= firsts(model).items()
    assert loads(model) == {"n1": 4, "n2": 1, "n3": 1}


def test_a_text_without_homes_moves_nothing() -> None:
    """An earlier version of kavip wrote it; every instance follows the hash."""
    members, peers = [member(number) for number in range(12)], peers_of(3)
    ids = {each.key: index for index, each in enumerate(members, 1)}
    hashed = model_of(GROUP, members, peers, ids)
    after = grown(hashed, members, peers)
    assert hashed.homes == () and firsts(after) == firsts(hashed) and after.homes == ()
