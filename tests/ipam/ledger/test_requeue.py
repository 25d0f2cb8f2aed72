"""Requeues after a change in the ledger: exactly the Services that the change may help."""

from typing import Any

import pytest

from kavip.api.pool import Reservation
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.offers import Offers
from kavip.ipam.ledger.waiters import Waiter
from kavip.ipam.pools import Pools
from tests.ipam.book import DUAL, SHARE, ip, wait
from tests.support.build import pool, service


def test_a_freed_address_requeues_exactly_those_that_can_use_it() -> None:
    """Oldest first, one by one, except Services with another family, pool or request, or beyond their quota."""
    pools = Pools.of(
        [
            pool("four", "192.0.2.0/31", max_per_namespace=2),
            pool("six", "2001:db8::/127"),
            pool("other", "198.51.100.0", auto_assign=False),
        ]
    )
    ledger = Ledger(pools)
    addresses = ("192.0.2.0", "192.0.2.1", "2001:db8::", "2001:db8::1", "198.51.100.0")
    for address, key in zip(addresses, ("a/h0", "a/h1", "c/h2", "c/h3", "c/h4"), strict=True):
        ledger.observe(key, service(key, holds=[address]))
    waiters: dict[str, dict[str, Any]] = {
        "b/young": {"created": "2025"},
        "b/old": {"created": "2020"},
        "b/six": {"families": ("IPv6",)},
        "b/other": {"pool": "other"},
        "b/wants0": {"wants": "192.0.2.0", "created": "2019"},
        "b/wants1": {"wants": "192.0.2.1", "created": "2018"},
        "b/both": {"families": ("IPv4", "IPv6"), "ip_family_policy": "RequireDualStack"},
    }
    wait(ledger, pools, *(service(key, **more) for key, more in waiters.items()))
    assert ledger.drain_requeues() == ()
    ledger.observe("a/h0", None)
    for key in ("b/wants0", "b/old", "b/young"):
        assert ledger.drain_requeues() == (key,)
        assert ledger.drain_requeues() == ()
        ledger.waiters.answer(key)
    assert ledger.drain_requeues() == ()
    ledger.observe("c/h4", None)
    assert ledger.drain_requeues() == ("b/other",)
    assert set(ledger.waiters.by_age()) == set(waiters)


def test_a_free_address_requeues_one_waiter_after_the_other() -> None:
    """The next one is requeued if a Service does not take the address, until no address is left."""
    pools = Pools.of([pool("edge", "192.0.2.0/31")])
    ledger = Ledger(pools)
    holders = [service(f"a/h{index}", holds=[f"192.0.2.{index}"]) for index in range(2)]
    for each in holders:
        ledger.observe(each.key, each)
    waiters = [service(f"a/w{index}", created=f"202{index}") for index in range(6)]
    wait(ledger, pools, *waiters)
    ledger.observe("a/h0", None)
    ledger.observe("a/h1", None)
    assert ledger.drain_requeues() == ("a/w0",)
    ledger.waiters.answer("a/w0")
    assert ledger.drain_requeues() == ("a/w1",)
    ledger.observe("a/w1", None)
    assert ledger.drain_requeues() == ("a/w2",)
    ledger.waiters.drop("a/w2")
    assert ledger.drain_requeues() == ("a/w3",)
    ledger.expect("a/w3", [ip("192.0.2.0")])
    assert ledger.drain_requeues() == ("a/w0",)  # it did not use the address before, but may now
    ledger.expect("a/w0", [ip("192.0.2.1")])
    assert ledger.drain_requeues() == ()
    assert ledger.waiters.by_age() == ("a/w4", "a/w5")


def test_equal_waiters_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work for a freed address does not grow with the number of waiting Services."""
    pools = Pools.of([pool("edge", "192.0.2.0/31")])
    evaluated: list[str] = []
    can_serve = Offers.can_serve

    def counting(self: Offers, name: str, waiter: Waiter) -> bool:
        evaluated.append(waiter.request.key)
        return can_serve(self, name, waiter)

    monkeypatch.setattr(Offers, "can_serve", counting)
    ledger = Ledger(pools)
    for index in range(2):
        ledger.observe(f"a/h{index}", service(f"a/h{index}", holds=[f"192.0.2.{index}"]))
    wait(ledger, pools, *(service(f"{'ab'[index % 2]}/w{index:03}") for index in range(300)))
    ledger.observe("a/h0", None)
    assert ledger.drain_requeues() == ("a/w000",)
    ledger.expect("a/w000", [ip("192.0.2.0")])
    assert ledger.drain_requeues() == ()
    assert evaluated == ["a/w000", "a/w002", "b/w001"]


def test_services_that_request_an_address_are_requeued_when_its_holder_changes() -> None:
    """Their messages name the holder, so all of them are requeued, the oldest first."""
    pools = Pools.of([pool("edge", "192.0.2.0/31")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"]))
    asking = [service(f"a/w{year}", wants="192.0.2.1", created=year) for year in ("2025", "2020")]
    for each in asking:
        ledger.observe(each.key, each)
    wait(ledger, pools, *asking)
    ledger.observe("a/h", None)
    assert ledger.drain_requeues() == ("a/w2020", "a/w2025")
    ledger.observe("a/new", service("a/new", holds=["192.0.2.1"]))
    assert ledger.drain_requeues() == ("a/w2020", "a/w2025")


def test_freed_quota_requeues_the_services_of_its_namespace() -> None:
    """A Service in a namespace at its limit waits for addresses of that namespace, not of others."""
    pools = Pools.of([pool("edge", "192.0.2.0/29", "2001:db8::/125", max_per_namespace=1)])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["2001:db8::1"], families=("IPv6",)))
    ledger.observe("b/h", service("b/h", holds=["192.0.2.1"]))
    wait(ledger, pools, service("a/web"))
    ledger.observe("b/h", None)
    assert ledger.drain_requeues() == ()
    ledger.observe("a/h", None)
    assert ledger.drain_requeues() == ("a/web",)


def test_quota_for_one_family_requeues() -> None:
    """At the limit, a PreferDualStack Service cannot take a free IPv4 address, but it can share an IPv6 address."""
    pools = Pools.of([pool("edge", "192.0.2.0/31", "2001:db8::/127", max_per_namespace=1)])
    ledger = Ledger(pools)
    fellow = service("a/h", holds=["2001:db8::"], families=("IPv6",), annotations=SHARE, port=80)
    ledger.observe("a/h", fellow)
    wait(ledger, pools, service("a/web", ip_family_policy="PreferDualStack", annotations=SHARE, port=80, **DUAL))
    assert ledger.drain_requeues() == ()
    ledger.observe("a/h", service("a/h", holds=["2001:db8::"], families=("IPv6",), annotations=SHARE, port=443))
    assert ledger.drain_requeues() == ("a/web",)


def test_a_freed_port_requeues_the_sharer() -> None:
    """An address can become shareable although it is not freed."""
    pools = Pools.of([pool("edge", "192.0.2.1")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"], annotations=SHARE, port=80))
    wait(ledger, pools, service("a/web", annotations=SHARE, port=80))
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"], annotations=SHARE, port=443))
    assert ledger.drain_requeues() == ("a/web",)


def test_a_reservation_requeues_its_own_service() -> None:
    """When the holder of a reserved address is deleted, only the Service of the reservation is requeued."""
    reservation = Reservation(address="192.0.2.1", service="a/web")
    pools = Pools.of([pool("edge", "192.0.2.1", reservations=[reservation])])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"]))
    wait(ledger, pools, service("a/web"), service("a/api"))
    ledger.observe("a/h", None)
    assert ledger.drain_requeues() == ("a/web",)


def test_prefer_dual_stack_waits_for_its_second_family() -> None:
    """The missing address must come from the pool of the first. The Service is requeued when it is freed."""
    pools = Pools.of([pool("edge", "192.0.2.0/31", "2001:db8::1")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["2001:db8::1"], families=("IPv6",)))
    half = service("a/web", ip_family_policy="PreferDualStack", holds=["192.0.2.0"], **DUAL)
    wait(ledger, pools, half)
    ledger.observe("a/h", None)
    assert ledger.drain_requeues() == ("a/web",)


def test_a_service_that_is_served_or_deleted_no_longer_waits() -> None:
    """An expectation, a deletion and a change of type end the waiting."""
    pools = Pools.of([pool("edge", "192.0.2.1")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"]))
    wait(ledger, pools, *(service(f"a/w{index}") for index in range(4)))
    ledger.expect("a/w0", [ip("192.0.2.9")])
    ledger.observe("a/w1", None)
    ledger.observe("a/w2", service("a/w2", type="ClusterIP"))
    assert ledger.waiters.by_age() == ("a/w3",)
