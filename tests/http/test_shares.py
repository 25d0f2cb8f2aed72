"""Which connection is displaced by a new one: the tree of senders decides."""

from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_address
from random import Random

import pytest

from kavip.http.shares import Path, displaced, fewest, network_of, sender_of


@dataclass(eq=False, frozen=True)
class Connection:
    """A connection; without *rank* it is not displaced."""

    path: Path
    rank: float | None = 0.0


def connections(count: int, *path: str, rank: float | None = 0.0) -> list[Connection]:
    """*count* connections of *path*."""
    return [Connection(path, rank) for _ in range(count)]


def path_of(taken: list[Connection], new: Connection) -> Path | None:
    """The path of the connection that *new* displaces."""
    found = displaced(taken, new, rank=lambda each: each.rank)
    return None if found is None else found.path


def test_the_largest_branch_loses_a_connection_on_each_level() -> None:
    """This holds even if a smaller branch has the largest sender."""
    taken = [*connections(3, "node", "a"), *connections(4, "other", "b"), *connections(1, "other", "c")]
    assert path_of(taken, Connection(("node", "d"))) == ("other", "b")
    assert path_of([*taken, *connections(2, "node", "e")], Connection(("node", "d"))) == ("node", "a")


def test_the_lowest_rank_of_a_sender_is_displaced() -> None:
    """Of several connections with the same rank, the oldest one is displaced."""
    old, new = Connection(("a",), 1.0), Connection(("a",), 1.0)
    found = displaced(
        [Connection(("a",), 2.0), old, new, Connection(("a",), None)], Connection(("a",)), rank=lambda each: each.rank
    )
    assert found is old


def test_a_smaller_branch_loses_no_connection() -> None:
    """If no connection of the larger branch can be displaced, a new connection of that branch displaces none."""
    taken = [*connections(4, "a", rank=None), *connections(2, "b")]
    assert path_of(taken, Connection(("a",))) is None
    assert path_of(taken, Connection(("b",))) == ("b",)
    assert path_of(taken, Connection(("c",))) == ("b",)
    assert path_of([], Connection(("c",))) is None


@pytest.mark.parametrize("seed", range(3))
def test_no_sender_loses_its_share(seed: int) -> None:
    """This holds for any number of connections and addresses of others."""
    rng, capacity = Random(seed), 12
    taken = connections(4, "kind", "small")
    for _ in range(300):
        new = Connection(("kind", f"x{rng.randrange(2)}") if rng.random() < 0.5 else ("other", str(rng.random())))
        if len(taken) >= capacity:
            evicted = displaced(taken, new, rank=lambda each: each.rank)
            assert evicted is not None
            taken.remove(evicted)
        taken.append(new)
        assert sum(each.path == ("kind", "small") for each in taken) >= 2
    assert Counter(each.path[0] for each in taken) == {"kind": 6, "other": 6}


def test_the_sender_with_the_fewest_connections_is_next() -> None:
    """Of several such senders, the one with the longest wait is next."""
    first, second, third = Connection(("a",)), Connection(("b",)), Connection(("b",))
    assert fewest([first, second, third], connections(2, "a")) is second
    assert fewest([first, second, third], []) is first


def test_an_ipv6_network_counts_as_one_sender() -> None:
    """One machine may have 2^64 addresses."""
    found = [network_of(ip_address(text)) for text in ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1")]
    assert found[0] == found[1] != found[2]
    assert network_of(ip_address("::ffff:192.0.2.1")) == network_of(ip_address("192.0.2.1"))
    assert sender_of("fe80::1%eth0") == network_of(ip_address("fe80::2"))
