"""Cool-downs in the status of pools, over restarts and fail-overs; and random histories of cool-downs."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import Address
from kavip.api.pool import Cooling
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from tests.ipam.ledger.leaderledger import EDGE, FIRST, NOW, LeaderLedger, freed
from tests.support.build import pool, service
from tests.support.examples import examples


# --- status: restart, fail-over, other replicas -----------------------------------------------------------------------
def entry(address: str, seconds: float = 30, holder: str = "shop/web") -> Cooling:
    """An entry of ``status.cooling`` that ends in *seconds* seconds."""
    return Cooling(address=address, service=holder, until=f"{NOW + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}")


def leader_with(*entries: Cooling, pools: tuple[Any, ...] = (EDGE,)) -> LeaderLedger:
    """A new leader that has read *entries* in the status of the pool edge."""
    leader = LeaderLedger(*pools)
    leader.ledger = Ledger(leader.pools)
    leader.ledger.cooldown.learn("edge", entries)
    leader.ledger.cooldown.lead(NOW)
    return leader


def test_a_new_leader_continues_the_cool_downs_in_status() -> None:
    """An entry whose time is over is ignored."""
    leader = leader_with(entry("192.0.2.128"), entry("192.0.2.129", 0), entry("192.0.2.130", -5))
    assert [cooling.wire for cooling in leader.ledger.cooldown.of("edge")] == [entry("192.0.2.128")]
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.129"]
    assert leader.addresses_for(service("shop/web")) == ["192.0.2.128"]


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
def test_malformed_entries_of_status_are_ignored(bad: Cooling) -> None:
    """The other entries count."""
    leader = leader_with(bad, entry("192.0.2.128"), pools=(EDGE, pool("lab", "198.51.100.0/24", cooldown_seconds=9)))
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    assert leader.cooldowns("lab") == []


def test_an_end_in_the_far_future_is_limited() -> None:
    """A writer of status cannot keep an address in cool-down for longer than the setting."""
    far = Cooling(address="192.0.2.128", service="shop/web", until="9999-12-31T23:59:59Z")
    assert [cooling.until for cooling in leader_with(far).ledger.cooldown.of("edge")] == [NOW + timedelta(seconds=60)]


def test_a_leader_ignores_the_status_of_its_own_pools() -> None:
    """
    A leader ignores a copy from before its write, which lacks a cool-down, and one with a cool-down that has ended.
    """
    leader = freed()
    leader.ledger.cooldown.learn("edge", ())
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    leader.later(60)
    leader.ledger.cooldown.learn("edge", [entry("192.0.2.128", 90)])
    assert leader.cooldowns() == []


def test_a_stand_by_follows_the_status() -> None:
    """On a stand-by a freed address cools down only while the status has an entry for it."""
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


def test_a_new_leader_begins_the_cool_downs_of_addresses_that_it_saw_freed() -> None:
    """The previous leader died before it could write them. The ones that it has written keep their end."""
    ledger = Ledger(Pools.of([EDGE]))
    for index in (128, 129, 130):
        ledger.observe(f"shop/{index}", service(f"shop/{index}", holds=[f"192.0.2.{index}"]))
    for index in (128, 129, 130):
        ledger.observe(f"shop/{index}", None)
    ledger.cooldown.learn("edge", [entry("192.0.2.129", holder="shop/129")])
    ledger.observe("shop/new", service("shop/new", holds=["192.0.2.130"]))
    ledger.cooldown.lead(NOW)
    assert [str(cooling) for cooling in ledger.cooldown.of("edge")] == [
        "cools down until 2026-03-01T12:00:30Z for Service shop/129, which freed it",
        "cools down until 2026-03-01T12:01:00Z for Service shop/128, which freed it",
    ]


def test_after_its_term_a_leader_follows_the_status_again() -> None:
    """In its next term it begins those cool-downs that it could not write in the last one."""
    leader = freed()
    leader.ledger.cooldown.learn("edge", [entry("192.0.2.129")])
    leader.ledger.cooldown.follow()
    assert leader.cooldowns() == [("192.0.2.129", "shop/web")]
    assert leader.ledger.usage("edge")[4] == (4, 0, 3, 1)
    leader.ledger.cooldown.lead(NOW)
    assert leader.cooldowns() == [("192.0.2.129", "shop/web"), ("192.0.2.128", "shop/web")]


def test_a_pool_that_is_not_in_force_keeps_its_cool_downs() -> None:
    """After a correction of the pool, the address is still in cool-down."""
    broken = pool("edge", "192.0.2.128/30", "nonsense", cooldown_seconds=60)
    leader = leader_with(entry("192.0.2.128"), pools=(broken,))
    assert leader.cooldowns() == [("192.0.2.128", "shop/web")]
    leader.configure(EDGE)
    assert leader.addresses_for(service("shop/other")) == ["192.0.2.129"]


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


class Model:
    """A simple model: the holder of each address, and each cool-down with its Service and its end."""

    def __init__(self) -> None:
        """Start without holders, with a cool-down of a minute."""
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

    def cooldowns(self) -> dict[Address, tuple[datetime, str]]:
        """The cool-downs now."""
        self.freed = {address: cooling for address, cooling in self.freed.items() if cooling[0] > self.now}
        return {address: cooling for address, cooling in self.freed.items() if address not in self.held.values()}


@pytest.mark.slow
@examples(150, deadline=None)
@given(STEPS)
def test_random_histories_have_the_expected_cool_downs(steps: list[tuple[Any, ...]]) -> None:
    """After any frees, allocations, edits and new terms the cool-downs equal a simple model, and the numbers add up."""
    leader, plain = LeaderLedger(), Model()
    for step in steps:
        match step:
            case "hold", key, address:
                if leader.ledger.cooldown.blocking(address, key) is None and not leader.ledger.claims.holders(address):
                    leader.see(service(key, holds=[str(address)]))
                    plain.hold(key, address)
            case "go", key:
                leader.delete(key)
                plain.hold(key, None)
            case "later", seconds:
                leader.later(seconds)
                plain.now += timedelta(seconds=seconds)
            case "edit", seconds:
                leader.configure(pool("edge", "192.0.2.128/30", cooldown_seconds=seconds))
                plain.cooldown = seconds
                plain.freed = plain.freed if seconds else {}
            case (("restart" | "fail over") as how,):
                learned = [cooling.wire for cooling in leader.ledger.cooldown.of("edge")]
                if how == "restart":
                    leader.ledger = Ledger(leader.pools)
                    leader.see(*(service(key, holds=[str(address)]) for key, address in plain.held.items()))
                else:
                    leader.ledger.cooldown.follow()
                leader.ledger.cooldown.learn("edge", learned)
                leader.ledger.cooldown.lead(leader.now)
                plain.freed = plain.cooldowns()  # what is held again is not written
                longest = leader.now + timedelta(seconds=plain.cooldown)
                plain.freed = {address: (min(until, longest), key) for address, (until, key) in plain.freed.items()}
        expected = plain.cooldowns()
        assert {
            cooling.address: (cooling.until, cooling.service) for cooling in leader.ledger.cooldown.of("edge")
        } == expected
        held = len(plain.held)
        assert leader.ledger.usage("edge")[4] == (4, held, 4 - held - len(expected), len(expected))
        for key in KEYS:
            mine = {address for address, (_, owner) in expected.items() if owner == key}
            open_to = {each for each in ADDRESSES if not leader.ledger.cooldown.blocking(each, key)} - set(
                plain.held.values()
            )
            assert open_to == {*ADDRESSES} - set(plain.held.values()) - (expected.keys() - mine)
