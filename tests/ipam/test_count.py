"""Several addresses per family: ``kavip.io/address-count``."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.pool import Reservation
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, waits_for
from kavip.ipam.explain import PoolRole, explain
from kavip.ipam.ledger.freelist import FreeList
from kavip.ipam.pools import Pools
from kavip.ipam.record import Record
from kavip.ipam.request import Request, read_request
from kavip.names import Reason
from tests.ipam.deciding import FULL, PREFER, REQUIRE, SHARE, assigned_addresses, outcome, with_reason
from tests.ipam.ledger.leaderledger import NOW
from tests.ipam.simulatedcontroller import SimulatedController, entered, with_status
from tests.support.build import pool, service

FIELD = "metadata.annotations[kavip.io/address-count]"
SMALL = pool("edge", "192.0.2.0-192.0.2.3", "2001:db8::-2001:db8::3")


def counted(number: int | str, *, holds: list[str] | None = None, **more: Any) -> Service:
    """The Service a/web that requests this *number* of addresses per family; kavip gave it what it *holds*."""
    notes = {names.COUNT_ANNOTATION: str(number), **more.pop("annotations", {})}
    found = service("a/web", annotations=notes, holds=holds or [], **more)
    return with_reason(found, Reason.ASSIGNED) if holds else found


def addresses(found: Allocation | Refusal) -> list[str]:
    """The addresses of an outcome."""
    return [] if isinstance(found, Refusal) else [str(address) for address in found.addresses]


# --- the annotation ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["0", "33", "-1", "+2", "1.0", "two", "02", "9" * 4000, "٣"])
def test_a_number_outside_the_limits_is_refused(text: str) -> None:
    """Field, value and remedy are named, and the rest of the Service is read."""
    request, (finding,) = read_request(counted(text, wants="192.0.2.1, 192.0.2.2"))
    assert (finding.reason, finding.field) == (Reason.INVALID_REQUEST, FIELD)
    assert "want a number from 1 to 32" in finding.message
    assert len(request.wanted) == 2
    assert counted(text).address_count is None


@pytest.mark.parametrize(("number", "more"), [(32, {}), (16, PREFER), (16, REQUIRE), (" 2 ", {}), ("", {})])
def test_a_service_has_at_most_32_addresses(number: int | str, more: dict[str, Any]) -> None:
    """The limit holds over both families together."""
    assert not read_request(counted(number, **more))[1]


def test_more_than_32_addresses_over_both_families_are_refused() -> None:
    """The message has the sum and the highest number."""
    request, (finding,) = read_request(counted(17, **PREFER))
    assert finding.field == FIELD
    assert finding.message == f"{FIELD}: '17': 34 addresses over 2 families; want at most 16 per family, 32 together"
    assert request.number == 16


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"wants": "192.0.2.1, 192.0.2.2, 192.0.2.3"}, "has 3 IPv4 addresses; want at most 2 per family"),
        ({"wants": "192.0.2.1, 192.0.2.1"}, "has 192.0.2.1 twice"),
        ({"wants": ",".join(f"192.0.2.{number}" for number in range(33))}, "has more than 32 items"),
        (
            {"wants": "192.0.2.1, 192.0.2.2", "load_balancer_ip": "192.0.2.3"},
            "192.0.2.1, 192.0.2.2 contradict spec.loadBalancerIP 192.0.2.3",
        ),
    ],
)
def test_named_addresses_are_at_most_as_many(more: dict[str, Any], message: str) -> None:
    """Addresses that are requested by name count into the number."""
    _, (finding,) = read_request(counted(2, **more))
    assert (finding.reason, finding.field) == (Reason.INVALID_REQUEST, "metadata.annotations[kavip.io/addresses]")
    assert message in finding.message


def test_load_balancer_ip_is_one_more_named_address() -> None:
    """It contradicts the annotation only if that names as many as are requested."""
    request, findings = read_request(counted(2, wants="192.0.2.1", load_balancer_ip="192.0.2.2"))
    assert not findings
    assert [str(address) for address in request.wanted] == ["192.0.2.1", "192.0.2.2"]
    assert [request.field_of(address) for address in request.wanted][1] == "spec.loadBalancerIP"


# --- new addresses ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ["192.0.2.0", "192.0.2.1", "192.0.2.2"]),
        ({"wants": "192.0.2.3"}, ["192.0.2.3", "192.0.2.0", "192.0.2.1"]),
        ({"wants": "192.0.2.1"}, ["192.0.2.1", "192.0.2.0", "192.0.2.2"]),
        (
            PREFER,
            ["192.0.2.0", "192.0.2.1", "192.0.2.2", "2001:db8::", "2001:db8::1", "2001:db8::2"],
        ),
        (
            {**REQUIRE, "families": ("IPv6", "IPv4"), "load_balancer_ip": "2001:db8::2"},
            ["2001:db8::2", "2001:db8::", "2001:db8::1", "192.0.2.0", "192.0.2.1", "192.0.2.2"],
        ),
    ],
)
def test_so_many_addresses_are_given_of_each_family(more: dict[str, Any], expected: list[str]) -> None:
    """Named ones first, then the lowest free ones, in the order of the families."""
    assert assigned_addresses(counted(3, **more), pools=(SMALL,)) == expected


def test_all_addresses_come_from_one_pool() -> None:
    """The first pool that has enough for all of them."""
    first = pool("first", "198.51.100.0/31")
    assert assigned_addresses(counted(3), pools=(first, SMALL)) == ["192.0.2.0", "192.0.2.1", "192.0.2.2"]


def test_the_message_records_the_number() -> None:
    """So that the addresses go when the annotation does."""
    found = outcome(counted(2), pools=(SMALL,))
    assert found.message == "192.0.2.0 and 192.0.2.1 from pool edge (kavip.io/address-count: 2)"
    assert Record(found.reason, found.message).number == 2
    assert Record(found.reason, Record(found.reason, found.message).with_group("lb/edge")).number == 2
    assert Record("Assigned", "192.0.2.0 from pool edge").number == 0


def test_reserved_and_cooling_addresses_are_given_first() -> None:
    """As for one address: reserved ones, those that the Service freed, then free ones."""
    kept = [Reservation(address="192.0.2.3", service="a/web")]
    one = pool("edge", "192.0.2.0-192.0.2.4", reservations=kept, cooldown_seconds=600)
    simulation = SimulatedController([one])
    simulation.ledger.cooldown.lead(NOW)
    simulation.apply(counted(3))
    simulation.run()
    assert simulation.held("a/web") == ["192.0.2.3", "192.0.2.0", "192.0.2.1"]
    simulation.apply(counted(2))
    simulation.run()
    simulation.ledger.cooldown.start(NOW)
    assert simulation.held("a/web") == ["192.0.2.3", "192.0.2.0"]
    simulation.apply(service("a/other"))
    simulation.run()
    assert simulation.held("a/other") == ["192.0.2.2"]  # 192.0.2.1 cools down for a/web
    simulation.apply(counted(4))
    simulation.run()
    assert simulation.held("a/web") == ["192.0.2.3", "192.0.2.0", "192.0.2.1", "192.0.2.4"]


def test_sharing_keys_share_each_address_once() -> None:
    """A Service takes the addresses of its sharing key that it does not have yet, then free ones."""
    first = with_reason(
        service(
            "a/tls", annotations={**SHARE, names.COUNT_ANNOTATION: "2"}, holds=["192.0.2.1", "192.0.2.2"], port=443
        ),
        Reason.ASSIGNED,
    )
    wide = counted(3, annotations=SHARE)
    assert assigned_addresses(wide, first, pools=(SMALL,)) == ["192.0.2.1", "192.0.2.2", "192.0.2.0"]
    grown = counted(2, annotations=SHARE, holds=["192.0.2.1"])
    assert assigned_addresses(grown, first, pools=(SMALL,)) == ["192.0.2.1", "192.0.2.2"]


# --- too few addresses ------------------------------------------------------------------------------------------------
def test_a_service_takes_what_the_pool_has_and_says_what_is_missing() -> None:
    """It has at least some; the condition is False, and the message the same when it is decided again."""
    first = outcome(counted(6), pools=(SMALL,))
    assert addresses(first) == ["192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert (first.reason, first.is_assigned, first.refusal.field) == (Reason.POOL_EXHAUSTED, False, FIELD)
    text = "4 of 6 IPv4 addresses: pool edge has no more; free an address or enlarge the pool, or lower the count"
    kept = "192.0.2.0, 192.0.2.1, 192.0.2.2, 192.0.2.3"
    assert first.message == f"{text} (kavip.io/address-count: 6); keeps {kept}"
    stored = with_status(counted(6), first.addresses, first)
    again = outcome(stored, pools=(SMALL,))
    assert (again.message, again.kept) == (first.message, True)
    assert waits_for(read_request(stored)[0], again, Pools.of([SMALL])) == ("edge",)


def test_the_quota_limits_the_number() -> None:
    """The reason is that of the quota; both families count."""
    tight = pool("edge", "192.0.2.0/28", "2001:db8::/120", max_per_namespace=3)
    found = outcome(counted(4), pools=(tight,))
    assert (found.reason, len(found.addresses)) == (Reason.QUOTA_EXCEEDED, 3)
    assert "4 IPv4 addresses: namespace a may hold no more addresses of pool edge (maxPerNamespace)" in found.message
    dual = outcome(counted(2, **PREFER), pools=(tight,))
    assert (dual.reason, addresses(dual)) == (Reason.ASSIGNED, ["192.0.2.0", "192.0.2.1", "2001:db8::"])
    assert "1 of 2 IPv6 addresses yet: namespace a may hold no more" in dual.message
    assert outcome(counted(2, **REQUIRE), pools=(tight,)).reason is Reason.QUOTA_EXCEEDED


def test_require_dual_stack_gets_all_or_nothing() -> None:
    """What it has stays while the rest is missing."""
    narrow = pool("edge", "192.0.2.0/28", "2001:db8::/127")
    assert isinstance(outcome(counted(3, **REQUIRE), pools=(narrow,)), Refusal)
    grown = outcome(counted(3, **REQUIRE, holds=["192.0.2.0", "2001:db8::"]), pools=(narrow,))
    assert (grown.reason, addresses(grown)) == (Reason.POOL_EXHAUSTED, ["192.0.2.0", "2001:db8::"])


def test_prefer_dual_stack_is_served_with_all_addresses_of_one_family() -> None:
    """The other family follows when it can."""
    narrow = pool("edge", "192.0.2.0/28", "2001:db8::")
    found = outcome(counted(2, **PREFER), pools=(narrow,))
    assert (found.reason, addresses(found)) == (Reason.ASSIGNED, ["192.0.2.0", "192.0.2.1", "2001:db8::"])
    assert "1 of 2 IPv6 addresses yet" in found.message


def test_a_named_address_that_is_in_use_changes_nothing() -> None:
    """The Service keeps all that it has, with the reason."""
    asks = counted(2, holds=["192.0.2.0", "192.0.2.1"], wants="192.0.2.3")
    found = outcome(asks, service("a/other", holds=["192.0.2.3"]), pools=(SMALL,))
    assert (found.reason, addresses(found)) == (Reason.ADDRESS_IN_USE, ["192.0.2.0", "192.0.2.1"])


def test_another_pool_takes_a_service_whole_or_not_at_all() -> None:
    """A Service does not change three addresses for one."""
    holds = ["192.0.2.0", "192.0.2.1", "192.0.2.2"]
    found = outcome(counted(3, holds=holds, pool="tiny"), pools=(SMALL, pool("tiny", "198.51.100.0")))
    assert (found.reason, addresses(found)) == (Reason.POOL_EXHAUSTED, holds)
    wide = pool("tiny", "198.51.100.0/30")
    moved = assigned_addresses(counted(3, holds=holds, pool="tiny"), pools=(SMALL, wide))
    assert moved == ["198.51.100.0", "198.51.100.1", "198.51.100.2"]


def test_a_full_pool_is_described_with_the_number_that_is_needed() -> None:
    """A pool with some free addresses is not full, but has too few."""
    found = outcome(counted(3, **REQUIRE), *FULL[:14], pools=(pool("edge", "192.0.2.128/28", "2001:db8::/120"),))
    assert isinstance(found, Refusal)
    assert found.message.startswith("pool edge has too few: IPv4 14 of 16 assigned; 6 needed;")


# --- the request and its explanation ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("request_", "held", "lacks"),
    [
        (counted(2), [], (4, 4)),
        (counted(2), ["192.0.2.0"], (4,)),
        (counted(2, wants="192.0.2.3"), ["192.0.2.0", "192.0.2.1"], (4,)),
        (counted(2, wants="192.0.2.3"), ["192.0.2.0", "192.0.2.3"], ()),
        (counted(2, **PREFER), ["192.0.2.0", "2001:db8::"], (4, 6)),
        (service("a/web"), ["192.0.2.0", "192.0.2.1"], ()),
    ],
)
def test_what_is_missing(request_: Service, held: list[str], lacks: tuple[int, ...]) -> None:
    """One family for each missing address; a named address takes the place of another."""
    found: Request = read_request(request_)[0]
    holds = service("a/x", holds=held).ingress_addresses
    assert found.lacking(holds) == lacks


def test_a_decision_reads_the_ledger_only() -> None:
    """The free addresses are the same after a decision about many."""
    pools = Pools.of([SMALL])
    ledger = entered(pools, [service("a/x", holds=["192.0.2.1"])])
    before = ledger.usage("edge")
    for _ in range(3):
        found = outcome(counted(3), service("a/x", holds=["192.0.2.1"]), pools=(SMALL,))
        assert addresses(found) == ["192.0.2.0", "192.0.2.2", "192.0.2.3"]
    assert ledger.usage("edge") == before


def test_pools_with_too_few_addresses_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their free addresses are counted, not listed."""
    small = [pool(f"p{number:03}", f"10.0.{number}.0-10.0.{number}.30", priority=1) for number in range(200)]
    listed: list[int] = []
    lowest_of = FreeList.lowest_of

    def counting(self: FreeList, number: int) -> list[int]:
        listed.append(number)
        return lowest_of(self, number)

    monkeypatch.setattr(FreeList, "lowest_of", counting)
    found = outcome(counted(32), pools=(*small, pool("wide", "10.1.0.0/24")))
    assert (found.pools, len(found.addresses), listed) == (("wide",), 32, [32])


def test_the_explanation_has_the_number() -> None:
    """A pool that has a part of the addresses says how many it lacks."""
    parsed = Pools.of([pool("edge", "192.0.2.0/31"), pool("wide", "198.51.100.0/28", priority=200)])
    found = explain(counted(3), parsed, entered(parsed, ()))
    (edge, wide) = found.pools
    assert (edge.role, wide.role) == (PoolRole.PARTLY, PoolRole.GIVES)
    assert edge.rules[-1].text == "2 of 2 free, 0 assigned, 3 needed; next for this Service: 192.0.2.0, 192.0.2.1"
    assert [each.why for each in found.addresses] == ["a free address of pool wide"] * 3


@given(
    held=st.lists(st.integers(0, 5), unique=True, max_size=4),
    taken=st.sets(st.integers(0, 5), max_size=3),
    named=st.lists(st.integers(0, 5), unique=True, max_size=3),
    number=st.integers(1, 7),
)
def test_the_addresses_are_those_of_the_rules(held: list[int], taken: set[int], named: list[int], number: int) -> None:
    """An oracle: named ones, then the first that it has, then the lowest free ones; a refused name adds nothing."""
    taken -= set(held)
    named = named[:number]
    others = [service(f"z/{each}", holds=[f"192.0.2.{each}"]) for each in sorted(taken)]
    wants = ",".join(f"192.0.2.{each}" for each in named)
    subject = counted(number, holds=[f"192.0.2.{each}" for each in held], wants=wants)
    found = outcome(subject, *others, pools=(pool("edge", "192.0.2.0-192.0.2.5"),))
    if taken.intersection(named):
        first = sorted(held, key=lambda each: each not in named)[:number]
        expected = [each for each in held if each in first]
    else:
        room = number - len(named)
        unnamed = [each for each in held if each not in named][:room]
        kept = [each for each in held if each in named or each in unnamed]
        free = [each for each in range(6) if each not in {*held, *taken, *named}]
        new = [*(each for each in named if each not in held), *free[: max(room - len(unnamed), 0)]]
        expected = [*kept, *new]
    assert addresses(found) == [f"192.0.2.{each}" for each in expected]
    is_whole = len(expected) == number and not taken.intersection(named)
    assert (isinstance(found, Allocation) and found.refusal is None) == is_whole
