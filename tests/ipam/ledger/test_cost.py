"""The cost of a decision and of its entry in the ledger, in operations: it does not grow with the addresses held."""

from collections.abc import Mapping
from random import Random
from typing import Final

import pytest

from kavip.api.address import parse_address
from kavip.api.meta import LabelSelector
from kavip.api.refusal import Refusal
from kavip.ipam.allocate import Allocation, decide
from kavip.ipam.ledger.cooldown import MAX_COOLING
from kavip.ipam.request import Request, read_request
from tests.ipam.ledger.leaderledger import LeaderLedger
from tests.support.build import pool, service
from tests.support.operations import calls, instructions

LABELS: Final = {"env": "prod"}
SELECTOR: Final = LabelSelector(match_labels=LABELS)
FIRST: Final = parse_address("192.0.2.1")


def request(number: int) -> Request:
    """The request of one Service of many."""
    return read_request(service(f"shop/s{number:05}"))[0]


def allocate(leader: LeaderLedger, number: int) -> None:
    """Allocate an address to a Service, and enter it."""
    subject = service(f"shop/s{number:05}")
    leader.see(subject)
    enter(leader, read_request(subject)[0])


def enter(leader: LeaderLedger, wanted: Request) -> None:
    """Decide and expect the write."""
    found = decide(wanted, leader.pools, leader.ledger)
    assert isinstance(found, Allocation)
    leader.ledger.expect(wanted.key, found.addresses, resource_version="1")


def holders(leader: LeaderLedger, count: int) -> LeaderLedger:
    """The same with the addresses of *count* Services."""
    for number in range(count):
        allocate(leader, number)
    return leader


def test_a_plain_service_does_not_pay_for_features_that_it_does_not_use() -> None:
    """To allocate one address, to keep it, and to refuse one call few functions."""
    leader = LeaderLedger(pool("edge", "192.0.2.1", service_selector=SELECTOR, namespace_selector=SELECTOR))
    holder, other = (read_request(service(f"shop/{name}", labels=LABELS))[0] for name in ("a", "b"))
    costs = [
        calls(lambda: decided(leader, holder)),
        calls(lambda: leader.ledger.expect(holder.key, [FIRST], resource_version="1")),
        calls(lambda: decided(leader, holder)),
        calls(lambda: decided(leader, other)),
    ]
    assert [cost <= most for cost, most in zip(costs, (80, 45, 70, 100), strict=True)] == [True] * 4, costs


def decided(leader: LeaderLedger, wanted: Request) -> Allocation | Refusal:
    """The decision about a Service of a namespace with labels."""
    return decide(wanted, leader.pools, leader.ledger, namespace_labels=LABELS)


def test_an_allocation_evaluates_each_selector_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that serves the Service is not evaluated again for the address that it gives."""
    evaluated: list[Mapping[str, str] | None] = []

    def counting(self: LabelSelector, labels: Mapping[str, str] | None) -> bool:
        evaluated.append(labels)
        return matches(self, labels)

    matches = LabelSelector.matches
    monkeypatch.setattr(LabelSelector, "matches", counting)
    leader = LeaderLedger(pool("edge", service_selector=SELECTOR, namespace_selector=SELECTOR))
    assert isinstance(decided(leader, read_request(service("shop/web", labels=LABELS))[0]), Allocation)
    assert evaluated == [LABELS, LABELS]  # of the namespace and of the Service


def test_a_full_pool_refuses_at_the_same_cost_whatever_its_size() -> None:
    """A /21 that is full costs a refusal as many operations as a full /28."""
    costs, wanted = [], request(9999)
    for length in (28, 21):
        leader = holders(LeaderLedger(pool("edge", f"10.0.0.0/{length}")), 1 << (32 - length))
        decide(wanted, leader.pools, leader.ledger)  # the first refusal fills caches
        costs.append(instructions(lambda: decide(wanted, leader.pools, leader.ledger)))  # noqa: B023 - called here
    assert costs[0] == costs[1]


def test_the_last_address_costs_as_much_as_any() -> None:
    """The last free address of a /21 beside an empty /8 costs as many operations as that of a /28 beside a /28."""
    costs = []
    for length, other in ((28, 28), (21, 8)):
        pools = pool("edge", f"10.0.0.0/{length}"), pool("wide", f"11.0.0.0/{other}", priority=200)
        leader, wanted = holders(LeaderLedger(*pools), (1 << (32 - length)) - 1), request(9999)
        costs.append(instructions(lambda: enter(leader, wanted)))  # noqa: B023 - called here
    assert costs[0] == costs[1]


@pytest.mark.parametrize("cooldown", [0, 3600])
def test_turnover_costs_the_same_for_ever(cooldown: int) -> None:
    """To free an address and to allocate one costs as much after many rounds as once the most addresses cool down."""
    count = 2 * MAX_COOLING
    leader = holders(LeaderLedger(pool("edge", "10.0.0.0/21", cooldown_seconds=cooldown)), count)
    random = Random(1)

    def rounds(number: int) -> None:
        for _ in range(number):
            at = random.randrange(count)
            leader.delete(f"shop/s{at:05}")
            allocate(leader, at)

    costs = []
    for before in (count, 4 * count):
        rounds(before)
        costs.append(instructions(lambda: rounds(100)))
    assert costs[1] <= 1.05 * costs[0]
