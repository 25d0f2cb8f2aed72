"""Reasons and messages for a Service without an address."""

from typing import Any

import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.meta import LabelSelector
from kavip.api.pool import Reservation, VIPPool
from kavip.api.refusal import Refusal
from kavip.ipam.allocate import Allocation, settle
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.names import Reason
from tests.ipam.deciding import (
    EDGE,
    FULL,
    LAB,
    POOL_FIELD,
    PREFER,
    REQUIRE,
    SELECTIVE,
    SHARE,
    WISH_FIELD,
    assigned_addresses,
    outcome,
)
from tests.support.build import pool, service


@pytest.mark.parametrize(
    ("more", "reason", "field", "message"),
    [
        ({"pool": "edeg"}, Reason.POOL_NOT_FOUND, POOL_FIELD, 'pool "edeg" does not exist; did you mean "edge"?'),
        ({"pool": "x"}, Reason.POOL_NOT_FOUND, POOL_FIELD, 'pool "x" does not exist; pools: edge, team, lab'),
        (
            {"pool": "edge"},
            Reason.POOL_EXHAUSTED,
            POOL_FIELD,
            "pool edge is full: 16 of 16 assigned; free an address or enlarge the pool; pools that would serve: lab",
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
            "pool team cannot serve namespace shop (namespaceSelector); name another pool; pools that would serve: lab",
        ),
        (
            {**REQUIRE, "pool": "edge"},
            Reason.FAMILY_NOT_AVAILABLE,
            POOL_FIELD,
            "pool edge has no IPv6 addresses; name a pool that has them; pools that would serve: lab",
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
            "no pool has autoAssign: true; name one with kavip.io/pool: edge",
        ),
        (
            (pool("edge", "10.0.0.1/8"),),
            Reason.NO_POOL,
            (
                "pool edge is not in force: spec.addresses[0]: '10.0.0.1/8': has host bits set; write 10.0.0.0/8 or "
                "10.0.0.1; fix it"
            ),
        ),
        (
            (SELECTIVE,),
            Reason.POOL_SELECTOR_MISMATCH,
            "pool team cannot serve namespace shop (namespaceSelector); let a pool select it or add one",
        ),
        (
            (EDGE, pool("edge2", "203.0.113.0/32", max_per_namespace=0)),
            Reason.POOL_EXHAUSTED,
            (
                "pool edge is full: 16 of 16 assigned; namespace shop has 0 of 0 addresses of pool edge2 "
                "(maxPerNamespace); free an address or enlarge the pool"
            ),
        ),
        (
            (pool("six", "2001:db8::/64"),),
            Reason.FAMILY_NOT_AVAILABLE,
            "pool six has no IPv4 addresses; add them to a pool",
        ),
    ],
)
def test_a_service_without_requests_is_refused_without_a_field(
    pools: tuple[VIPPool, ...], reason: Reason, message: str
) -> None:
    """Only its families can be the field at fault."""
    found = outcome(service("shop/web"), *FULL, pools=pools)
    assert (found.reason, found.message) == (reason, message)
    assert found.field in ("", "spec.ipFamilyPolicy")


def test_many_pools_make_no_long_message() -> None:
    """The message names five pools and counts the rest; not all are checked for it."""
    selector = LabelSelector(match_labels={"env": "prod"})
    many = tuple(pool(f"p{index:03}", f"10.0.{index}.0/24", namespace_selector=selector) for index in range(200))
    found = outcome(service("shop/web"), pools=many)
    assert found.message == (
        "pools p000, p001, p002, p003, p004 and 95 more cannot serve namespace shop (namespaceSelector); "
        "and 100 more pools do not either; let a pool select it or add one"
    )


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        ({"port": 80}, {}, "Service z/web has no kavip.io/sharing-key"),
        (
            {"port": 80},
            {"annotations": {names.SHARING_KEY_ANNOTATION: "x"}},
            "Service z/web has another kavip.io/sharing-key",
        ),
        ({"port": 80}, {"annotations": SHARE}, "both use TCP/80"),
        ({"port": 443, "group": "lb/b"}, {"annotations": SHARE}, "Service z/web belongs to another KeepalivedGroup"),
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
    """Each rule of sharing has its own message."""
    holder = service("z/web", holds=["192.0.2.130"], port=80, **theirs)
    found = outcome(service("z/new", wants="192.0.2.130", annotations=SHARE, **mine), holder)
    assert (found.reason, found.field) == (Reason.SHARING_REFUSED, WISH_FIELD)
    assert found.message == (
        f"address 192.0.2.130 is used by Service z/web and cannot be shared: {why}; ask for another"
    )


def test_no_service_shares_an_address_of_another_controller() -> None:
    """A sharing key does not permit the use of an address of a Service with another class."""
    theirs = service("z/web", holds=["192.0.2.130"], annotations=SHARE, load_balancer_class="metallb.io/speaker")
    found = outcome(service("z/new", wants="192.0.2.130", annotations=SHARE, port=81), theirs)
    assert found.reason is Reason.SHARING_REFUSED


def test_an_address_that_its_pool_does_not_assign_is_refused() -> None:
    """Excluded, avoided and reserved addresses are refused even on request."""
    careful = pool(
        "edge",
        "10.0.0.0/24",
        exclude=["10.0.0.1"],
        avoid_buggy_ips=True,
        reservations=[Reservation(address="10.0.0.2", service="a/b")],
    )
    messages = [outcome(service("shop/web", wants=f"10.0.0.{last}"), pools=(careful,)).message for last in (0, 1, 2)]
    assert messages == [
        "address 10.0.0.0 ends in .0 or .255, which pool edge does not assign (avoidBuggyIPs); ask for another",
        "address 10.0.0.1 is excluded from pool edge; ask for another",
        "address 10.0.0.2 is reserved for Service a/b in pool edge; ask for another",
    ]


def test_a_nodes_own_address_is_never_assigned() -> None:
    """Neither automatically nor on request. A group's own virtual IP is in use too."""
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
    """At the limit, a Service that names the pool is refused, and any other Service gets an address of another pool."""
    tight = pool("edge", "192.0.2.128/28", "2001:db8:1::/64", max_per_namespace=2)
    holder = service("shop/a", holds=["192.0.2.128", "2001:db8:1::"], **PREFER)
    found = outcome(service("shop/web", pool="edge"), holder, pools=(tight, LAB))
    assert (found.reason, found.field) == (Reason.QUOTA_EXCEEDED, POOL_FIELD)
    assert found.message == (
        "namespace shop has 2 of 2 addresses of pool edge (maxPerNamespace); free one or ask for a larger quota; "
        "pools that would serve: lab"
    )
    assert assigned_addresses(service("shop/web"), holder, pools=(tight, LAB)) == ["198.51.100.0"]
    assert assigned_addresses(service("other/web"), holder, pools=(tight, LAB)) == ["192.0.2.129"]
