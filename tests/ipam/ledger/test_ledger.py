"""The ledger: holders, stale caches, counters."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, settle
from kavip.ipam.pools import Pools
from tests.ipam.book import EDGE, SHARE, at, ip, ledger_of
from tests.support.build import metadata, pool, service


@given(
    st.permutations(
        [
            service("a/old", holds=["192.0.2.1"], created="2020"),
            service("a/new", holds=["192.0.2.1", "192.0.2.2"], created="2021"),
            service("b/web", holds=["192.0.2.3"], annotations=SHARE, port=80),
            service("b/api", holds=["192.0.2.3"], annotations=SHARE, port=443),
            service("b/dup", holds=["192.0.2.3"], annotations=SHARE, port=443, created="2027"),
            service("c/ext", type="ClusterIP", external_ips=["192.0.2.1", "192.0.2.5"], created="2019"),
        ]
    )
)
def test_the_order_of_events_does_not_matter(services: list[Service]) -> None:
    """Holders, counters and free addresses are a function of the objects, not of how they came."""
    ledger = ledger_of(*services)
    assert [terms.key for terms in ledger.claims.holders(ip("192.0.2.1"))] == ["a/old"]
    assert [terms.key for terms in ledger.claims.holders(ip("192.0.2.3"))] == ["b/api", "b/web"]
    assert [terms.key for terms in ledger.claims.claimants(ip("192.0.2.1"))] == ["c/ext", "a/old", "a/new"]
    assert ledger.usage("edge") == {4: (8, 4, 4, 0), 6: (8, 0, 8, 0)}


def test_observing_again_changes_nothing() -> None:
    """A repeated event and the deletion of an unknown object change nothing."""
    holder = service("a/web", holds=["192.0.2.1"], external_ips=["192.0.2.1", "192.0.2.2"])
    ledger = ledger_of(holder, holder)
    ledger.observe("a/gone", None)
    assert ledger.usage("edge")[4] == (8, 2, 6, 0)
    ledger.observe("a/web", None)
    ledger.observe("a/web", None)
    assert ledger.usage("edge")[4] == (8, 0, 8, 0)


def test_a_service_of_another_type_holds_no_ingress_address() -> None:
    """An address in the status of a ClusterIP Service has no holder. Its externalIPs do."""
    ledger = ledger_of(service("a/web", type="ClusterIP", holds=["192.0.2.1"], external_ips=["192.0.2.2"]))
    assert ledger.claims.holders(ip("192.0.2.1")) == ()
    assert [terms.key for terms in ledger.claims.claimants(ip("192.0.2.2"))] == ["a/web"]


def test_a_stale_copy_gets_neither_the_freed_nor_a_second_address() -> None:
    """A is deleted, and B is planned again from a copy without status: B keeps the address that was written for it."""
    pools = Pools.of([EDGE])
    first, second = at(10, service("a/first")), at(11, service("a/second"))
    ledger = ledger_of(first, second, pools=pools)
    for each in (first, second):
        outcome = settle(each, pools, ledger)
        assert isinstance(outcome, Allocation)
        ledger.expect(each.key, outcome.addresses, resource_version=each.metadata.resource_version)
    ledger.observe("a/first", None)
    ledger.observe("a/second", second)  # repeated by the watch, still without status
    outcome = settle(second, pools, ledger)
    assert isinstance(outcome, Allocation)
    assert (outcome.addresses, outcome.kept) == ((ip("192.0.2.1"),), True)
    assert [terms.key for terms in ledger.claims.holders(ip("192.0.2.1"))] == ["a/second"]


def test_a_refused_second_write_does_not_forget_the_first() -> None:
    """A second write gets a 409 because of the first. The address of the first write stays in use."""
    ledger = ledger_of(at(10, service("a/web")))
    ledger.expect("a/web", [ip("192.0.2.0")], resource_version="10")
    ledger.expect("a/web", [ip("192.0.2.3")], resource_version="10")
    ledger.abandon("a/web")
    assert ledger.held("a/web") == (ip("192.0.2.0"),)
    assert ledger.usage("edge")[4].available == 7


@pytest.mark.parametrize(("seen", "held"), [(9, "192.0.2.0"), (10, "192.0.2.0"), (11, "192.0.2.5")])
def test_an_expectation_ends_with_anything_newer(seen: int, held: str) -> None:
    """A copy of the version before the write, or an older one, is stale. Any newer copy ends the expectation."""
    ledger = ledger_of(at(10, service("a/web")))
    ledger.expect("a/web", [ip("192.0.2.0")], resource_version="10")
    ledger.observe("a/web", at(seen, service("a/web", holds=["192.0.2.5"])))
    assert ledger.held("a/web") == (ip(held),)
    assert ledger.is_expecting("a/web") == (seen <= 10)


def test_a_new_term_expects_nothing() -> None:
    """Addresses of open writes of an earlier term are free, without a cool-down. Addresses in a status stay."""
    holder = at(5, service("a/holds", holds=["192.0.2.1"]))
    ledger = ledger_of(holder, at(5, service("a/waits")))
    ledger.expect("a/holds", [ip("192.0.2.2")], resource_version="5")
    ledger.expect("a/waits", [ip("192.0.2.0")], resource_version="5")
    ledger.expect("a/unseen", [ip("192.0.2.3")], resource_version="5")
    ledger.drop_expectations()
    fresh = ledger_of(holder, at(5, service("a/waits")))
    assert ledger.held("a/holds") == (ip("192.0.2.1"),)
    assert (ledger.held("a/waits"), ledger.held("a/unseen")) == ((), None)
    assert ledger.usage("edge") == fresh.usage("edge")


def test_without_a_version_only_an_equal_status_ends_an_expectation() -> None:
    """A write without a resourceVersion is expected until it is seen."""
    ledger = ledger_of(service("a/web"))
    ledger.expect("a/web", [ip("192.0.2.0")])
    ledger.observe("a/web", at(99, service("a/web")))
    assert ledger.held("a/web") == (ip("192.0.2.0"),)
    ledger.observe("a/web", service("a/web", holds=["192.0.2.0"]))
    assert not ledger.is_expecting("a/web")


def test_during_a_move_both_addresses_are_in_use() -> None:
    """The old address is free only when the write is seen."""
    ledger = ledger_of(at(10, service("a/web", holds=["192.0.2.0"])))
    ledger.expect("a/web", [ip("192.0.2.1")], resource_version="10")
    assert ledger.usage("edge")[4].available == 6
    ledger.observe("a/web", at(11, service("a/web", holds=["192.0.2.1"])))
    assert ledger.usage("edge")[4].available == 7


def test_a_recreated_service_has_no_expectation() -> None:
    """An expectation of the first Service of a name does not apply to the second."""
    ledger = ledger_of(at(10, service("a/web")))
    ledger.expect("a/web", [ip("192.0.2.0")], resource_version="10")
    ledger.observe("a/web", None)
    ledger.observe("a/web", at(20, service("a/web")))
    assert ledger.held("a/web") == ()
    assert ledger.usage("edge")[4].available == 8


def test_nodes_and_groups_keep_their_own_addresses() -> None:
    """A reserved address is given to no Service until its node or group no longer has it."""
    ledger = ledger_of()
    ledger.reserve("Node n1", [ip("192.0.2.0"), ip("192.0.2.1")])
    ledger.reserve("KeepalivedGroup lb/edge", [ip("192.0.2.0")])
    assert ledger.owner(ip("192.0.2.0")) == "KeepalivedGroup lb/edge"
    ledger.reserve("Node n1", [ip("192.0.2.1")])
    assert ledger.usage("edge")[4] == (8, 0, 6, 0)
    ledger.reserve("Node n1", [])
    ledger.reserve("KeepalivedGroup lb/edge", [])
    assert ledger.usage("edge")[4] == (8, 0, 8, 0)


def test_configure_counts_again() -> None:
    """After an edit of the pools every holder keeps its addresses, and the counts are those of the new pools."""
    ledger = ledger_of(service("a/web", holds=["192.0.2.1"]), service("a/api", holds=["192.0.2.6"]))
    ledger.reserve("Node n1", [ip("192.0.2.2")])
    ledger.configure(Pools.of([pool("edge", "192.0.2.0/30")]))
    assert ledger.usage("edge") == {4: (4, 1, 2, 0)}
    ledger.observe("a/web", None)
    assert ledger.usage("edge") == {4: (4, 0, 3, 0)}


def test_requests_are_known_until_they_are_served() -> None:
    """The Services that request an address are known, oldest first, until they hold it."""
    young, old = (service(f"a/{year}", wants="192.0.2.1", created=year) for year in ("2026", "2020"))
    ledger = ledger_of(young, old)
    assert [terms.key for terms in ledger.requesting(ip("192.0.2.1"))] == ["a/2020", "a/2026"]
    ledger.expect("a/2020", [ip("192.0.2.1")])
    assert [terms.key for terms in ledger.requesting(ip("192.0.2.1"))] == ["a/2026"]


def test_a_service_in_deletion_holds_its_addresses_until_the_end() -> None:
    """A finalizer keeps the address in use, and messages report it."""
    meta = metadata("a/web", deletion_timestamp="2026-01-02T00:00:00Z")
    leaving = msgspec.structs.replace(service("a/web", holds=["192.0.2.1"]), metadata=meta)
    ledger = ledger_of(leaving)
    assert str(ledger.claims.holders(ip("192.0.2.1"))[0]) == "Service a/web (being deleted)"
    assert ledger.usage("edge")[4].available == 7


def test_memory_returns_to_where_it_was() -> None:
    """After the deletion of all Services and all requeues no index has entries."""
    ledger = ledger_of()
    for index in range(50):
        key = f"n{index % 3}/s{index}"
        found = service(key, wants="192.0.2.1", holds=[f"192.0.2.{index % 8}"], annotations=SHARE, port=index)
        ledger.observe(key, found)
        ledger.expect(key, [ip(f"192.0.2.{(index + 1) % 8}")])
        ledger.reserve(f"Node {index}", [ip("192.0.2.7")])
    for index in range(50):
        ledger.observe(f"n{index % 3}/s{index}", None)
        ledger.reserve(f"Node {index}", [])
    assert ledger.drain_requeues() == ()
    book = ledger._book
    assert not ledger._holdings
    for name in ("owners", "requested", "disputed", "contest_changes", "holder_changes"):
        assert not getattr(book, name), name
    for name in ("_claims", "_holders"):
        assert not getattr(book.claims, name), name
    assert not book.owners._owned
    assert not book.claims._sharing._shared
    assert not ledger.waiters._touched


def test_objects_in_deletion_are_counted_until_the_end() -> None:
    """The addresses of a pool that Services of one namespace hold while they are being deleted, in either field."""
    pools = Pools.of([EDGE])
    gone = metadata("shop/web", deletion_timestamp="2026-05-01T00:00:00Z")
    held = service("shop/web", holds=["192.0.2.1"], external_ips=["192.0.2.2", "203.0.113.1"])
    ledger = ledger_of(held, service("shop/api", holds=["192.0.2.3"]), pools=pools)
    assert ledger.count_leaving(pools.in_force[0], "shop") == 0
    ledger.observe("shop/web", msgspec.structs.replace(held, metadata=gone))
    assert ledger.count_leaving(pools.in_force[0], "shop") == 2
    assert ledger.count_leaving(pools.in_force[0], "guest") == 0
    ledger.observe("shop/web", None)
    assert ledger.count_leaving(pools.in_force[0], "shop") == 0
