"""Addresses that rest because another machine has them: for no Service, for an hour, a few in each pool."""

from datetime import timedelta

from kavip.api.address import Address, parse_address
from kavip.api.pool import Cooling
from kavip.ipam.ledger.cooldown import MAX_COOLING, MAX_WITHDRAWN, WITHDRAWN_SECONDS
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.names import Reason
from tests.ipam.ledger.leaderledger import EDGE, FIRST, LeaderLedger
from tests.support.build import pool, service

ONE = "192.0.2.128"


def withdrawn(*pools: object) -> LeaderLedger:
    """shop/web has 192.0.2.129, after it gave up 192.0.2.128."""
    leader = LeaderLedger(*pools)
    leader.see(service("shop/web", holds=[ONE]))
    leader.ledger.cooldown.withdraw(parse_address(ONE), "shop/web", now=leader.now)
    leader.see(service("shop/web", holds=["192.0.2.129"]))
    return leader


def test_it_is_for_no_service() -> None:
    """Neither for another one, nor for the one that had it; with and without a cool-down of the pool."""
    for leader in (withdrawn(), withdrawn(pool("edge", "192.0.2.128/30"))):
        leader.delete("shop/web")
        for key in ("shop/web", "shop/other"):
            assert ONE not in leader.addresses_for(service(key))
            refusal = leader.decided(service(key, wants=ONE))
            assert refusal.reason is Reason.ADDRESS_IN_USE
            assert refusal.message == (
                f"address {ONE} is in cool-down until 2026-03-01T13:00:00Z, because another machine on the LAN has it "
                "(found for Service shop/web); wait until then, or ask for another"
            )


def test_it_ends_after_an_hour() -> None:
    """Whatever the pool says, and whoever had it; then the address is free."""
    leader = withdrawn(pool("edge", "192.0.2.128/30", cooldown_seconds=7200))
    leader.later(WITHDRAWN_SECONDS - 1)
    assert leader.cooldowns() == [(ONE, "shop/web")]
    leader.later(1)
    assert leader.cooldowns() == [] and leader.addresses_for(service("shop/other")) == [ONE]


def test_it_is_shown_while_the_service_still_has_it() -> None:
    """It is written before the Service gives it up. A leader that starts then finds it."""
    leader = LeaderLedger(EDGE)
    leader.see(service("shop/web", holds=[ONE]))
    cooldown = leader.ledger.cooldown
    cooldown.withdraw(parse_address(ONE), "shop/web", now=leader.now)
    (entry,) = (each.wire for each in cooldown.of("edge"))
    assert entry == Cooling(address=ONE, service="shop/web", until="2026-03-01T13:00:00Z", reason="AddressConflict")
    assert not cooldown.is_recorded(parse_address(ONE))
    cooldown.learn("edge", [entry])
    assert cooldown.is_recorded(parse_address(ONE)) and cooldown.withdrawn_from("shop/web") == (parse_address(ONE),)
    successor = Ledger(Pools.of([EDGE]))
    successor.cooldown.learn("edge", [entry])
    successor.cooldown.lead(leader.now + timedelta(seconds=1))
    assert successor.cooldown.withdrawn_from("shop/web") == (parse_address(ONE),)
    assert successor.cooldown.is_recorded(parse_address(ONE))


def test_the_number_is_bounded_and_displaces_no_cool_down() -> None:
    """Sixteen in a pool, also if the status says more; the others cool down beside them."""
    leader = LeaderLedger(pool("edge", "192.0.0.0/20", cooldown_seconds=60))
    for index in range(MAX_WITHDRAWN + 4):
        leader.ledger.cooldown.withdraw(Address(4, FIRST.value + index), f"shop/s{index}", now=leader.now)
    assert len(leader.ledger.cooldown.withdrawn("edge")) == MAX_WITHDRAWN
    for index in range(100, 100 + MAX_COOLING + 2):
        leader.see(service("shop/web", holds=[str(Address(4, FIRST.value + index))]))
    assert len(leader.ledger.cooldown.of("edge")) == MAX_WITHDRAWN + MAX_COOLING == 512
    entries = [
        Cooling(
            address=str(Address(4, FIRST.value + at)),
            service="a/b",
            until="2030-01-01T00:00:00Z",
            reason="AddressConflict",
        )
        for at in range(40)
    ]
    follower = Ledger(Pools.of([pool("edge", "192.0.0.0/20")]))
    follower.cooldown.learn("edge", entries)
    assert len(follower.cooldown.withdrawn("edge")) == MAX_WITHDRAWN
    follower.cooldown.lead(leader.now)
    assert {each.until for each in follower.cooldown.withdrawn("edge")} == {leader.now + timedelta(hours=1)}


def test_the_message_of_a_full_pool_counts_them() -> None:
    """The numbers of the message add up."""
    leader = LeaderLedger(pool("edge", "192.0.2.128/31"))
    leader.see(service("shop/web", holds=[ONE]))
    leader.ledger.cooldown.withdraw(parse_address(ONE), "shop/web", now=leader.now)
    leader.see(service("shop/web", holds=["192.0.2.129"]))
    refusal = leader.decided(service("shop/other"))
    assert "1 of 2 assigned, 1 in use by other machines on the LAN; " in refusal.message
    assert leader.ledger.usage("edge")[4] == (2, 1, 0, 1)


def test_an_entry_of_a_later_version_cools_down() -> None:
    """Its reason is unknown, so the address is kept for its Service."""
    leader = LeaderLedger(EDGE)
    entry = Cooling(address=ONE, service="shop/web", until="2026-03-01T12:00:30Z", reason="Other")
    follower = Ledger(Pools.of([EDGE]))
    follower.cooldown.learn("edge", [entry])
    assert follower.cooldown.blocking(parse_address(ONE), "shop/other")
    assert follower.cooldown.blocking(parse_address(ONE), "shop/web") is None
    assert leader.ledger.cooldown.withdrawn("edge") == ()
