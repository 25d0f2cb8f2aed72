"""Cool-downs: how one begins, which Service it does not affect, and how it ends. The test sets the clock."""

from datetime import timedelta

import pytest

from kavip.api.address import Address
from kavip.api.pool import Reservation
from kavip.api.service import Service
from kavip.ipam.ledger.cooldown import MAX_COOLING
from kavip.ipam.request import read_request
from kavip.names import Reason
from tests.ipam.deciding import SHARE
from tests.ipam.ledger.desk import EDGE, FIRST, Desk, freed
from tests.support.build import pool, service


# --- which Service gets the address -----------------------------------------------------------------------------------
def test_a_freed_address_is_in_cool_down_for_other_services() -> None:
    """Another Service gets the next address. The usage counts the cool-down."""
    desk = freed()
    assert desk.given(service("shop/other")) == ["192.0.2.129"]
    assert desk.ledger.usage("edge")[4] == (4, 0, 3, 1)
    assert desk.resting() == [("192.0.2.128", "shop/web")]


def test_the_service_that_freed_an_address_gets_it_back() -> None:
    """The Service gets the freed address before any lower free one, without a request for it."""
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.130"]))
    desk.delete("shop/web")
    assert desk.given(service("shop/web")) == ["192.0.2.130"]
    assert desk.given(service("shop/other")) == ["192.0.2.128"]


def test_of_several_freed_addresses_the_last_comes_back() -> None:
    """A Service that freed two addresses gets the one that it freed last."""
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    desk.later(1)
    desk.see(service("shop/web", holds=["192.0.2.129"]))
    desk.later(1)
    desk.delete("shop/web")
    assert desk.resting() == [("192.0.2.128", "shop/web"), ("192.0.2.129", "shop/web")]
    assert desk.given(service("shop/web")) == ["192.0.2.129"]


def test_a_freed_address_comes_back_although_its_pool_is_not_the_first() -> None:
    """
    The address comes back although another pool is tried first, but not from a pool that no longer serves the Service.
    """
    desk, first = freed(EDGE), pool("first", "198.51.100.0/24", priority=1)
    desk.configure(EDGE, first)
    assert desk.given(service("shop/other")) == ["198.51.100.0"]
    assert desk.given(service("shop/web")) == ["192.0.2.128"]
    desk.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=60, auto_assign=False), first)
    assert desk.given(service("shop/web")) == ["198.51.100.0"]


def test_a_request_for_an_address_in_cool_down_is_refused() -> None:
    """
    The message names the Service that freed the address, and the end of the cool-down. That Service gets the address.
    """
    desk = freed()
    refusal = desk.decided(service("shop/other", wants="192.0.2.128"))
    assert refusal.reason is Reason.ADDRESS_IN_USE
    assert refusal.message == (
        "address 192.0.2.128 cools down until 2026-03-01T12:01:00Z for Service shop/web, which freed it; "
        "wait until then, or ask for another"
    )
    assert desk.given(service("shop/web", wants="192.0.2.128")) == ["192.0.2.128"]


def test_the_message_of_a_full_pool_counts_cool_downs() -> None:
    """The numbers of the message add up."""
    desk = Desk(pool("edge", "192.0.2.128/31", cooldown_seconds=60))
    desk.see(service("shop/web", holds=["192.0.2.128"]), service("shop/api", holds=["192.0.2.129"]))
    desk.delete("shop/web")
    refusal = desk.decided(service("shop/other"))
    assert refusal.reason is Reason.POOL_EXHAUSTED
    assert "1 of 2 assigned, 1 cooling down (cooldownSeconds);" in refusal.message


@pytest.mark.parametrize(("owner", "gets"), [("shop/web", ["192.0.2.128"]), ("shop/other", ["192.0.2.129"])])
def test_a_reservation_does_not_end_the_cool_down_of_another_service(owner: str, gets: list[str]) -> None:
    """A reserved address that another Service freed is in cool-down for the Service of the reservation too."""
    desk, kept = freed(EDGE), [Reservation(address="192.0.2.128", service=owner)]
    desk.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=60, reservations=kept))
    assert desk.given(service(owner)) == gets


def test_a_shared_address_cools_down_after_its_last_holder() -> None:
    """
    While there is a holder, Services with its key may join. Afterwards only the last holder may have the address back.
    """
    desk = Desk()
    for name, port in (("a", 80), ("b", 443)):
        desk.see(service(f"shop/{name}", holds=["192.0.2.128"], annotations=SHARE, port=port))
    desk.delete("shop/a")
    assert desk.resting() == []
    assert desk.given(service("shop/c", annotations=SHARE, port=1)) == ["192.0.2.128"]
    desk.delete("shop/b")
    assert desk.resting() == [("192.0.2.128", "shop/b")]
    assert desk.given(service("shop/c", annotations=SHARE, port=1)) == ["192.0.2.129"]


def test_quota_does_not_count_cool_downs() -> None:
    """A namespace that has freed its only address may have another."""
    desk = freed(pool("edge", "192.0.2.128/30", cooldown_seconds=60, max_per_namespace=1))
    assert desk.given(service("shop/other")) == ["192.0.2.129"]


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
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    desk.ledger.observe("shop/web", after)
    desk.ledger.cooldown.start(desk.now)
    assert desk.resting() == [("192.0.2.128", "shop/web")]


def test_external_ips_cool_down_too() -> None:
    """kavip announced external IPs, so they cool down like addresses in status."""
    desk = Desk()
    desk.see(service("shop/web", type="ClusterIP", external_ips=["192.0.2.128"]))
    desk.delete("shop/web")
    assert desk.resting() == [("192.0.2.128", "shop/web")]


def test_the_loser_of_a_contest_frees_nothing() -> None:
    """No cool-down begins while the other Service holds the address."""
    desk = Desk()
    desk.see(*(service(f"shop/{name}", holds=["192.0.2.128"]) for name in "ab"))
    desk.see(service("shop/b", holds=["192.0.2.129"]))
    assert desk.resting() == []


def test_a_write_that_was_not_done_frees_nothing() -> None:
    """No cool-down begins when a write is refused, or when a later version of the Service lacks the address."""
    desk = Desk()
    desk.see(service("shop/a"), service("shop/b"))
    desk.ledger.expect("shop/a", [FIRST], resource_version="1")
    desk.ledger.abandon("shop/a")
    desk.ledger.expect("shop/b", [FIRST], resource_version="0")
    desk.see(service("shop/b"))
    assert desk.resting() == []
    assert desk.ledger.usage("edge")[4] == (4, 0, 4, 0)


def test_a_failed_write_leaves_the_cool_down() -> None:
    """A write that gives the address back to its Service fails: the cool-down for other Services stays."""
    desk = freed()
    desk.ledger.expect("shop/web", [FIRST], resource_version="1")
    assert desk.resting() == []
    desk.ledger.abandon("shop/web")
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    assert desk.ledger.usage("edge")[4] == (4, 0, 3, 1)


def test_a_pool_without_cool_down_frees_at_once() -> None:
    """The address is free at once."""
    desk = freed(pool("edge", "192.0.2.128/30"))
    assert desk.given(service("shop/other")) == ["192.0.2.128"]
    assert desk.resting() == []


# --- how a cool-down ends ---------------------------------------------------------------------------------------------
def test_the_end_of_a_cool_down_requeues_its_waiters() -> None:
    """
    The waiting Services of that pool are requeued at the end and not before, the oldest first, one after the other.
    """
    desk = Desk(pool("edge", "192.0.2.128/32", cooldown_seconds=60), pool("lab", "198.51.100.0/32"))
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    desk.delete("shop/web")
    asking = [service(f"shop/{name}", created=f"2026-01-0{age}T00:00:00Z") for name, age in (("b", 2), ("a", 3))]
    for each in asking:
        desk.see(each)
        desk.ledger.wait(read_request(each)[0], ["edge"])
    lab = service("shop/lab")
    desk.ledger.wait(read_request(lab)[0], ["lab"])
    desk.later(59)
    assert desk.ledger.drain_requeues() == ()
    desk.later(1)
    assert desk.ledger.drain_requeues() == ("shop/b",)
    desk.ledger.waiters.answer("shop/b")
    assert desk.ledger.drain_requeues() == ("shop/a",)
    assert desk.ledger.usage("edge")[4] == (1, 0, 1, 0)


def test_a_service_that_requests_the_address_is_requeued_when_its_cool_down_begins() -> None:
    """
    Its message names the holder, so it is requeued when the holder frees the address, and when the holder gets it back.
    """
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.128"]), service("shop/other", wants="192.0.2.128"))
    desk.ledger.drain_requeues()
    desk.delete("shop/web")
    assert desk.ledger.drain_requeues() == ("shop/other",)
    assert desk.ledger.drain_requeues() == ()
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    assert desk.ledger.drain_requeues() == ("shop/other",)


def test_the_end_of_a_cool_down_is_rounded_up_to_a_second() -> None:
    """The status has no fractions of seconds."""
    desk = Desk()
    desk.now += timedelta(milliseconds=1)
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    desk.delete("shop/web")
    assert [rest.wire.until for rest in desk.ledger.cooldown.of("edge")] == ["2026-03-01T12:01:01Z"]


def test_beyond_the_limit_the_oldest_cool_down_ends() -> None:
    """A pool has at most 512 cool-downs. The address of an ended one is free."""
    desk = Desk(pool("edge", "192.0.0.0/20", cooldown_seconds=60))
    addresses = [Address(4, FIRST.value + index) for index in range(MAX_COOLING + 2)]
    for index, address in enumerate(addresses):
        desk.see(service(f"shop/{index:03}", holds=[str(address)]))
        desk.delete(f"shop/{index:03}")
        desk.later(0.01)
    assert [address for address, _ in desk.resting()] == [str(address) for address in addresses[2:]]
    assert desk.ledger.usage("edge")[4] == (4096, 0, 4096 - MAX_COOLING, MAX_COOLING)


def test_an_edit_of_the_cool_down_ends_existing_ones_only_if_it_is_zero() -> None:
    """An existing cool-down keeps its end when the setting is edited to another value than zero."""
    desk = freed()
    desk.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=5))
    desk.later(6)
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    desk.configure(pool("edge", "192.0.2.128/30"))
    assert desk.resting() == []
    assert desk.given(service("shop/other")) == ["192.0.2.128"]


def test_a_cool_down_follows_its_address_into_another_pool() -> None:
    """A pool may be renamed, deleted and created again, or lose its range to another pool."""
    desk = freed()
    desk.configure()
    assert desk.resting() == []
    desk.configure(pool("new", "192.0.2.128/29", cooldown_seconds=5))
    assert desk.resting("new") == [("192.0.2.128", "shop/web")]
    assert desk.given(service("shop/other")) == ["192.0.2.129"]
    desk.later(60)
    assert desk.resting("new") == []


def test_a_clock_that_is_set_back_makes_no_cool_down_longer() -> None:
    """The remaining time is never longer than the cool-down."""
    desk = freed()
    desk.later(-3600)
    assert [rest.until for rest in desk.ledger.cooldown.of("edge")] == [desk.now + timedelta(seconds=60)]
    desk.later(60)
    assert desk.resting() == []


def test_memory_is_bounded() -> None:
    """An address that is freed and given back repeatedly has one cool-down."""
    desk = Desk(pool("edge", "192.0.2.128/30", cooldown_seconds=31_536_000))
    for _ in range(500):
        desk.see(service("shop/web", holds=["192.0.2.128"]))
        desk.delete("shop/web")
        desk.later(1)
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    assert len(desk.ledger.cooldown._queue) < 100
