"""Cool-downs: how one begins, which Service it does not affect, and how it ends. The test sets the clock."""

from datetime import timedelta
from typing import Any

import pytest

from kavip.api.address import Address
from kavip.api.pool import Reservation
from kavip.api.service import Service
from kavip.ipam.ledger.cooldown import MAX_COOLING
from kavip.ipam.request import read_request
from kavip.names import MAX_VIPS, Reason
from tests.ipam.deciding import SHARE
from tests.ipam.ledger.leaderledger import EDGE, FIRST, LeaderLedger, freed
from tests.support.build import pool, service


# --- which Service gets the address -----------------------------------------------------------------------------------
def test_a_freed_address_is_in_cool_down_for_other_services() -> None:
    """Another Service gets the next address. The usage counts the cool-down."""
    leader = freed()
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.129"]
    assert leader.ledger.usage("edge")[4] == (4, 0, 3, 1)
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]


def test_the_service_that_freed_an_address_gets_it_back() -> None:
    """The Service gets the freed address before any lower free one, without a request for it."""
    leader = LeaderLedger()
    leader.see(service("shop/web", holds=["192.0.2.130"]))
    leader.delete("shop/web")
    assert leader.addresses_for(service("shop/web")) == ["192.0.2.130"]
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.128"]


def test_of_several_freed_addresses_the_last_comes_back() -> None:
    """A Service that freed two addresses gets the one that it freed last."""
    leader = LeaderLedger()
    leader.see(service("shop/web", holds=["192.0.2.128"]))
    leader.later(1)
    leader.see(service("shop/web", holds=["192.0.2.129"]))
    leader.later(1)
    leader.delete("shop/web")
    assert leader.cooldowns() == [("192.0.2.128", "shop/web"), ("192.0.2.129", "shop/web")]
    assert leader.addresses_for(service("shop/web")) == ["192.0.2.129"]


def test_a_freed_address_comes_back_although_its_pool_is_not_the_first() -> None:
    """
    The address comes back although another pool is tried first, but not from a pool that no longer serves the Service.
    """
    leader, first = freed(EDGE), pool("first", "198.51.100.0/24", priority=1)
    leader.configure(EDGE, first)
    assert leader.addresses_for(service("shop/other")) == ["198.51.100.0"]
    assert leader.addresses_for(service("shop/web")) == ["192.0.2.128"]
    leader.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=60, auto_assign=False), first)
    assert leader.addresses_for(service("shop/web")) == ["198.51.100.0"]


def test_a_request_for_an_address_in_cool_down_is_refused() -> None:
    """
    The message names the Service that freed the address, and the end of the cool-down. That Service gets the address.
    """
    leader = freed()
    refusal = leader.decided(service("shop/other", wants="192.0.2.128"))
    assert refusal.reason is Reason.ADDRESS_IN_USE
    assert refusal.message == (
        "address 192.0.2.128 cools down until 2026-03-01T12:01:00Z for Service shop/web, which freed it; "
        "wait until then, or ask for another"
    )
    assert leader.addresses_for(service("shop/web", wants="192.0.2.128")) == ["192.0.2.128"]


def test_the_message_of_a_full_pool_counts_cool_downs() -> None:
    """The numbers of the message add up."""
    leader = LeaderLedger(pool("edge", "192.0.2.128/31", cooldown_seconds=60))
    leader.see(service("shop/web", holds=["192.0.2.128"]), service("shop/api", holds=["192.0.2.129"]))
    leader.delete("shop/web")
    refusal = leader.decided(service("shop/other"))
    assert refusal.reason is Reason.POOL_EXHAUSTED
    assert "1 of 2 assigned, 1 cooling down (cooldownSeconds);" in refusal.message


@pytest.mark.parametrize(("owner", "gets"), [("shop/web", ["192.0.2.128"]), ("shop/other", ["192.0.2.129"])])
def test_a_reservation_does_not_end_the_cool_down_of_another_service(owner: str, gets: list[str]) -> None:
    """A reserved address that another Service freed is in cool-down for the Service of the reservation too."""
    leader, kept = freed(EDGE), [Reservation(address="192.0.2.128", service=owner)]
    leader.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=60, reservations=kept))
    assert leader.addresses_for(service(owner)) == gets


def test_a_shared_address_cools_down_after_its_last_holder() -> None:
    """
    While there is a holder, Services with its key may join. Afterwards only the last holder may have the address back.
    """
    leader = LeaderLedger()
    for name, port in (("a", 80), ("b", 443)):
        leader.see(service(f"shop/{name}", holds=["192.0.2.128"], annotations=SHARE, port=port))
    leader.delete("shop/a")
    assert leader.cooldowns() == []
    assert leader.addresses_for(service("shop/c", annotations=SHARE, port=1)) == ["192.0.2.128"]
    leader.delete("shop/b")
    assert leader.cooldowns() == [("192.0.2.128", "shop/b")]
    assert leader.addresses_for(service("shop/c", annotations=SHARE, port=1)) == ["192.0.2.129"]


def test_quota_does_not_count_cool_downs() -> None:
    """A namespace that has freed its only address may have another."""
    leader = freed(pool("edge", "192.0.2.128/30", cooldown_seconds=60, max_per_namespace=1))
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.129"]


# --- how a cool-down begins -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "after",
    [
        service("shop/web", holds=["192.0.2.129"]),
        service("shop/web"),
        service("shop/web", holds=["192.0.2.128"], type="ClusterIP"),
        None,
    ],
    ids=["moved", "no longer managed", "another type", "gone"],
)
def test_a_cool_down_begins_when_the_last_holder_loses_the_address(after: Service | None) -> None:
    """A cool-down begins after a move, a change of type or management, and a deletion."""
    leader = LeaderLedger()
    leader.see(service("shop/web", holds=["192.0.2.128"]))
    leader.ledger.observe("shop/web", after)
    leader.ledger.cooldown.start(leader.now)
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]


def test_external_ips_cool_down_too() -> None:
    """kavip announced external IPs, so they cool down like addresses in status."""
    leader = LeaderLedger()
    leader.see(service("shop/web", type="ClusterIP", external_ips=["192.0.2.128"], group="lb/edge"))
    leader.delete("shop/web")
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]


@pytest.mark.parametrize(
    "more",
    [
        {"type": "ClusterIP"},
        {"type": "LoadBalancer"},
        {"group": "lb/edge", "load_balancer_class": "metallb.io/speaker"},
        {"group": "lb/edge", "holds": [f"198.51.100.{index}" for index in range(MAX_VIPS)]},
    ],
    ids=["names no group", "default group", "class of another controller", "too many VIPs"],
)
def test_external_ips_that_kavip_did_not_serve_do_not_cool_down(more: dict[str, Any]) -> None:
    """Any tenant can list any address in a Service that kavip does not manage."""
    leader = LeaderLedger()
    leader.see(service("evil/plain", external_ips=["192.0.2.128"], **more))
    leader.delete("evil/plain")
    assert leader.cooldowns() == []
    assert leader.addresses_for(service("shop/web")) == ["192.0.2.128"]


def test_a_service_that_is_not_managed_hides_no_cool_down() -> None:
    """It lists the VIP of a victim, and so keeps others from it; the cool-down is the victim's, and is persisted."""
    leader = LeaderLedger()
    leader.see(service("shop/web", holds=["192.0.2.128"]))
    leader.see(service("evil/plain", type="ClusterIP", external_ips=["192.0.2.128"]))
    leader.delete("shop/web")
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    leader.delete("evil/plain")
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    assert leader.addresses_for(service("evil/other")) == ["192.0.2.129"]
    assert leader.addresses_for(service("shop/web")) == ["192.0.2.128"]


def test_a_cool_down_begins_when_a_service_with_external_ips_is_not_managed_any_more() -> None:
    """The VIP goes with the annotation; the Service still lists the address."""
    leader = LeaderLedger()
    plain: dict[str, Any] = {"type": "ClusterIP", "external_ips": ["192.0.2.128"]}
    leader.see(service("shop/web", group="lb/edge", **plain))
    leader.see(service("shop/web", **plain))
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]


def test_the_loser_of_a_contest_frees_nothing() -> None:
    """No cool-down begins while the other Service holds the address."""
    leader = LeaderLedger()
    leader.see(*(service(f"shop/{name}", holds=["192.0.2.128"]) for name in "ab"))
    leader.see(service("shop/b", holds=["192.0.2.129"]))
    assert leader.cooldowns() == []


def test_a_write_that_was_not_done_frees_nothing() -> None:
    """No cool-down begins when a write is refused, or when a later version of the Service lacks the address."""
    leader = LeaderLedger()
    leader.see(service("shop/a"), service("shop/b"))
    leader.ledger.expect("shop/a", [FIRST], resource_version="1")
    leader.ledger.abandon("shop/a")
    leader.ledger.expect("shop/b", [FIRST], resource_version="0")
    leader.see(service("shop/b"))
    assert leader.cooldowns() == []
    assert leader.ledger.usage("edge")[4] == (4, 0, 4, 0)


def test_a_failed_write_leaves_the_cool_down() -> None:
    """A write that gives the address back to its Service fails: the cool-down for other Services stays."""
    leader = freed()
    leader.ledger.expect("shop/web", [FIRST], resource_version="1")
    assert leader.cooldowns() == []
    leader.ledger.abandon("shop/web")
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    assert leader.ledger.usage("edge")[4] == (4, 0, 3, 1)


def test_a_pool_without_cool_down_frees_at_once() -> None:
    """The address is free at once."""
    leader = freed(pool("edge", "192.0.2.128/30"))
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.128"]
    assert leader.cooldowns() == []


# --- how a cool-down ends ---------------------------------------------------------------------------------------------
def test_the_end_of_a_cool_down_requeues_its_waiters() -> None:
    """
    The waiting Services of that pool are requeued at the end and not before, the oldest first, one after the other.
    """
    leader = LeaderLedger(pool("edge", "192.0.2.128/32", cooldown_seconds=60), pool("lab", "198.51.100.0/32"))
    leader.see(service("shop/web", holds=["192.0.2.128"]))
    leader.delete("shop/web")
    asking = [service(f"shop/{name}", created=f"2026-01-0{age}T00:00:00Z") for name, age in (("b", 2), ("a", 3))]
    for each in asking:
        leader.see(each)
        leader.ledger.wait(read_request(each)[0], ["edge"])
    lab = service("shop/lab")
    leader.ledger.wait(read_request(lab)[0], ["lab"])
    leader.later(59)
    assert leader.ledger.drain_requeues() == ()
    leader.later(1)
    assert leader.ledger.drain_requeues() == ("shop/b",)
    leader.ledger.waiters.answer("shop/b")
    assert leader.ledger.drain_requeues() == ("shop/a",)
    assert leader.ledger.usage("edge")[4] == (1, 0, 1, 0)


def test_a_service_that_requests_the_address_is_requeued_when_its_cool_down_begins() -> None:
    """
    Its message names the holder, so it is requeued when the holder frees the address, and when the holder gets it back.
    """
    leader = LeaderLedger()
    leader.see(service("shop/web", holds=["192.0.2.128"]), service("shop/other", wants="192.0.2.128"))
    leader.ledger.drain_requeues()
    leader.delete("shop/web")
    assert leader.ledger.drain_requeues() == ("shop/other",)
    assert leader.ledger.drain_requeues() == ()
    leader.see(service("shop/web", holds=["192.0.2.128"]))
    assert leader.ledger.drain_requeues() == ("shop/other",)


def test_the_end_of_a_cool_down_is_rounded_up_to_a_second() -> None:
    """The status has no fractions of seconds."""
    leader = LeaderLedger()
    leader.now += timedelta(milliseconds=1)
    leader.see(service("shop/web", holds=["192.0.2.128"]))
    leader.delete("shop/web")
    assert [cooling.wire.until for cooling in leader.ledger.cooldown.of("edge")] == ["2026-03-01T12:01:01Z"]


def test_beyond_the_limit_the_oldest_cool_down_ends() -> None:
    """A pool has at most 512 cool-downs. Of those of one namespace the oldest ends, and its address is free."""
    leader = LeaderLedger(pool("edge", "192.0.0.0/20", cooldown_seconds=60))
    addresses = [Address(4, FIRST.value + index) for index in range(MAX_COOLING + 2)]
    for index, address in enumerate(addresses):
        leader.see(service(f"shop/{index:03}", holds=[str(address)]))
        leader.delete(f"shop/{index:03}")
        leader.later(0.01)
    assert [address for address, _ in leader.cooldowns()] == [str(address) for address in addresses[2:]]
    assert leader.ledger.usage("edge")[4] == (4096, 0, 4096 - MAX_COOLING, MAX_COOLING)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "stand-by"])
def test_a_namespace_that_frees_many_addresses_ends_only_its_own_cool_downs(*, leads: bool) -> None:
    """The victims' cool-downs are older. On a stand-by the same holds for what it remembers until it leads."""
    leader = LeaderLedger(pool("edge", "192.0.0.0/20", cooldown_seconds=60))
    if not leads:
        leader.ledger.cooldown.follow()
    victims = [(str(Address(4, FIRST.value + index)), f"bank/{index}") for index in range(3)]
    attacks = [(str(Address(4, FIRST.value + index)), f"evil/{index:03}") for index in range(3, MAX_COOLING + 8)]
    for address, key in (*victims, *attacks):
        leader.ledger.observe(key, service(key, holds=[address]))
        leader.ledger.observe(key, None)
        if leads:
            leader.ledger.cooldown.start(leader.now)
    if not leads:
        leader.ledger.cooldown.lead(leader.now)
    assert leader.cooldowns() == [*victims, *attacks[-(MAX_COOLING - 3) :]]


def test_an_edit_of_the_cool_down_ends_existing_ones_only_if_it_is_zero() -> None:
    """An existing cool-down keeps its end when the setting is edited to another value than zero."""
    leader = freed()
    leader.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=5))
    leader.later(6)
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    leader.configure(pool("edge", "192.0.2.128/30"))
    assert leader.cooldowns() == []
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.128"]


def test_a_cool_down_follows_its_address_into_another_pool() -> None:
    """A pool may be renamed, deleted and created again, or lose its range to another pool."""
    leader = freed()
    leader.configure()
    assert leader.cooldowns() == []
    leader.configure(pool("new", "192.0.2.128/29", cooldown_seconds=5))
    assert leader.cooldowns("new") == [("192.0.2.128", "shop/web")]
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.129"]
    leader.later(60)
    assert leader.cooldowns("new") == []


def test_a_clock_that_is_set_back_makes_no_cool_down_longer() -> None:
    """The remaining time is never longer than the cool-down."""
    leader = freed()
    leader.later(-3600)
    assert [cooling.until for cooling in leader.ledger.cooldown.of("edge")] == [leader.now + timedelta(seconds=60)]
    leader.later(60)
    assert leader.cooldowns() == []


def test_memory_is_bounded() -> None:
    """An address that is freed and given back repeatedly has one cool-down."""
    leader = LeaderLedger(pool("edge", "192.0.2.128/30", cooldown_seconds=31_536_000))
    for _ in range(500):
        leader.see(service("shop/web", holds=["192.0.2.128"]))
        leader.delete("shop/web")
        leader.later(1)
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    assert len(leader.ledger.cooldown._queue) < 100
