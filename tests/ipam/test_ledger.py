"""The ledger: holders, stale caches, waiters."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import Address, parse_address
from kavip.api.pool import Reservation
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, settle, waits_for
from kavip.ipam.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from kavip.ipam.waiting import Waiter
from tests.build import metadata, pool, service

EDGE = pool("edge", "192.0.2.0/29", "2001:db8::/125")
SHARE = {names.SHARING_KEY_ANNOTATION: "web"}
DUAL = {"families": ("IPv4", "IPv6")}


def ip(text: str) -> Address:
    """An address."""
    return parse_address(text)


def at(version: int, found: Service) -> Service:
    """*found* as it stood at a resourceVersion."""
    meta = msgspec.structs.replace(found.metadata, resource_version=str(version))
    return msgspec.structs.replace(found, metadata=meta)


def ledger_of(*services: Service, pools: Pools | None = None) -> Ledger:
    """A ledger over one pool that has seen *services*."""
    ledger = Ledger(pools or Pools.of([EDGE]))
    for each in services:
        ledger.observe(each.key, each)
    return ledger


def wait(ledger: Ledger, pools: Pools, *services: Service) -> None:
    """Look at *services*, which get nothing, and let them wait."""
    for each in services:
        ledger.observe(each.key, each)
        outcome = settle(each, pools, ledger)
        assert (
            isinstance(outcome, Refusal) or outcome.refusal or len(outcome.addresses) < len(each.spec.ip_families or ())
        )
        request, _ = read_request(each)
        ledger.wait(request, waits_for(request, outcome, pools))


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
    assert [terms.key for terms in ledger.holders(ip("192.0.2.1"))] == ["a/old"]
    assert [terms.key for terms in ledger.holders(ip("192.0.2.3"))] == ["b/api", "b/web"]
    assert [terms.key for terms in ledger.claimants(ip("192.0.2.1"))] == ["c/ext", "a/old", "a/new"]
    assert ledger.usage("edge") == {4: (8, 4, 4, 0), 6: (8, 0, 8, 0)}


def test_observing_again_changes_nothing() -> None:
    """A repeated event is none; the deletion of what is unknown is none."""
    holder = service("a/web", holds=["192.0.2.1"], external_ips=["192.0.2.1", "192.0.2.2"])
    ledger = ledger_of(holder, holder)
    ledger.observe("a/gone", None)
    assert ledger.usage("edge")[4] == (8, 2, 6, 0)
    ledger.observe("a/web", None)
    ledger.observe("a/web", None)
    assert ledger.usage("edge")[4] == (8, 0, 8, 0)


def test_a_service_of_another_type_holds_no_ingress_address() -> None:
    """What stands in the status of a ClusterIP Service is nobody's, its externalIPs are its own."""
    ledger = ledger_of(service("a/web", type="ClusterIP", holds=["192.0.2.1"], external_ips=["192.0.2.2"]))
    assert ledger.holders(ip("192.0.2.1")) == ()
    assert [terms.key for terms in ledger.claimants(ip("192.0.2.2"))] == ["a/web"]


def test_a_stale_copy_gets_neither_the_freed_nor_a_second_address() -> None:
    """A is deleted, B is looked at again from a copy without status: B keeps what was written for it."""
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
    assert [terms.key for terms in ledger.holders(ip("192.0.2.1"))] == ["a/second"]


def test_a_refused_second_write_does_not_forget_the_first() -> None:
    """A write that meets the 409 of its own forerunner leaves the forerunner's address taken."""
    ledger = ledger_of(at(10, service("a/web")))
    ledger.expect("a/web", [ip("192.0.2.0")], resource_version="10")
    ledger.expect("a/web", [ip("192.0.2.3")], resource_version="10")
    ledger.abandon("a/web")
    assert ledger.held("a/web") == (ip("192.0.2.0"),)
    assert ledger.usage("edge")[4].available == 7


@pytest.mark.parametrize(("seen", "held"), [(9, "192.0.2.0"), (10, "192.0.2.0"), (11, "192.0.2.5")])
def test_an_expectation_ends_with_anything_newer(seen: int, held: str) -> None:
    """What the write was conditional on, or older, is stale; what is newer is the truth, whatever it says."""
    ledger = ledger_of(at(10, service("a/web")))
    ledger.expect("a/web", [ip("192.0.2.0")], resource_version="10")
    ledger.observe("a/web", at(seen, service("a/web", holds=["192.0.2.5"])))
    assert ledger.held("a/web") == (ip(held),)
    assert ledger.is_expecting("a/web") == (seen <= 10)


def test_a_new_term_expects_nothing() -> None:
    """What an earlier one was about to write is free, does not rest, and leaves nothing behind; what stands stays."""
    holder = at(5, service("a/holds", holds=["192.0.2.1"]))
    ledger = ledger_of(holder, at(5, service("a/waits")))
    ledger.expect("a/holds", [ip("192.0.2.2")], resource_version="5")
    ledger.expect("a/waits", [ip("192.0.2.0")], resource_version="5")
    ledger.expect("a/unseen", [ip("192.0.2.3")], resource_version="5")
    ledger.settle()
    fresh = ledger_of(holder, at(5, service("a/waits")))
    assert ledger.held("a/holds") == (ip("192.0.2.1"),)
    assert (ledger.held("a/waits"), ledger.held("a/unseen")) == ((), None)
    assert ledger.usage("edge") == fresh.usage("edge")


def test_without_a_version_only_an_equal_status_ends_an_expectation() -> None:
    """A write that is not conditional is remembered until it is seen."""
    ledger = ledger_of(service("a/web"))
    ledger.expect("a/web", [ip("192.0.2.0")])
    ledger.observe("a/web", at(99, service("a/web")))
    assert ledger.held("a/web") == (ip("192.0.2.0"),)
    ledger.observe("a/web", service("a/web", holds=["192.0.2.0"]))
    assert not ledger.is_expecting("a/web")


def test_while_a_move_is_under_way_both_addresses_are_taken() -> None:
    """The old address is free only when the write is seen."""
    ledger = ledger_of(at(10, service("a/web", holds=["192.0.2.0"])))
    ledger.expect("a/web", [ip("192.0.2.1")], resource_version="10")
    assert ledger.usage("edge")[4].available == 6
    ledger.observe("a/web", at(11, service("a/web", holds=["192.0.2.1"])))
    assert ledger.usage("edge")[4].available == 7


def test_a_deleted_and_recreated_service_starts_anew() -> None:
    """What was expected of the first Service of that name is not expected of the second."""
    ledger = ledger_of(at(10, service("a/web")))
    ledger.expect("a/web", [ip("192.0.2.0")], resource_version="10")
    ledger.observe("a/web", None)
    ledger.observe("a/web", at(20, service("a/web")))
    assert ledger.held("a/web") == ()
    assert ledger.usage("edge")[4].available == 8


def test_nodes_and_groups_keep_their_own_addresses() -> None:
    """A reserved address is handed out to nobody until its owner lets go of it."""
    ledger = ledger_of()
    ledger.reserve("Node n1", [ip("192.0.2.0"), ip("192.0.2.1")])
    ledger.reserve("KeepalivedGroup lb/edge", [ip("192.0.2.0")])
    assert ledger.owner(ip("192.0.2.0")) == "KeepalivedGroup lb/edge"
    ledger.reserve("Node n1", [ip("192.0.2.1")])
    assert ledger.usage("edge")[4] == (8, 0, 6, 0)
    ledger.reserve("Node n1", [])
    ledger.reserve("KeepalivedGroup lb/edge", [])
    assert ledger.usage("edge")[4] == (8, 0, 8, 0)


def test_configure_counts_anew() -> None:
    """After an edit of the pools everybody still holds what he held, and the counts are those of the new pools."""
    ledger = ledger_of(service("a/web", holds=["192.0.2.1"]), service("a/api", holds=["192.0.2.6"]))
    ledger.reserve("Node n1", [ip("192.0.2.2")])
    ledger.configure(Pools.of([pool("edge", "192.0.2.0/30")]))
    assert ledger.usage("edge") == {4: (4, 1, 2, 0)}
    ledger.observe("a/web", None)
    assert ledger.usage("edge") == {4: (4, 0, 3, 0)}


def test_wishes_are_known_until_they_are_granted() -> None:
    """Who asks for an address by name is known, oldest first, and no longer once it holds it."""
    young, old = (service(f"a/{year}", wants="192.0.2.1", created=year) for year in ("2026", "2020"))
    ledger = ledger_of(young, old)
    assert [terms.key for terms in ledger.wishes(ip("192.0.2.1"))] == ["a/2020", "a/2026"]
    ledger.expect("a/2020", [ip("192.0.2.1")])
    assert [terms.key for terms in ledger.wishes(ip("192.0.2.1"))] == ["a/2026"]


def test_a_freed_address_wakes_exactly_those_that_can_use_it() -> None:
    """Oldest first, one after the other; not those of another family, pool or wish, nor those beyond their quota."""
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
    assert ledger.woken() == ()
    ledger.observe("a/h0", None)
    for key in ("b/wants0", "b/old", "b/young"):
        assert ledger.woken() == (key,)
        assert ledger.woken() == ()
        ledger.answer(key)
    assert ledger.woken() == ()
    ledger.observe("c/h4", None)
    assert ledger.woken() == ("b/other",)
    assert set(ledger.waiters()) == set(waiters)


def test_a_free_address_calls_one_waiter_after_the_other() -> None:
    """Whoever leaves it, is gone or goes elsewhere makes way for the next; whoever takes the last one does not."""
    pools = Pools.of([pool("edge", "192.0.2.0/31")])
    ledger = Ledger(pools)
    holders = [service(f"a/h{index}", holds=[f"192.0.2.{index}"]) for index in range(2)]
    for each in holders:
        ledger.observe(each.key, each)
    waiters = [service(f"a/w{index}", created=f"202{index}") for index in range(6)]
    wait(ledger, pools, *waiters)
    ledger.observe("a/h0", None)
    ledger.observe("a/h1", None)
    assert ledger.woken() == ("a/w0",)
    ledger.answer("a/w0")
    assert ledger.woken() == ("a/w1",)
    ledger.observe("a/w1", None)
    assert ledger.woken() == ("a/w2",)
    ledger.serve("a/w2")
    assert ledger.woken() == ("a/w3",)
    ledger.expect("a/w3", [ip("192.0.2.0")])
    assert ledger.woken() == ("a/w0",)  # who left it before may want it now that something has changed
    ledger.expect("a/w0", [ip("192.0.2.1")])
    assert ledger.woken() == ()
    assert ledger.waiters() == ("a/w4", "a/w5")


def test_waiters_of_one_kind_are_looked_at_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a freed address costs does not grow with those that wait for it."""
    pools = Pools.of([pool("edge", "192.0.2.0/31")])
    asked: list[str] = []
    can_serve = Ledger._can_serve

    def counting(self: Ledger, name: str, waiter: Waiter) -> bool:
        asked.append(waiter.request.key)
        return can_serve(self, name, waiter)

    monkeypatch.setattr(Ledger, "_can_serve", counting)
    ledger = Ledger(pools)
    for index in range(2):
        ledger.observe(f"a/h{index}", service(f"a/h{index}", holds=[f"192.0.2.{index}"]))
    wait(ledger, pools, *(service(f"{'ab'[index % 2]}/w{index:03}") for index in range(300)))
    ledger.observe("a/h0", None)
    assert ledger.woken() == ("a/w000",)
    ledger.expect("a/w000", [ip("192.0.2.0")])
    assert ledger.woken() == ()
    assert asked == ["a/w000", "a/w002", "b/w001"]


def test_who_asks_for_an_address_by_name_hears_that_it_changes_hands() -> None:
    """What they are told names the holder: all of them are looked at again, the oldest first."""
    pools = Pools.of([pool("edge", "192.0.2.0/31")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"]))
    asking = [service(f"a/w{year}", wants="192.0.2.1", created=year) for year in ("2025", "2020")]
    for each in asking:
        ledger.observe(each.key, each)
    wait(ledger, pools, *asking)
    ledger.observe("a/h", None)
    assert ledger.woken() == ("a/w2020", "a/w2025")
    ledger.observe("a/new", service("a/new", holds=["192.0.2.1"]))
    assert ledger.woken() == ("a/w2020", "a/w2025")


def test_freed_quota_wakes_those_whom_it_kept_waiting() -> None:
    """A namespace at its limit waits for its own addresses, not for those of others."""
    pools = Pools.of([pool("edge", "192.0.2.0/29", "2001:db8::/125", max_per_namespace=1)])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["2001:db8::1"], families=("IPv6",)))
    ledger.observe("b/h", service("b/h", holds=["192.0.2.1"]))
    wait(ledger, pools, service("a/web"))
    ledger.observe("b/h", None)
    assert ledger.woken() == ()
    ledger.observe("a/h", None)
    assert ledger.woken() == ("a/web",)


def test_quota_that_is_left_for_one_family_alone_wakes() -> None:
    """PreferDualStack, at the limit: a free IPv4 address would be one more, and the IPv6 one that it may share not."""
    pools = Pools.of([pool("edge", "192.0.2.0/31", "2001:db8::/127", max_per_namespace=1)])
    ledger = Ledger(pools)
    fellow = service("a/h", holds=["2001:db8::"], families=("IPv6",), annotations=SHARE, port=80)
    ledger.observe("a/h", fellow)
    wait(ledger, pools, service("a/web", ip_family_policy="PreferDualStack", annotations=SHARE, port=80, **DUAL))
    assert ledger.woken() == ()
    ledger.observe("a/h", service("a/h", holds=["2001:db8::"], families=("IPv6",), annotations=SHARE, port=443))
    assert ledger.woken() == ("a/web",)


def test_a_port_that_becomes_free_wakes_the_sharer() -> None:
    """An address that nobody frees can still become shareable."""
    pools = Pools.of([pool("edge", "192.0.2.1")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"], annotations=SHARE, port=80))
    wait(ledger, pools, service("a/web", annotations=SHARE, port=80))
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"], annotations=SHARE, port=443))
    assert ledger.woken() == ("a/web",)


def test_a_reservation_wakes_its_own_service() -> None:
    """A reserved address whose interim holder goes helps the Service that it is reserved for, and nobody else."""
    reservation = Reservation(address="192.0.2.1", service="a/web")
    pools = Pools.of([pool("edge", "192.0.2.1", reservations=[reservation])])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"]))
    wait(ledger, pools, service("a/web"), service("a/api"))
    ledger.observe("a/h", None)
    assert ledger.woken() == ("a/web",)


def test_prefer_dual_stack_waits_for_its_second_family() -> None:
    """The missing address comes from the pool of the first, and its return wakes the Service."""
    pools = Pools.of([pool("edge", "192.0.2.0/31", "2001:db8::1")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["2001:db8::1"], families=("IPv6",)))
    half = service("a/web", ip_family_policy="PreferDualStack", holds=["192.0.2.0"], **DUAL)
    wait(ledger, pools, half)
    ledger.observe("a/h", None)
    assert ledger.woken() == ("a/web",)


def test_who_is_served_or_gone_waits_no_longer() -> None:
    """An expectation, a deletion and a change of type end the waiting."""
    pools = Pools.of([pool("edge", "192.0.2.1")])
    ledger = Ledger(pools)
    ledger.observe("a/h", service("a/h", holds=["192.0.2.1"]))
    wait(ledger, pools, *(service(f"a/w{index}") for index in range(4)))
    ledger.expect("a/w0", [ip("192.0.2.9")])
    ledger.observe("a/w1", None)
    ledger.observe("a/w2", service("a/w2", type="ClusterIP"))
    assert ledger.waiters() == ("a/w3",)


def test_a_service_in_deletion_holds_until_it_is_gone() -> None:
    """A finalizer keeps the address; messages say so."""
    meta = metadata("a/web", deletion_timestamp="2026-01-02T00:00:00Z")
    leaving = msgspec.structs.replace(service("a/web", holds=["192.0.2.1"]), metadata=meta)
    ledger = ledger_of(leaving)
    assert str(ledger.holders(ip("192.0.2.1"))[0]) == "Service a/web (being deleted)"
    assert ledger.usage("edge")[4].available == 7


def test_memory_returns_to_where_it_was() -> None:
    """When everybody is gone, and who was to be told is told, no index keeps anything."""
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
    assert ledger.woken() == ()
    for name in ("_holdings", "_owners", "_wishes", "_passed"):
        assert not getattr(ledger, name), name
    for name in ("_claims", "_holders"):
        assert not getattr(ledger._tenants, name), name
    assert not ledger._owners._owned
    assert not ledger._tenants._sharing._books
    assert not ledger._waiting._touched


def test_what_leaves_is_counted_until_it_is_gone() -> None:
    """The addresses of a pool that Services of one namespace hold while they are being deleted, in either field."""
    pools = Pools.of([EDGE])
    gone = metadata("shop/web", deletion_timestamp="2026-05-01T00:00:00Z")
    held = service("shop/web", holds=["192.0.2.1"], external_ips=["192.0.2.2", "203.0.113.1"])
    ledger = ledger_of(held, service("shop/api", holds=["192.0.2.3"]), pools=pools)
    assert ledger.leaving(pools.in_force[0], "shop") == 0
    ledger.observe("shop/web", msgspec.structs.replace(held, metadata=gone))
    assert ledger.leaving(pools.in_force[0], "shop") == 2
    assert ledger.leaving(pools.in_force[0], "guest") == 0
    ledger.observe("shop/web", None)
    assert ledger.leaving(pools.in_force[0], "shop") == 0
