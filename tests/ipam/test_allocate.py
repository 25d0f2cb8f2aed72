"""Which addresses a Service gets, and what it waits for."""

from typing import Any

import pytest

from kavip.api.pool import Reservation, VIPPool
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, decide, settle, waits_for
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.waiters import ANY_POOL
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from kavip.names import Reason
from tests.ipam.deciding import (
    EDGE,
    FULL,
    LAB,
    PREFER,
    REQUIRE,
    SELECTIVE,
    SHARE,
    assigned_addresses,
    ours,
    outcome,
)
from tests.ipam.simulatedcontroller import SimulatedController, entered
from tests.support.build import pool, service


# --- new addresses ----------------------------------------------------------------------------------------------------
def test_the_lowest_free_address_of_the_first_pool() -> None:
    """Priority, then name, then the lowest address; the message names the pool."""
    found = outcome(service("shop/web"), service("a/a", holds=["192.0.2.128"]))
    assert [str(address) for address in found.addresses] == ["192.0.2.129"]
    assert (found.reason, found.message, found.kept) == (Reason.ASSIGNED, "192.0.2.129 from pool edge", False)


def test_a_full_pool_spills_over_to_the_next() -> None:
    """The next pool in order serves when the first has nothing left."""
    assert assigned_addresses(service("shop/web"), *FULL) == ["198.51.100.0"]


@pytest.mark.parametrize(
    ("more", "addresses"),
    [
        ({"families": ("IPv6",)}, ["2001:db8::"]),
        (PREFER, ["198.51.100.0", "2001:db8::"]),
        ({**PREFER, "families": ("IPv6", "IPv4")}, ["2001:db8::", "198.51.100.0"]),
        (REQUIRE, ["198.51.100.0", "2001:db8::"]),
        ({**PREFER, "pool": "edge"}, ["192.0.2.128"]),
        ({**PREFER, "wants": "198.51.100.7"}, ["198.51.100.7", "2001:db8::"]),
        ({**PREFER, "wants": "192.0.2.130"}, ["192.0.2.130"]),
        ({**REQUIRE, "wants": "2001:db8::7", "load_balancer_ip": "198.51.100.7"}, ["198.51.100.7", "2001:db8::7"]),
    ],
)
def test_families_come_from_one_pool_in_the_order_of_the_service(more: dict[str, Any], addresses: list[str]) -> None:
    """PreferDualStack takes the families that are free, and an explicit request selects the pool."""
    assert assigned_addresses(service("shop/web", **more)) == addresses


def test_a_reserved_address_is_given_only_to_its_service() -> None:
    """The Service of the reservation gets it first, other Services never get it."""
    kept = pool("edge", "192.0.2.128/28", reservations=[Reservation(address="192.0.2.128", service="shop/web")])
    assert assigned_addresses(service("shop/api"), pools=(kept,)) == ["192.0.2.129"]
    assert assigned_addresses(service("shop/web"), pools=(kept,)) == ["192.0.2.128"]


def test_a_sharing_key_shares() -> None:
    """Services of one key get one address while their ports differ, and a new one when they do not."""
    first = service("shop/web", holds=["192.0.2.130"], annotations=SHARE, port=80)
    assert assigned_addresses(service("shop/tls", annotations=SHARE, port=443), first) == ["192.0.2.130"]
    assert assigned_addresses(service("shop/more", annotations=SHARE, port=80), first) == ["192.0.2.128"]
    assert assigned_addresses(service("other/tls", annotations=SHARE, port=443), first) == ["192.0.2.128"]


def test_sharing_uses_neither_capacity_nor_quota() -> None:
    """Another Service on a shared address needs no further address and no quota."""
    tight = pool("edge", "192.0.2.128", max_per_namespace=1)
    first = service("shop/web", holds=["192.0.2.128"], annotations=SHARE, port=80)
    assert assigned_addresses(service("shop/tls", annotations=SHARE, port=443), first, pools=(tight,)) == [
        "192.0.2.128"
    ]


def test_prefer_dual_stack_completes_later_from_the_same_pool() -> None:
    """Held addresses stay first. The second family never comes from another pool."""
    half = ours("shop/web", ["192.0.2.130"], **PREFER)
    assert assigned_addresses(half) == ["192.0.2.130"]
    grown = pool("edge", "192.0.2.128/28", "2001:db8:1::/64")
    assert assigned_addresses(half, pools=(grown, LAB)) == ["192.0.2.130", "2001:db8:1::"]


# --- waiting ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("subject", "pools", "names_"),
    [
        (service("a/web"), (EDGE, LAB), ()),
        (service("a/web", pool="edge"), (EDGE, LAB), ("edge",)),
        (service("a/web", wants="192.0.2.130"), (EDGE,), ("edge",)),
        (service("a/web", pool="later"), (EDGE,), (ANY_POOL,)),
        (service("a/web"), (EDGE, SELECTIVE), ("edge",)),
        (service("a/web"), (), (ANY_POOL,)),
        (service("a/web", wants="nonsense"), (EDGE,), ()),
        (ours("a/web", ["192.0.2.130"], **PREFER), (EDGE, LAB), ("edge",)),
        (service("a/web", holds=["10.0.0.1"]), (EDGE,), ()),
    ],
)
def test_a_decision_names_the_pools_to_wait_for(
    subject: Service, pools: tuple[VIPPool, ...], names_: tuple[str, ...]
) -> None:
    """It names the pools that could end the waiting; none if nothing is missing, or if only an edit can help."""
    parsed = Pools.of(pools)
    request, _ = read_request(subject)
    found = settle(subject, parsed, entered(parsed, (subject, *FULL)))
    assert waits_for(request, found, parsed) == names_


# --- properties -------------------------------------------------------------------------------------------------------
def test_a_decision_is_stable() -> None:
    """A decision that was written is repeated with the same words."""
    simulation = SimulatedController([EDGE, LAB])
    for index, more in enumerate([{}, PREFER, REQUIRE, {"pool": "lab"}, {"wants": "192.0.2.140"}]):
        simulation.apply(service(f"a/s{index}", **more))
    simulation.run()
    for each in simulation.services.values():
        again = simulation.settled(each)
        assert isinstance(again, Allocation)
        assert again.kept
        assert again.message == simulation.outcomes[each.key].message
    writes = len(simulation.writes)
    simulation.restart()
    simulation.run()
    assert len(simulation.writes) == writes == len(simulation.services)


def test_decide_changes_nothing() -> None:
    """The webhook may decide any number of times before the controller writes."""
    pools = Pools.of([EDGE])
    ledger = Ledger(pools)
    request, _ = read_request(service("a/web"))
    found = [decide(request, pools, ledger) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert ledger.usage("edge")[4] == (16, 0, 16, 0)


def test_naming_an_address_of_a_pool_names_the_pool() -> None:
    """kavip serves such a Service even where a platform assigns addresses."""
    pools = Pools.of([EDGE])
    requests = [read_request(service("a/web", wants=text))[0] for text in ("192.0.2.130", "10.0.0.1", "")]
    assert [pools.are_named_by(request) for request in requests] == [True, False, False]
