"""Which addresses a Service has, and the words that say why."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.meta import Condition, LabelSelector
from kavip.api.pool import Reservation, VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Ingress, Service
from kavip.ipam.allocate import Allocation, breaks_sharing, decide, settle, waits_for
from kavip.ipam.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from kavip.ipam.waiting import ANY_POOL
from kavip.names import Reason
from tests.build import pool, service
from tests.ipam.world import World, entered

EDGE = pool("edge", "192.0.2.128/28")
LAB = pool("lab", "198.51.100.0/24", "2001:db8::/64", priority=200)
PREFER: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"}
REQUIRE: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "RequireDualStack"}
SHARE = {names.SHARING_KEY_ANNOTATION: "web"}
REASSIGN = {names.REASSIGN_ANNOTATION: "true"}
FULL = [service(f"z/{index}", holds=[f"192.0.2.{128 + index}"]) for index in range(16)]


def told(found: Service, reason: Reason, status: str = "True") -> Service:
    """*found* with our own condition."""
    condition = Condition(type=names.Condition.ADDRESS_ASSIGNED, status=status, reason=reason)
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=[condition]))


def ours(key: str, holds: list[str], **more: Any) -> Service:
    """A Service to which kavip gave what it holds."""
    return told(service(key, holds=holds, **more), Reason.ASSIGNED)


def outcome(subject: Service, *others: Service, pools: tuple[VIPPool, ...] = (EDGE, LAB), **more: Any) -> Any:
    """What is decided for *subject* beside *others*."""
    parsed = Pools.of(pools)
    return settle(subject, parsed, entered(parsed, (subject, *others)), **more)


def given(subject: Service, *others: Service, **more: Any) -> list[str]:
    """The addresses that *subject* gets."""
    found = outcome(subject, *others, **more)
    assert isinstance(found, Allocation), found
    return [str(address) for address in found.addresses]


# --- new addresses ----------------------------------------------------------------------------------------------------
def test_the_lowest_free_address_of_the_first_pool() -> None:
    """Priority, then name, then the lowest address; the message names the pool."""
    found = outcome(service("shop/web"), service("a/a", holds=["192.0.2.128"]))
    assert [str(address) for address in found.addresses] == ["192.0.2.129"]
    assert (found.reason, found.message, found.kept) == (Reason.ASSIGNED, "192.0.2.129 from pool edge", False)


def test_a_full_pool_spills_over_to_the_next() -> None:
    """The next pool in order serves when the first has nothing left."""
    assert given(service("shop/web"), *FULL) == ["198.51.100.0"]


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
    """A pool that has both serves both; PreferDualStack takes what there is; a wish decides the pool."""
    assert given(service("shop/web", **more)) == addresses


def test_a_reserved_address_is_its_services_and_nobody_elses() -> None:
    """The Service that it is kept for gets it first, all others never."""
    kept = pool("edge", "192.0.2.128/28", reservations=[Reservation(address="192.0.2.128", service="shop/web")])
    assert given(service("shop/api"), pools=(kept,)) == ["192.0.2.129"]
    assert given(service("shop/web"), pools=(kept,)) == ["192.0.2.128"]


def test_a_sharing_key_shares() -> None:
    """Services of one key get one address while their ports differ, and a new one when they do not."""
    first = service("shop/web", holds=["192.0.2.130"], annotations=SHARE, port=80)
    assert given(service("shop/tls", annotations=SHARE, port=443), first) == ["192.0.2.130"]
    assert given(service("shop/more", annotations=SHARE, port=80), first) == ["192.0.2.128"]
    assert given(service("other/tls", annotations=SHARE, port=443), first) == ["192.0.2.128"]


def test_sharing_goes_beyond_the_capacity_and_the_quota() -> None:
    """A shared address costs neither another address nor quota."""
    tight = pool("edge", "192.0.2.128", max_per_namespace=1)
    first = service("shop/web", holds=["192.0.2.128"], annotations=SHARE, port=80)
    assert given(service("shop/tls", annotations=SHARE, port=443), first, pools=(tight,)) == ["192.0.2.128"]


def test_prefer_dual_stack_completes_later_from_the_same_pool() -> None:
    """What is held stays first; the second family never comes from another pool."""
    half = ours("shop/web", ["192.0.2.130"], **PREFER)
    assert given(half) == ["192.0.2.130"]
    grown = pool("edge", "192.0.2.128/28", "2001:db8:1::/64")
    assert given(half, pools=(grown, LAB)) == ["192.0.2.130", "2001:db8:1::"]


# --- refusals ---------------------------------------------------------------------------------------------------------
POOL_FIELD = "metadata.annotations[kavip.io/pool]"
WISH_FIELD = "metadata.annotations[kavip.io/addresses]"
SELECTIVE = pool("team", "203.0.113.0/28", namespace_selector=LabelSelector(match_labels={"env": "prod"}))


@pytest.mark.parametrize(
    ("more", "reason", "field", "message"),
    [
        ({"pool": "edeg"}, Reason.POOL_NOT_FOUND, POOL_FIELD, 'pool "edeg" does not exist; did you mean "edge"?'),
        ({"pool": "x"}, Reason.POOL_NOT_FOUND, POOL_FIELD, 'pool "x" does not exist; pools: edge, team, lab'),
        (
            {"pool": "edge"},
            Reason.POOL_EXHAUSTED,
            POOL_FIELD,
            "pool edge is full: 16 of 16 addresses are assigned; free one, enlarge the pool or name another",
        ),
        (
            {"wants": "10.0.0.1"},
            Reason.ADDRESS_NOT_IN_POOL,
            WISH_FIELD,
            "address 10.0.0.1 is in no pool; pools: edge 192.0.2.128/28, team 203.0.113.0/28, lab 198.51.100.0/24",
        ),
        (
            {"load_balancer_ip": "192.0.2.130"},
            Reason.ADDRESS_IN_USE,
            "spec.loadBalancerIP",
            "address 192.0.2.130 is used by Service z/2; ask for another",
        ),
        (
            {"wants": "198.51.100.1", "pool": "edge"},
            Reason.ADDRESS_NOT_IN_POOL,
            WISH_FIELD,
            "address 198.51.100.1 is in pool lab, not in pool edge that kavip.io/pool names; change one of the two",
        ),
        (
            {**PREFER, "wants": "203.0.113.1, 2001:db8::1"},
            Reason.ADDRESS_NOT_ALLOWED,
            WISH_FIELD,
            "address 203.0.113.1 is in pool team and 2001:db8::1 in pool lab; ask for addresses of one pool",
        ),
        (
            {"pool": "team"},
            Reason.POOL_SELECTOR_MISMATCH,
            POOL_FIELD,
            "pool team does not select namespace shop; name another pool",
        ),
        (
            {**REQUIRE, "pool": "edge"},
            Reason.FAMILY_NOT_AVAILABLE,
            POOL_FIELD,
            "pool edge has no IPv6 addresses; name a pool that has them",
        ),
    ],
)
def test_a_refusal_says_what_to_do_next(more: dict[str, Any], reason: Reason, field: str, message: str) -> None:
    """Each refusal has its reason, the field at fault, and a message with the next step and numbers."""
    assert outcome(service("shop/web", **more), *FULL, pools=(EDGE, LAB, SELECTIVE)) == Refusal(reason, message, field)


@pytest.mark.parametrize(
    ("pools", "reason", "message"),
    [
        ((), Reason.NO_POOL, "there is no VIPPool; create one"),
        (
            (pool("edge", auto_assign=False),),
            Reason.NO_POOL,
            "no pool has autoAssign: true; name one with kavip.io/pool, such as edge",
        ),
        (
            (pool("edge", "10.0.0.1/8"),),
            Reason.NO_POOL,
            (
                "pool edge is not in force: spec.addresses[0]: '10.0.0.1/8': has host bits set; write 10.0.0.0/8 or "
                "10.0.0.1; mend it"
            ),
        ),
        (
            (SELECTIVE,),
            Reason.POOL_SELECTOR_MISMATCH,
            "pool team does not select namespace shop; let a pool select it or add one",
        ),
        (
            (EDGE, pool("edge2", "203.0.113.0/32", max_per_namespace=0)),
            Reason.POOL_EXHAUSTED,
            (
                "pool edge is full: 16 of 16 addresses are assigned; namespace shop has no more than 0 addresses of "
                "pool edge2 (maxPerNamespace); free one, enlarge a pool or add one"
            ),
        ),
        (
            (pool("six", "2001:db8::/64"),),
            Reason.FAMILY_NOT_AVAILABLE,
            "pool six has no IPv4 addresses; add them to a pool or change spec.ipFamilyPolicy",
        ),
    ],
)
def test_who_merely_waits_is_told_what_for(pools: tuple[VIPPool, ...], reason: Reason, message: str) -> None:
    """A Service that names nothing is refused by no field but that of its families."""
    found = outcome(service("shop/web"), *FULL, pools=pools)
    assert (found.reason, found.message) == (reason, message)
    assert found.field in ("", "spec.ipFamilyPolicy")


def test_many_pools_make_no_long_message() -> None:
    """Five are named, the rest is counted."""
    selector = LabelSelector(match_labels={"env": "prod"})
    many = tuple(pool(f"p{index:03}", f"10.0.{index}.0/24", namespace_selector=selector) for index in range(200))
    found = outcome(service("shop/web"), pools=many)
    assert found.message.count("does not select") == 5
    assert "and 195 more pools" in found.message


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        ({"port": 80}, {}, "z/web has no kavip.io/sharing-key"),
        ({"port": 80}, {"annotations": {names.SHARING_KEY_ANNOTATION: "x"}}, "z/web has another kavip.io/sharing-key"),
        ({"port": 80}, {"annotations": SHARE}, "both use TCP/80"),
        ({"port": 443, "group": "lb/b"}, {"annotations": SHARE}, "z/web belongs to another KeepalivedGroup"),
        (
            {"port": 443, "external_traffic_policy": "Local"},
            {"annotations": SHARE},
            "only one of the two has externalTrafficPolicy: Local",
        ),
        (
            {"port": 443, "external_traffic_policy": "Local", "selector": {"app": "a"}},
            {"annotations": SHARE, "external_traffic_policy": "Local", "selector": {"app": "b"}},
            "with externalTrafficPolicy: Local both need the same selector",
        ),
    ],
)
def test_sharing_is_refused_with_its_cause(mine: dict[str, Any], theirs: dict[str, Any], why: str) -> None:
    """Each rule of sharing has its own words."""
    holder = service("z/web", holds=["192.0.2.130"], port=80, **theirs)
    found = outcome(service("z/new", wants="192.0.2.130", annotations=SHARE, **mine), holder)
    assert (found.reason, found.field) == (Reason.SHARING_REFUSED, WISH_FIELD)
    assert found.message == (
        f"address 192.0.2.130 is used by Service z/web and cannot be shared: {why}; ask for another"
    )


def test_an_address_that_its_pool_keeps_back_is_refused() -> None:
    """Excluded, avoided and reserved addresses are not for the asking."""
    careful = pool(
        "edge",
        "10.0.0.0/24",
        exclude=["10.0.0.1"],
        avoid_buggy_ips=True,
        reservations=[Reservation(address="10.0.0.2", service="a/b")],
    )
    messages = [outcome(service("shop/web", wants=f"10.0.0.{last}"), pools=(careful,)).message for last in (0, 1, 2)]
    assert messages == [
        "address 10.0.0.0 ends in .0 or .255, which pool edge does not hand out (avoidBuggyIPs); ask for another",
        "address 10.0.0.1 is excluded from pool edge; ask for another",
        "address 10.0.0.2 is reserved for Service a/b in pool edge; ask for another",
    ]


def test_a_nodes_own_address_is_never_given() -> None:
    """Neither by lot nor by wish; a group's own virtual IP is in use."""
    pools = Pools.of([EDGE])
    ledger = Ledger(pools)
    ledger.reserve("Node n1", [parse_address("192.0.2.128")])
    ledger.reserve("KeepalivedGroup lb/edge", [parse_address("192.0.2.129")])
    found = settle(service("shop/web"), pools, ledger)
    assert isinstance(found, Allocation)
    assert str(found.addresses[0]) == "192.0.2.130"
    node = settle(service("shop/web", wants="192.0.2.128"), pools, ledger)
    group = settle(service("shop/web", wants="192.0.2.129"), pools, ledger)
    assert (node.reason, node.message) == (
        Reason.ADDRESS_NOT_ALLOWED,
        "address 192.0.2.128 is an address of Node n1; ask for another",
    )
    assert (group.reason, group.message) == (
        Reason.ADDRESS_IN_USE,
        "address 192.0.2.129 is a virtual IP of KeepalivedGroup lb/edge; ask for another",
    )


def test_quota_counts_distinct_addresses_over_both_families() -> None:
    """At the limit a Service that names the pool is refused, one that does not goes to another pool."""
    tight = pool("edge", "192.0.2.128/28", "2001:db8:1::/64", max_per_namespace=2)
    holder = service("shop/a", holds=["192.0.2.128", "2001:db8:1::"], **PREFER)
    found = outcome(service("shop/web", pool="edge"), holder, pools=(tight, LAB))
    assert (found.reason, found.field) == (Reason.QUOTA_EXCEEDED, POOL_FIELD)
    assert found.message == (
        "namespace shop has no more than 2 addresses of pool edge (maxPerNamespace); free one or ask for a larger quota"
    )
    assert given(service("shop/web"), holder, pools=(tight, LAB)) == ["198.51.100.0"]
    assert given(service("other/web"), holder, pools=(tight, LAB)) == ["192.0.2.129"]


# --- keeping ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "pools", "why"),
    [
        ({}, (LAB,), "192.0.2.130 is in no pool"),
        ({}, (pool("edge", auto_assign=False),), "192.0.2.130 is in pool edge, which has autoAssign: false"),
        ({}, (pool("edge", exclude=["192.0.2.130"]),), "192.0.2.130 is excluded from pool edge"),
        ({}, (pool("edge", groups=["lb/b"]),), "192.0.2.130 is in pool edge, which serves only KeepalivedGroup lb/b"),
        (
            {},
            (pool("edge", reservations=[Reservation(address="192.0.2.130", service="a/b")]),),
            "192.0.2.130 is reserved for Service a/b",
        ),
        ({"pool": "edge"}, (LAB,), "192.0.2.130 is in no pool"),
        ({"wants": "192.0.2.130"}, (LAB,), "192.0.2.130 is in no pool"),
    ],
)
def test_an_edit_of_a_pool_strands_but_does_not_move(
    more: dict[str, Any], pools: tuple[VIPPool, ...], why: str
) -> None:
    """Whatever an administrator does to the pool, the holder keeps its address, until it says that it may move."""
    found = outcome(ours("shop/web", ["192.0.2.130"], **more), pools=pools)
    assert (found.reason, found.kept, found.is_assigned) == (Reason.STRANDED, True, True)
    assert found.message.startswith(f"keeps 192.0.2.130, although {why}")
    assert found.message.endswith('; set kavip.io/reassign to "true" to move to a legal address')


def test_reassign_moves_a_stranded_service_and_nobody_else() -> None:
    """A stranded address is exchanged for a legal one where there is one; a legal one stays."""
    stranded = ours("shop/web", ["10.0.0.1"], annotations=REASSIGN)
    found = outcome(stranded)
    assert ([str(address) for address in found.addresses], found.note) == (["192.0.2.128"], "was 10.0.0.1")
    nowhere = outcome(stranded, pools=())
    assert (nowhere.reason, nowhere.kept) == (Reason.STRANDED, True)
    assert nowhere.message == "keeps 10.0.0.1, although 10.0.0.1 is in no pool; there is no VIPPool; create one"
    assert given(ours("shop/web", ["192.0.2.135"], annotations=REASSIGN)) == ["192.0.2.135"]


def test_another_wish_moves_and_a_wish_in_vain_does_not() -> None:
    """A new address or pool is taken when it is to be had; else the old address stays, with the reason."""
    assert given(ours("shop/web", ["192.0.2.130"], wants="192.0.2.135")) == ["192.0.2.135"]
    assert given(ours("shop/web", ["192.0.2.130"], pool="lab")) == ["198.51.100.0"]
    found = outcome(ours("shop/web", ["192.0.2.130"], wants="192.0.2.135"), service("z/a", holds=["192.0.2.135"]))
    assert (found.kept, found.reason, found.is_assigned) == (True, Reason.ADDRESS_IN_USE, False)
    assert found.message == "address 192.0.2.135 is used by Service z/a; ask for another; keeps 192.0.2.130"
    gone = outcome(ours("shop/web", ["192.0.2.130"], pool="gone"))
    assert (gone.kept, gone.reason) == (True, Reason.POOL_NOT_FOUND)


def test_prefer_turned_into_require_keeps_what_there_is() -> None:
    """In a pool that lacks a family the old address stays, with the reason."""
    found = outcome(ours("shop/web", ["192.0.2.130"], **REQUIRE))
    assert (found.kept, found.reason) == (True, Reason.FAMILY_NOT_AVAILABLE)


def test_a_malformed_request_moves_nothing() -> None:
    """A broken annotation is told; the address stays; a new Service gets none."""
    found = outcome(ours("shop/web", ["192.0.2.130"], wants="nonsense"))
    assert (found.kept, found.reason, found.is_assigned) == (True, Reason.INVALID_REQUEST, False)
    assert outcome(service("shop/web", wants="nonsense")).reason is Reason.INVALID_REQUEST


def test_the_address_of_a_lost_family_goes() -> None:
    """A Service that has given up IPv6 gives up its IPv6 address; the other stays."""
    assert given(ours("shop/web", ["198.51.100.9", "2001:db8::9"])) == ["198.51.100.9"]


def test_the_order_in_status_is_never_rewritten() -> None:
    """What stands in status keeps its order, whatever the order of the families."""
    held = ["2001:db8::9", "198.51.100.9"]
    found = outcome(ours("shop/web", held, **PREFER))
    assert ([str(address) for address in found.addresses], found.kept) == (held, True)


# --- contests ---------------------------------------------------------------------------------------------------------
def test_of_two_holders_the_older_keeps_and_the_other_moves() -> None:
    """The younger gets another address of its own pool, where it did not ask for this one by name."""
    old, young = (ours(f"a/{year}", ["192.0.2.130"], created=year) for year in ("2020", "2026"))
    assert given(old, young) == ["192.0.2.130"]
    assert given(young, old) == ["192.0.2.128"]


def test_a_loser_that_asked_by_name_is_told() -> None:
    """It does not get another address: it wanted this one."""
    old, young = (ours(f"a/{year}", ["192.0.2.130"], created=year, wants="192.0.2.130") for year in ("2020", "2026"))
    found = outcome(young, old)
    assert isinstance(found, Refusal)
    assert found.message == (
        "address 192.0.2.130 is used by Service a/2020; ask for another or share it with kavip.io/sharing-key"
    )


def test_external_ips_take_nothing_away() -> None:
    """An older Service's externalIPs keep an address from being handed out, and no holder loses it."""
    greedy = service("a/old", type="ClusterIP", external_ips=["192.0.2.128", "192.0.2.130"], created="2020")
    assert given(ours("a/web", ["192.0.2.130"]), greedy) == ["192.0.2.130"]
    assert given(service("a/new"), greedy) == ["192.0.2.129"]
    assert given(service("a/old", external_ips=["192.0.2.128"], wants="192.0.2.128")) == ["192.0.2.128"]


def test_a_node_that_joins_with_a_vip_takes_it() -> None:
    """A VIP that is a node's own address would delete that address from the node: the holder moves."""
    pools = Pools.of([EDGE])
    holder = ours("a/web", ["192.0.2.130"])
    ledger = entered(pools, [holder])
    ledger.reserve("Node n1", [parse_address("192.0.2.130")])
    found = settle(holder, pools, ledger)
    assert isinstance(found, Allocation)
    assert str(found.addresses[0]) == "192.0.2.128"


def test_an_edit_that_ends_a_sharing_is_seen_before_it_is_made() -> None:
    """Admission asks whether the edited Service could still share what it shares."""
    web, tls = (ours(f"a/{port}", ["192.0.2.130"], annotations=SHARE, port=port) for port in (80, 443))
    pools = Pools.of([EDGE])
    ledger = entered(pools, [web, tls])
    edited, _ = read_request(ours("a/443", ["192.0.2.130"], annotations=SHARE, port=80))
    fine, _ = read_request(ours("a/443", ["192.0.2.130"], annotations=SHARE, port=81))
    assert breaks_sharing(fine, ledger) is None
    found = breaks_sharing(edited, ledger)
    assert found is not None
    assert found.message == (
        "address 192.0.2.130 is shared with Service a/80 and could not be any longer: both use TCP/80; undo that"
    )


# --- whose status -----------------------------------------------------------------------------------------------------
FOREIGN = Reason.FOREIGN_STATUS


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (service("a/web", holds=["192.0.2.130"]), Reason.ASSIGNED),
        (service("a/web", holds=["10.0.0.1"]), FOREIGN),
        (service("a/web", holds=["192.0.2.130", "10.0.0.1"]), FOREIGN),
        (service("a/web", holds=["2001:db8::1"]), FOREIGN),
        (told(service("a/web", holds=["10.0.0.1"]), Reason.ASSIGNED), Reason.STRANDED),
        (told(service("a/web", holds=["10.0.0.1"]), Reason.STRANDED), Reason.STRANDED),
        (told(service("a/web", holds=["10.0.0.1"]), FOREIGN), FOREIGN),
        (told(service("a/web", holds=["10.0.0.1"]), Reason.LEFT_TO_PLATFORM, "Unknown"), FOREIGN),
        (told(service("a/web", holds=["10.0.0.1"]), Reason.NO_POOL, "False"), FOREIGN),
        (told(service("a/web", holds=["192.0.2.130"]), FOREIGN), Reason.ASSIGNED),
    ],
)
def test_foreign_status_is_respected_or_adopted(subject: Service, reason: Reason) -> None:
    """Without our own word for it, what is legal is adopted and what is not is another controller's; both stay."""
    found = outcome(subject)
    assert (found.reason, found.kept, found.is_assigned) == (reason, True, True)
    assert found.addresses == subject.ingress_addresses


def test_a_host_name_is_never_ours() -> None:
    """A status with a host name is left alone, whatever our condition says."""
    base = ours("a/web", ["192.0.2.130"])
    balancer = msgspec.structs.replace(base.status.load_balancer, ingress=[Ingress(hostname="lb.example.com")])
    subject = msgspec.structs.replace(base, status=msgspec.structs.replace(base.status, load_balancer=balancer))
    found = outcome(subject)
    assert (found.reason, found.addresses) == (FOREIGN, ())
    assert found.message.startswith("the host name in status: written by another controller and left alone")


def test_reassign_gives_kavip_a_free_hand() -> None:
    """A Service that says so gets an address of kavip's in the place of a foreign one."""
    assert given(service("a/web", holds=["10.0.0.1"], annotations=REASSIGN)) == ["192.0.2.128"]


def test_a_write_of_ours_on_its_way_is_ours() -> None:
    """A copy without our condition is not foreign while our write has not come back."""
    pools = Pools.of([EDGE])
    subject = service("a/web")
    ledger = entered(pools, [subject])
    ledger.expect("a/web", [parse_address("10.0.0.1")], resource_version="1")
    assert settle(subject, pools, ledger).reason is Reason.STRANDED


# --- waiting ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("subject", "pools", "names_"),
    [
        (service("a/web"), (EDGE, LAB), ()),
        (service("a/web", pool="edge"), (EDGE, LAB), ("edge",)),
        (service("a/web", wants="192.0.2.130"), (EDGE,), ("edge",)),
        (service("a/web", pool="later"), (EDGE,), ("later",)),
        (service("a/web"), (EDGE, SELECTIVE), ("edge",)),
        (service("a/web"), (), (ANY_POOL,)),
        (service("a/web", wants="nonsense"), (EDGE,), ()),
        (ours("a/web", ["192.0.2.130"], **PREFER), (EDGE, LAB), ("edge",)),
        (service("a/web", holds=["10.0.0.1"]), (EDGE,), ()),
    ],
)
def test_waiters_know_what_they_wait_for(subject: Service, pools: tuple[VIPPool, ...], names_: tuple[str, ...]) -> None:
    """The pools that could end the waiting, and none where nothing is missing or only an edit can help."""
    parsed = Pools.of(pools)
    request, _ = read_request(subject)
    found = settle(subject, parsed, entered(parsed, (subject, *FULL)))
    assert waits_for(request, found, parsed) == names_


# --- properties -------------------------------------------------------------------------------------------------------
def test_decided_again_nothing_changes() -> None:
    """What is decided and written is decided again word for word."""
    world = World([EDGE, LAB])
    for index, more in enumerate([{}, PREFER, REQUIRE, {"pool": "lab"}, {"wants": "192.0.2.140"}]):
        world.apply(service(f"a/s{index}", **more))
    world.run()
    for each in world.services.values():
        again = world.settled(each)
        assert isinstance(again, Allocation)
        assert again.kept
        assert again.message == world.outcomes[each.key].message
    writes = len(world.writes)
    world.restart()
    world.run()
    assert len(world.writes) == writes == len(world.services)


def test_decide_changes_nothing() -> None:
    """A decision may be asked for any number of times, for the webhook, before one is carried out."""
    pools = Pools.of([EDGE])
    ledger = Ledger(pools)
    request, _ = read_request(service("a/web"))
    found = [decide(request, pools, ledger) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert ledger.usage("edge")[4] == (16, 0, 16)


def test_naming_an_address_of_a_pool_names_the_pool() -> None:
    """Such a Service is kavip's even where a platform assigns addresses."""
    pools = Pools.of([EDGE])
    asked = [read_request(service("a/web", wants=text))[0] for text in ("192.0.2.130", "10.0.0.1", "")]
    assert [pools.are_named_by(request) for request in asked] == [True, False, False]
