"""Addresses at rest: when a rest begins, for whom it is none, and how it ends. The time is what the test says."""

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


# --- whose it is ------------------------------------------------------------------------------------------------------
def test_a_freed_address_rests_for_others() -> None:
    """Others get the next one; the usage says what rests."""
    desk = freed()
    assert desk.given(service("shop/other")) == ["192.0.2.129"]
    assert desk.ledger.usage("edge")[4] == (4, 0, 3, 1)
    assert desk.resting() == [("192.0.2.128", "shop/web")]


def test_who_freed_it_has_it_back_without_asking() -> None:
    """It is offered before anything else that is free."""
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.130"]))
    desk.delete("shop/web")
    assert desk.given(service("shop/web")) == ["192.0.2.130"]
    assert desk.given(service("shop/other")) == ["192.0.2.128"]


def test_of_several_the_last_comes_back() -> None:
    """A Service that freed two has the one that it had last."""
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    desk.later(1)
    desk.see(service("shop/web", holds=["192.0.2.129"]))
    desk.later(1)
    desk.delete("shop/web")
    assert desk.resting() == [("192.0.2.128", "shop/web"), ("192.0.2.129", "shop/web")]
    assert desk.given(service("shop/web")) == ["192.0.2.129"]


def test_it_comes_back_from_whatever_pool() -> None:
    """Although another is tried first; not from one that serves the Service no longer."""
    desk, first = freed(EDGE), pool("first", "198.51.100.0/24", priority=1)
    desk.configure(EDGE, first)
    assert desk.given(service("shop/other")) == ["198.51.100.0"]
    assert desk.given(service("shop/web")) == ["192.0.2.128"]
    desk.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=60, auto_assign=False), first)
    assert desk.given(service("shop/web")) == ["198.51.100.0"]


def test_asked_for_by_name_it_waits() -> None:
    """The message says for whom and until when; who freed it just gets it."""
    desk = freed()
    refusal = desk.decided(service("shop/other", wants="192.0.2.128"))
    assert refusal.reason is Reason.ADDRESS_IN_USE
    assert refusal.message == (
        "address 192.0.2.128 cools down until 2026-03-01T12:01:00Z for Service shop/web, which freed it; "
        "wait until then, or ask for another"
    )
    assert desk.given(service("shop/web", wants="192.0.2.128")) == ["192.0.2.128"]


def test_a_full_pool_says_what_rests() -> None:
    """The numbers of a message add up."""
    desk = Desk(pool("edge", "192.0.2.128/31", cooldown_seconds=60))
    desk.see(service("shop/web", holds=["192.0.2.128"]), service("shop/api", holds=["192.0.2.129"]))
    desk.delete("shop/web")
    refusal = desk.decided(service("shop/other"))
    assert refusal.reason is Reason.POOL_EXHAUSTED
    assert "1 of 2 assigned, 1 cooling down (cooldownSeconds);" in refusal.message


@pytest.mark.parametrize(("owner", "gets"), [("shop/web", ["192.0.2.128"]), ("shop/other", ["192.0.2.129"])])
def test_a_reservation_beats_a_rest_of_its_own_service_only(owner: str, gets: list[str]) -> None:
    """An address that is reserved for another rests for him too."""
    desk, kept = freed(EDGE), [Reservation(address="192.0.2.128", service=owner)]
    desk.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=60, reservations=kept))
    assert desk.given(service(owner)) == gets


def test_a_shared_address_rests_once_the_last_is_gone() -> None:
    """While one holds it, those of its key may join; then only the last one may have it back."""
    desk = Desk()
    for name, port in (("a", 80), ("b", 443)):
        desk.see(service(f"shop/{name}", holds=["192.0.2.128"], annotations=SHARE, port=port))
    desk.delete("shop/a")
    assert desk.resting() == []
    assert desk.given(service("shop/c", annotations=SHARE, port=1)) == ["192.0.2.128"]
    desk.delete("shop/b")
    assert desk.resting() == [("192.0.2.128", "shop/b")]
    assert desk.given(service("shop/c", annotations=SHARE, port=1)) == ["192.0.2.129"]


def test_quota_does_not_count_rests() -> None:
    """A namespace that has freed its only address may have another."""
    desk = freed(pool("edge", "192.0.2.128/30", cooldown_seconds=60, max_per_namespace=1))
    assert desk.given(service("shop/other")) == ["192.0.2.129"]


# --- what begins a rest -----------------------------------------------------------------------------------------------
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
def test_letting_go_begins_a_rest(after: Service | None) -> None:
    """Whatever takes the address from its last holder."""
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    desk.ledger.observe("shop/web", after)
    desk.ledger.cooldown.start(desk.now)
    assert desk.resting() == [("192.0.2.128", "shop/web")]


def test_external_ips_rest_like_any_other() -> None:
    """kavip announced them all the same."""
    desk = Desk()
    desk.see(service("shop/web", type="ClusterIP", external_ips=["192.0.2.128"]))
    desk.delete("shop/web")
    assert desk.resting() == [("192.0.2.128", "shop/web")]


def test_the_loser_of_a_contest_frees_nothing() -> None:
    """The other one has the address still."""
    desk = Desk()
    desk.see(*(service(f"shop/{name}", holds=["192.0.2.128"]) for name in "ab"))
    desk.see(service("shop/b", holds=["192.0.2.129"]))
    assert desk.resting() == []


def test_a_write_that_was_not_done_frees_nothing() -> None:
    """Refused at once, or shown by a copy that follows it without the address."""
    desk = Desk()
    desk.see(service("shop/a"), service("shop/b"))
    desk.ledger.expect("shop/a", [FIRST], resource_version="1")
    desk.ledger.abandon("shop/a")
    desk.ledger.expect("shop/b", [FIRST], resource_version="0")
    desk.see(service("shop/b"))
    assert desk.resting() == []
    assert desk.ledger.usage("edge")[4] == (4, 0, 4, 0)


def test_a_write_that_fails_leaves_the_rest() -> None:
    """The address was to go back to who freed it, and did not: for others it rests as long as before."""
    desk = freed()
    desk.ledger.expect("shop/web", [FIRST], resource_version="1")
    assert desk.resting() == []
    desk.ledger.abandon("shop/web")
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    assert desk.ledger.usage("edge")[4] == (4, 0, 3, 1)


def test_a_pool_without_cool_down_has_no_rests() -> None:
    """The address is free at once."""
    desk = freed(pool("edge", "192.0.2.128/30"))
    assert desk.given(service("shop/other")) == ["192.0.2.128"]
    assert desk.resting() == []


# --- how it ends ------------------------------------------------------------------------------------------------------
def test_a_rest_ends_at_its_time_and_wakes_who_waits() -> None:
    """Not a moment earlier; the waiters oldest first, and nobody else."""
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


def test_who_asks_for_an_address_hears_that_it_rests() -> None:
    """His message named the holder, who is gone; and that he has it back."""
    desk = Desk()
    desk.see(service("shop/web", holds=["192.0.2.128"]), service("shop/other", wants="192.0.2.128"))
    desk.ledger.drain_requeues()
    desk.delete("shop/web")
    assert desk.ledger.drain_requeues() == ("shop/other",)
    assert desk.ledger.drain_requeues() == ()
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    assert desk.ledger.drain_requeues() == ("shop/other",)


def test_the_time_is_a_whole_second_and_not_too_early() -> None:
    """Status knows no fractions."""
    desk = Desk()
    desk.now += timedelta(milliseconds=1)
    desk.see(service("shop/web", holds=["192.0.2.128"]))
    desk.delete("shop/web")
    assert [rest.wire.until for rest in desk.ledger.cooldown.of("edge")] == ["2026-03-01T12:01:01Z"]


def test_the_oldest_gives_way() -> None:
    """A pool has 512 rests at most; who gives way is free."""
    desk = Desk(pool("edge", "192.0.0.0/20", cooldown_seconds=60))
    addresses = [Address(4, FIRST.value + index) for index in range(MAX_COOLING + 2)]
    for index, address in enumerate(addresses):
        desk.see(service(f"shop/{index:03}", holds=[str(address)]))
        desk.delete(f"shop/{index:03}")
        desk.later(0.01)
    assert [address for address, _ in desk.resting()] == [str(address) for address in addresses[2:]]
    assert desk.ledger.usage("edge")[4] == (4096, 0, 4096 - MAX_COOLING, MAX_COOLING)


def test_a_cool_down_of_zero_ends_all_and_another_none() -> None:
    """What rests keeps its time when the cool-down is edited."""
    desk = freed()
    desk.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=5))
    desk.later(6)
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    desk.configure(pool("edge", "192.0.2.128/30"))
    assert desk.resting() == []
    assert desk.given(service("shop/other")) == ["192.0.2.128"]


def test_a_rest_follows_its_address_into_another_pool() -> None:
    """The pool may be renamed, deleted and made again, or lose its range to another."""
    desk = freed()
    desk.configure()
    assert desk.resting() == []
    desk.configure(pool("new", "192.0.2.128/29", cooldown_seconds=5))
    assert desk.resting("new") == [("192.0.2.128", "shop/web")]
    assert desk.given(service("shop/other")) == ["192.0.2.129"]
    desk.later(60)
    assert desk.resting("new") == []


def test_a_clock_that_is_set_back_makes_no_rest_longer() -> None:
    """It ends after the cool-down at the latest, whatever day it is."""
    desk = freed()
    desk.later(-3600)
    assert [rest.until for rest in desk.ledger.cooldown.of("edge")] == [desk.now + timedelta(seconds=60)]
    desk.later(60)
    assert desk.resting() == []


def test_memory_is_bounded() -> None:
    """Freed and had back again and again, one address has one rest."""
    desk = Desk(pool("edge", "192.0.2.128/30", cooldown_seconds=31_536_000))
    for _ in range(500):
        desk.see(service("shop/web", holds=["192.0.2.128"]))
        desk.delete("shop/web")
        desk.later(1)
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    assert len(desk.ledger.cooldown._queue) < 100
