"""What cools down as the status of pools tells it, over restarts and fail-overs; and any history of rests."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kavip.api.address import Address
from kavip.api.pool import Cooling
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from tests.ipam.ledger.desk import EDGE, FIRST, NOW, Desk, freed
from tests.support.build import pool, service


# --- status: restart, fail-over, other replicas -----------------------------------------------------------------------
def entry(address: str, seconds: float = 30, who: str = "shop/web") -> Cooling:
    """An entry of ``status.cooling`` that ends in so many *seconds*."""
    return Cooling(address=address, service=who, until=f"{NOW + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}")


def taught(*entries: Cooling, pools: tuple[Any, ...] = (EDGE,)) -> Desk:
    """A new leader that has read *entries* in the status of the pool edge."""
    desk = Desk(*pools)
    desk.ledger = Ledger(desk.pools)
    desk.ledger.cooldown.learn("edge", entries)
    desk.ledger.cooldown.lead(NOW)
    return desk


def test_a_new_leader_goes_on_with_what_status_says() -> None:
    """What is over is free."""
    desk = taught(entry("192.0.2.128"), entry("192.0.2.129", 0), entry("192.0.2.130", -5))
    assert [rest.wire for rest in desk.ledger.cooldown.of("edge")] == [entry("192.0.2.128")]
    assert desk.given(service("shop/other")) == ["192.0.2.129"]
    assert desk.given(service("shop/web")) == ["192.0.2.128"]


@pytest.mark.parametrize(
    "bad",
    [
        Cooling(address="nonsense", service="shop/web", until="2026-03-01T12:00:30Z"),
        Cooling(address="192.0.2.129", service="nobody", until="2026-03-01T12:00:30Z"),
        Cooling(address="192.0.2.129", service="shop/web", until="tomorrow"),
        Cooling(address="192.0.2.129", service="shop/web", until="2026-03-01T12:00:30"),
        Cooling(address="192.0.2.129", service="shop/web", until="0001-01-01T00:00:00+23:00"),
        entry("198.51.100.7"),
    ],
    ids=["address", "service", "time", "no zone", "out of range", "outside"],
)
def test_garbage_in_status_counts_for_nothing(bad: Cooling) -> None:
    """The other entries count."""
    desk = taught(bad, entry("192.0.2.128"), pools=(EDGE, pool("lab", "198.51.100.0/24", cooldown_seconds=9)))
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    assert desk.resting("lab") == []


def test_an_absurd_time_is_cut() -> None:
    """Nobody can keep an address for ever."""
    far = Cooling(address="192.0.2.128", service="shop/web", until="9999-12-31T23:59:59Z")
    assert [rest.until for rest in taught(far).ledger.cooldown.of("edge")] == [NOW + timedelta(seconds=60)]


def test_a_leader_believes_no_copy_of_its_status() -> None:
    """Neither one from before its write, which lacks a rest, nor one that has what has ended."""
    desk = freed()
    desk.ledger.cooldown.learn("edge", ())
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    desk.later(60)
    desk.ledger.cooldown.learn("edge", [entry("192.0.2.128", 90)])
    assert desk.resting() == []


def test_who_does_not_lead_believes_nothing_else() -> None:
    """What it sees being freed is free until status says that it rests, and rests until status says no more."""
    ledger = Ledger(Pools.of([EDGE]))
    ledger.observe("shop/web", service("shop/web", holds=["192.0.2.128"]))
    ledger.cooldown.learn("edge", [entry("192.0.2.128"), entry("192.0.2.129")])
    assert ledger.usage("edge")[4] == (4, 1, 2, 1)
    ledger.observe("shop/web", None)
    assert ledger.usage("edge")[4] == (4, 0, 2, 2)
    ledger.cooldown.learn("edge", [entry("192.0.2.129")])
    assert ledger.usage("edge")[4] == (4, 0, 3, 1)
    ledger.cooldown.expire(NOW + timedelta(seconds=30))
    assert ledger.usage("edge")[4] == (4, 0, 4, 0)


def test_a_fail_over_loses_nothing_that_the_next_leader_saw_being_freed() -> None:
    """The one before died before it could write; what it has written is not begun anew."""
    ledger = Ledger(Pools.of([EDGE]))
    for index in (128, 129, 130):
        ledger.observe(f"shop/{index}", service(f"shop/{index}", holds=[f"192.0.2.{index}"]))
    for index in (128, 129, 130):
        ledger.observe(f"shop/{index}", None)
    ledger.cooldown.learn("edge", [entry("192.0.2.129", who="shop/129")])
    ledger.observe("shop/new", service("shop/new", holds=["192.0.2.130"]))
    ledger.cooldown.lead(NOW)
    assert [str(rest) for rest in ledger.cooldown.of("edge")] == [
        "cools down until 2026-03-01T12:00:30Z for Service shop/129, which freed it",
        "cools down until 2026-03-01T12:01:00Z for Service shop/128, which freed it",
    ]


def test_after_its_term_a_leader_is_as_any_other() -> None:
    """It believes status again, and in its next term knows what it did not get written in this one."""
    desk = freed()
    desk.ledger.cooldown.learn("edge", [entry("192.0.2.129")])
    desk.ledger.cooldown.follow()
    assert desk.resting() == [("192.0.2.129", "shop/web")]
    assert desk.ledger.usage("edge")[4] == (4, 0, 3, 1)
    desk.ledger.cooldown.lead(NOW)
    assert desk.resting() == [("192.0.2.129", "shop/web"), ("192.0.2.128", "shop/web")]


def test_a_pool_that_is_not_in_force_keeps_what_it_said() -> None:
    """It may be mended soon; the address is nobody's meanwhile."""
    broken = pool("edge", "192.0.2.128/30", "nonsense", cooldown_seconds=60)
    desk = taught(entry("192.0.2.128"), pools=(broken,))
    assert desk.resting() == [("192.0.2.128", "shop/web")]
    desk.configure(EDGE)
    assert desk.given(service("shop/other")) == ["192.0.2.129"]


# --- any history ------------------------------------------------------------------------------------------------------
ADDRESSES = [Address(4, FIRST.value + index) for index in range(4)]
KEYS = ["shop/a", "shop/b", "shop/c"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.sampled_from(KEYS), st.sampled_from(ADDRESSES)),
        st.tuples(st.just("go"), st.sampled_from(KEYS)),
        st.tuples(st.just("later"), st.sampled_from([1, 29, 30, 60])),
        st.tuples(st.just("edit"), st.sampled_from([0, 30, 60])),
        st.tuples(st.just("restart")),
        st.tuples(st.just("fail over")),
    ),
    max_size=30,
)


class Plain:
    """The same in the plainest words: who holds what, and what was freed by whom until when."""

    def __init__(self) -> None:
        """Nothing is held; a cool-down of a minute."""
        self.now, self.cooldown = NOW, 60
        self.held: dict[str, Address] = {}
        self.freed: dict[Address, tuple[datetime, str]] = {}

    def hold(self, key: str, address: Address | None) -> None:
        """*key* holds *address* from now on, and nothing else."""
        before = self.held.pop(key, None)
        if address is not None:
            self.held[key] = address
        if before is not None and before not in self.held.values() and self.cooldown:
            self.freed[before] = self.now + timedelta(seconds=self.cooldown), key
        if not self.cooldown:
            self.freed.clear()

    def resting(self) -> dict[Address, tuple[datetime, str]]:
        """What rests now."""
        self.freed = {address: rest for address, rest in self.freed.items() if rest[0] > self.now}
        return {address: rest for address, rest in self.freed.items() if address not in self.held.values()}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_any_history_rests_what_it_should(steps: list[tuple[Any, ...]]) -> None:
    """Freed, had back, edited, led anew from status: always what the plainest account says, and the numbers add up."""
    desk, plain = Desk(), Plain()
    for step in steps:
        match step:
            case "hold", key, address:
                if desk.ledger.cooldown.blocking(address, key) is None and not desk.ledger.claims.holders(address):
                    desk.see(service(key, holds=[str(address)]))
                    plain.hold(key, address)
            case "go", key:
                desk.delete(key)
                plain.hold(key, None)
            case "later", seconds:
                desk.later(seconds)
                plain.now += timedelta(seconds=seconds)
            case "edit", seconds:
                desk.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=seconds))
                plain.cooldown = seconds
                plain.freed = plain.freed if seconds else {}
            case (("restart" | "fail over") as how,):
                told = [rest.wire for rest in desk.ledger.cooldown.of("edge")]
                if how == "restart":
                    desk.ledger = Ledger(desk.pools)
                    desk.see(*(service(key, holds=[str(address)]) for key, address in plain.held.items()))
                else:
                    desk.ledger.cooldown.follow()
                desk.ledger.cooldown.learn("edge", told)
                desk.ledger.cooldown.lead(desk.now)
                plain.freed = plain.resting()  # what is held again is not written
                longest = desk.now + timedelta(seconds=plain.cooldown)
                plain.freed = {address: (min(until, longest), key) for address, (until, key) in plain.freed.items()}
        expected = plain.resting()
        assert {rest.address: (rest.until, rest.service) for rest in desk.ledger.cooldown.of("edge")} == expected
        held = len(plain.held)
        assert desk.ledger.usage("edge")[4] == (4, held, 4 - held - len(expected), len(expected))
        for key in KEYS:
            mine = {address for address, (_, owner) in expected.items() if owner == key}
            open_to = {each for each in ADDRESSES if not desk.ledger.cooldown.blocking(each, key)} - set(
                plain.held.values()
            )
            assert open_to == {*ADDRESSES} - set(plain.held.values()) - (expected.keys() - mine)
