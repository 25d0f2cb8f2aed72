"""Usage of the pools: those with free addresses are found without a check of the full ones."""

from random import Random
from typing import Any

import pytest

from kavip.api.address import Address
from kavip.api.meta import LabelSelector
from kavip.api.pool import Reservation
from kavip.ipam.allocate import Allocation, decide
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.usage import UsageByPool
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import parse_range
from kavip.ipam.request import read_request
from kavip.ipam.selection import Selection
from tests.support.build import pool, service

TEAM = LabelSelector(match_labels={"team": "a"})


@pytest.mark.parametrize("seed", range(20))
def test_the_pools_with_free_addresses_are_found_in_order(seed: int) -> None:
    """After any sequence of changes, they are listed in the order in which pools are tried."""
    random = Random(seed)
    pools = Pools.of(
        pool(
            f"p{number}",
            f"192.0.{number}.0/30",
            *([f"2001:db8::{number:x}0/127"] if number % 2 else []),
            priority=random.randrange(3),
            service_selector=random.choice((None, TEAM)),
            reservations=[Reservation(address=f"192.0.{number}.1", service="a/b")] if number % 3 else None,
            avoid_buggy_ips=number % 4 == 0,
        )
        for number in range(8)
    )
    usage = UsageByPool(pools)
    addresses = [
        Address(span.family, value)
        for each in pools.in_force
        for span in each.ranges
        for value in range(span.first, span.last + 1)
    ]
    request, _ = read_request(service("a/web", labels={"team": "a"}))
    for _ in range(300):
        address = random.choice(addresses)
        pool_usage = usage.of(address)
        assert pool_usage is not None
        random.choice((pool_usage.assign, pool_usage.keep_back, pool_usage.cool, pool_usage.free))(address)
        family = random.choice((4, 6))
        free = [
            each for each in pools.eligible(request, {}) if (found := usage.get(each.name)) and found.lowest(family, 1)
        ]
        assert list(usage.pools_with_free(pools.audiences.of(request, {}), family)) == free


def test_a_decision_does_not_check_full_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only pool with a free address may be the last of many."""
    pools = Pools.of(pool(f"p{number:03}", f"10.0.{number}.0/32") for number in range(200))
    ledger = Ledger(pools)
    first = parse_range("10.0.0.0/32").first
    for number in range(199):
        ledger.expect(f"a/s{number}", [Address(4, first + 256 * number)])
    evaluated: list[str] = []
    offer = Selection.offer

    def counting(self: Selection, place: Pool, *more: Any) -> tuple[Address, ...] | None:
        evaluated.append(place.name)
        return offer(self, place, *more)

    monkeypatch.setattr(Selection, "offer", counting)
    outcome = decide(read_request(service("a/web"))[0], pools, ledger)
    assert isinstance(outcome, Allocation)
    assert outcome.pools == ("p199",)
    assert evaluated == ["p199"]


def test_a_full_pool_gives_a_reserved_address() -> None:
    """A reservation counts before the free addresses of a pool that is tried later."""
    kept = [Reservation(address="192.0.2.1", service="a/web")]
    pools = Pools.of([pool("full", "192.0.2.0/31", reservations=kept), pool("wide", "198.51.100.0/24", priority=200)])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.0"]))
    outcome = decide(read_request(service("a/web"))[0], pools, ledger)
    assert isinstance(outcome, Allocation)
    assert outcome.pools == ("full",)
