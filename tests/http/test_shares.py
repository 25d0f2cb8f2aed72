"""Which connection a new one displaces, by the tree of senders."""

from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_address
from random import Random

import pytest

from kavip.http.shares import Path, displaced, fewest, network_of, sender_of


@dataclass(eq=False, frozen=True)
class Wire:
    """A connection; without *rank* it is not displaced."""

    path: Path
    rank: float | None = 0.0


def wires(count: int, *path: str, rank: float | None = 0.0) -> list[Wire]:
    """So many connections of *path*."""
    return [Wire(path, rank) for _ in range(count)]


def path_of(taken: list[Wire], new: Wire) -> Path | None:
    """The path of the connection that *new* displaces."""
    found = displaced(taken, new, rank=lambda each: each.rank)
    return None if found is None else found.path


def test_the_largest_branch_gives_way_on_each_level() -> None:
    """Also if a smaller branch has the largest sender."""
    taken = [*wires(3, "node", "a"), *wires(4, "other", "b"), *wires(1, "other", "c")]
    assert path_of(taken, Wire(("node", "d"))) == ("other", "b")
    assert path_of([*taken, *wires(2, "node", "e")], Wire(("node", "d"))) == ("node", "a")


def test_the_lowest_rank_of_a_sender_gives_way() -> None:
    """The oldest one of several with the same rank."""
    old, new = Wire(("a",), 1.0), Wire(("a",), 1.0)
    found = displaced([Wire(("a",), 2.0), old, new, Wire(("a",), None)], Wire(("a",)), rank=lambda each: each.rank)
    assert found is old


def test_a_smaller_branch_does_not_give_way() -> None:
    """If no connection of the larger one can be displaced, the new one of that branch displaces none."""
    taken = [*wires(4, "a", rank=None), *wires(2, "b")]
    assert path_of(taken, Wire(("a",))) is None
    assert path_of(taken, Wire(("b",))) == ("b",)
    assert path_of(taken, Wire(("c",))) == ("b",)
    assert path_of([], Wire(("c",))) is None


@pytest.mark.parametrize("seed", range(3))
def test_no_sender_loses_its_share(seed: int) -> None:
    """However many connections and addresses others have."""
    dice, room = Random(seed), 12
    taken = wires(4, "kind", "modest")
    for _ in range(300):
        new = Wire(("kind", f"x{dice.randrange(2)}") if dice.random() < 0.5 else ("other", str(dice.random())))
        if len(taken) >= room:
            gone = displaced(taken, new, rank=lambda each: each.rank)
            assert gone is not None
            taken.remove(gone)
        taken.append(new)
        assert sum(each.path == ("kind", "modest") for each in taken) >= 2
    assert Counter(each.path[0] for each in taken) == {"kind": 6, "other": 6}


def test_who_has_the_fewest_connections_is_next() -> None:
    """Of several, the one that has waited longest."""
    first, second, third = Wire(("a",)), Wire(("b",)), Wire(("b",))
    assert fewest([first, second, third], wires(2, "a")) is second
    assert fewest([first, second, third], []) is first


def test_an_ipv6_network_counts_as_one_sender() -> None:
    """One machine may have 2^64 addresses."""
    found = [network_of(ip_address(text)) for text in ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1")]
    assert found[0] == found[1] != found[2]
    assert network_of(ip_address("::ffff:192.0.2.1")) == network_of(ip_address("192.0.2.1"))
    assert sender_of("fe80::1%eth0") == network_of(ip_address("fe80::2"))
