"""The addresses that a Service keeps, loses in a conflict, or leaves to another controller."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.meta import Condition
from kavip.api.pool import Reservation, VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Ingress, Service
from kavip.ipam.allocate import Allocation, breaks_sharing, settle
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from kavip.names import Reason
from tests.ipam.deciding import (
    EDGE,
    FOREIGN,
    LAB,
    PREFER,
    REASSIGN,
    REQUIRE,
    SHARE,
    assigned_addresses,
    ours,
    outcome,
    with_reason,
)
from tests.ipam.simulatedcontroller import entered
from tests.support.build import pool, service


# --- keeping ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "pools", "why"),
    [
        ({}, (LAB,), "192.0.2.130 is in no pool"),
        ({}, (pool("edge", auto_assign=False),), "192.0.2.130 is in pool edge, which has autoAssign: false"),
        ({}, (pool("edge", exclude=["192.0.2.130"]),), "192.0.2.130 is excluded from pool edge"),
        (
            {},
            (pool("edge", groups=["lb/b"]),),
            "192.0.2.130 is in pool edge, which can serve only KeepalivedGroup lb/b (groups)",
        ),
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
    """After any edit of the pool the holder keeps its address, until the Service permits a move."""
    found = outcome(ours("shop/web", ["192.0.2.130"], **more), pools=pools)
    assert (found.reason, found.kept, found.is_assigned) == (Reason.STRANDED, True, True)
    assert found.message.startswith(f"keeps 192.0.2.130, although {why}")
    assert found.message.endswith('; set kavip.io/reassign to "true" to move to a legal address')


def test_reassign_moves_only_a_stranded_service() -> None:
    """A stranded address is replaced by an eligible one if there is one. An eligible address stays."""
    stranded = ours("shop/web", ["10.0.0.1"], annotations=REASSIGN)
    found = outcome(stranded)
    assert ([str(address) for address in found.addresses], found.note) == (["192.0.2.128"], "was 10.0.0.1")
    nowhere = outcome(stranded, pools=())
    assert (nowhere.reason, nowhere.kept) == (Reason.STRANDED, True)
    assert nowhere.message == "keeps 10.0.0.1, although 10.0.0.1 is in no pool; there is no VIPPool; create one"
    assert assigned_addresses(ours("shop/web", ["192.0.2.135"], annotations=REASSIGN)) == ["192.0.2.135"]


def test_the_message_of_a_stranded_dual_stack_service_is_stable() -> None:
    """The held address is excluded, and its pool still admits the Service. The first message names both addresses."""
    edited = pool("edge", "192.0.2.128/30", "2001:db8::/126", exclude=["192.0.2.130"])
    first = outcome(ours("shop/web", ["192.0.2.130"], **PREFER), pools=(edited,))
    assert len(first.addresses) == 2
    again = outcome(ours("shop/web", [*map(str, first.addresses)], **PREFER), pools=(edited,))
    assert (again.reason, again.message) == (first.reason, first.message)


def test_a_new_request_moves_a_service_only_if_it_can_be_served() -> None:
    """If the requested address or pool is not available, the old address stays, and the message has the reason."""
    assert assigned_addresses(ours("shop/web", ["192.0.2.130"], wants="192.0.2.135")) == ["192.0.2.135"]
    assert assigned_addresses(ours("shop/web", ["192.0.2.130"], pool="lab")) == ["198.51.100.0"]
    found = outcome(ours("shop/web", ["192.0.2.130"], wants="192.0.2.135"), service("z/a", holds=["192.0.2.135"]))
    assert (found.kept, found.reason, found.is_assigned) == (True, Reason.ADDRESS_IN_USE, False)
    assert found.message == "address 192.0.2.135 is used by Service z/a; ask for another; keeps 192.0.2.130"
    gone = outcome(ours("shop/web", ["192.0.2.130"], pool="gone"))
    assert (gone.kept, gone.reason) == (True, Reason.POOL_NOT_FOUND)


def test_a_change_from_prefer_to_require_dual_stack_keeps_the_address() -> None:
    """In a pool that lacks a family the old address stays, with the reason."""
    found = outcome(ours("shop/web", ["192.0.2.130"], **REQUIRE))
    assert (found.kept, found.reason) == (True, Reason.FAMILY_NOT_AVAILABLE)


def test_a_malformed_request_moves_nothing() -> None:
    """A malformed annotation is reported. A holder keeps its address, and a new Service gets none."""
    found = outcome(ours("shop/web", ["192.0.2.130"], wants="nonsense"))
    assert (found.kept, found.reason, found.is_assigned) == (True, Reason.INVALID_REQUEST, False)
    assert outcome(service("shop/web", wants="nonsense")).reason is Reason.INVALID_REQUEST


def test_the_address_of_a_removed_family_is_freed() -> None:
    """A Service without IPv6 loses its IPv6 address and keeps the other."""
    assert assigned_addresses(ours("shop/web", ["198.51.100.9", "2001:db8::9"])) == ["198.51.100.9"]


def test_the_order_in_status_is_never_rewritten() -> None:
    """Entries in status keep their order, with any order of families."""
    held = ["2001:db8::9", "198.51.100.9"]
    found = outcome(ours("shop/web", held, **PREFER))
    assert ([str(address) for address in found.addresses], found.kept) == (held, True)


# --- contests ---------------------------------------------------------------------------------------------------------
def test_of_two_holders_the_older_keeps_and_the_other_moves() -> None:
    """The younger Service gets another address of its pool, unless it requested this one."""
    old, young = (ours(f"a/{year}", ["192.0.2.130"], created=year) for year in ("2020", "2026"))
    assert assigned_addresses(old, young) == ["192.0.2.130"]
    found = outcome(young, old)
    assert ([str(address) for address in found.addresses], found.is_displaced) == (["192.0.2.128"], True)
    assert found.note == "was 192.0.2.130; 192.0.2.130 belongs to Service a/2020, which is older"


def test_a_loser_that_requested_the_address_gets_no_other() -> None:
    """It requested this address, so it waits for it."""
    old, young = (ours(f"a/{year}", ["192.0.2.130"], created=year, wants="192.0.2.130") for year in ("2020", "2026"))
    found = outcome(young, old)
    assert isinstance(found, Refusal)
    assert found.message == (
        "address 192.0.2.130 is used by Service a/2020; ask for another or share it with kavip.io/sharing-key"
    )


def test_external_ips_take_nothing_away() -> None:
    """The externalIPs of an older Service keep an address from new Services, but no holder loses it."""
    greedy = service("a/old", type="ClusterIP", external_ips=["192.0.2.128", "192.0.2.130"], created="2020")
    assert assigned_addresses(ours("a/web", ["192.0.2.130"]), greedy) == ["192.0.2.130"]
    assert assigned_addresses(service("a/new"), greedy) == ["192.0.2.129"]
    assert assigned_addresses(service("a/old", external_ips=["192.0.2.128"], wants="192.0.2.128")) == ["192.0.2.128"]


def test_a_full_pool_gives_a_service_its_own_external_ips() -> None:
    """They are not free, but nobody else has them: the Service may request them by name as a LoadBalancer."""
    full = (pool("edge", "192.0.2.128/32"),)
    own = service("a/web", external_ips=["192.0.2.128"], wants="192.0.2.128")
    assert assigned_addresses(own, pools=full) == ["192.0.2.128"]
    others = service("a/old", type="ClusterIP", external_ips=["192.0.2.128"])
    assert isinstance(outcome(service("a/web", wants="192.0.2.128"), others, pools=full), Refusal)


def test_a_node_that_joins_with_a_vip_takes_it() -> None:
    """keepalived would delete a node's own address, so the holder of that VIP moves."""
    pools = Pools.of([EDGE])
    holder = ours("a/web", ["192.0.2.130"])
    ledger = entered(pools, [holder])
    ledger.reserve("Node n1", [parse_address("192.0.2.130")])
    found = settle(holder, pools, ledger)
    assert isinstance(found, Allocation)
    assert (str(found.addresses[0]), found.is_displaced) == ("192.0.2.128", True)
    assert found.note == "was 192.0.2.130; 192.0.2.130 is an address of Node n1"


def test_an_edit_that_would_end_a_sharing_is_detected() -> None:
    """Admission checks whether the edited Service could still share its addresses."""
    web, tls = (ours(f"a/{port}", ["192.0.2.130"], annotations=SHARE, port=port) for port in (80, 443))
    pools = Pools.of([EDGE])
    ledger = entered(pools, [web, tls])
    edited, _ = read_request(ours("a/443", ["192.0.2.130"], annotations=SHARE, port=80))
    fine, _ = read_request(ours("a/443", ["192.0.2.130"], annotations=SHARE, port=81))
    assert breaks_sharing(fine, pools, ledger) is None
    found = breaks_sharing(edited, pools, ledger)
    assert found is not None
    assert found.message == (
        "address 192.0.2.130 is shared with Service a/80, and this edit would end that: both use TCP/80; change "
        "the edit, or request another address with kavip.io/addresses in the same edit"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"annotations": {names.ADDRESSES_ANNOTATION: "192.0.2.140"}},
        {"annotations": {**SHARE, names.POOL_ANNOTATION: "lab"}, "port": 443},
    ],
    ids=["another address", "another pool"],
)
def test_a_service_that_requests_another_address_may_end_its_sharing(more: dict[str, Any]) -> None:
    """A request to move ends no sharing that the Service still requests."""
    pools = Pools.of([EDGE, LAB])
    ledger = entered(pools, [ours(f"a/{port}", ["192.0.2.130"], annotations=SHARE, port=port) for port in (80, 443)])
    request, _ = read_request(ours("a/80", ["192.0.2.130"], **more))
    assert breaks_sharing(request, pools, ledger) is None


# --- whose status -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (service("a/web", holds=["192.0.2.130"]), Reason.ASSIGNED),
        (service("a/web", holds=["10.0.0.1"]), FOREIGN),
        (service("a/web", holds=["192.0.2.130", "10.0.0.1"]), FOREIGN),
        (service("a/web", holds=["2001:db8::1"]), FOREIGN),
        (with_reason(service("a/web", holds=["10.0.0.1"]), Reason.ASSIGNED), Reason.STRANDED),
        (with_reason(service("a/web", holds=["10.0.0.1"]), Reason.STRANDED), Reason.STRANDED),
        (with_reason(service("a/web", holds=["10.0.0.1"]), FOREIGN), FOREIGN),
        (with_reason(service("a/web", holds=["10.0.0.1"]), Reason.LEFT_TO_PLATFORM, "Unknown"), FOREIGN),
        (with_reason(service("a/web", holds=["10.0.0.1"]), Reason.NO_POOL, "False"), FOREIGN),
        (with_reason(service("a/web", holds=["192.0.2.130"]), FOREIGN), Reason.ASSIGNED),
    ],
)
def test_foreign_status_is_respected_or_adopted(subject: Service, reason: Reason) -> None:
    """
    Without kavip's condition, an eligible address is adopted, and any other belongs to another controller. Both stay.
    """
    found = outcome(subject)
    assert (found.reason, found.kept, found.is_assigned) == (reason, True, True)
    assert found.addresses == subject.ingress_addresses


@pytest.mark.parametrize(
    ("holds", "why"),
    [
        ("203.0.113.1", "203.0.113.1 is in no pool"),
        ("198.51.100.1", "198.51.100.1 is in pool man, which has autoAssign: false and is not named"),
        ("2001:db8::1", "the Service has no IPv6"),
    ],
)
def test_the_condition_says_why_a_foreign_status_is_not_adopted(holds: str, why: str) -> None:
    """The condition names the reason against each address."""
    pools = (pool("man", "198.51.100.0/24", auto_assign=False), pool("six", "2001:db8::/64"))
    found = outcome(service("a/web", holds=[holds], families=("IPv4",)), pools=pools)
    assert found.message == (
        f"{holds} was written by another controller, and kavip leaves it alone, because {why}; "
        'set kavip.io/reassign to "true" to get an address from kavip'
    )


def test_a_host_name_is_never_adopted() -> None:
    """A status with a host name is not changed, with any condition."""
    base = ours("a/web", ["192.0.2.130"])
    balancer = msgspec.structs.replace(base.status.load_balancer, ingress=[Ingress(hostname="lb.example.com")])
    subject = msgspec.structs.replace(base, status=msgspec.structs.replace(base.status, load_balancer=balancer))
    found = outcome(subject)
    assert (found.reason, found.addresses) == (FOREIGN, ())
    assert found.message.startswith(
        "the host name in status was written by another controller, and kavip leaves it alone;"
    )


def test_reassign_replaces_a_foreign_address() -> None:
    """A Service with the annotation gets an address of kavip in place of a foreign one."""
    assert assigned_addresses(service("a/web", holds=["10.0.0.1"], annotations=REASSIGN)) == ["192.0.2.128"]


def test_a_copy_without_kavips_condition_is_not_foreign_during_a_write() -> None:
    """A copy without our condition is not foreign while our write has not come back."""
    pools = Pools.of([EDGE])
    subject = service("a/web")
    ledger = entered(pools, [subject])
    ledger.expect("a/web", [parse_address("10.0.0.1")], resource_version="1")
    assert settle(subject, pools, ledger).reason is Reason.STRANDED


def test_the_second_family_of_a_requested_address_is_not_stranded() -> None:
    """A requested address selects its pool, so the second address from that pool is as eligible as the first."""
    named = pool("named", "203.0.113.0/30", "2001:db8:7::/126", auto_assign=False)
    first = outcome(service("a/web", wants="203.0.113.1", **PREFER), pools=(named,))
    held = [str(address) for address in first.addresses]
    assert (first.reason, held) == ("Assigned", ["203.0.113.1", "2001:db8:7::"])
    again = outcome(ours("a/web", held, wants="203.0.113.1", **PREFER), pools=(named,))
    assert (again.reason, again.kept) == ("Assigned", True)


def test_an_address_of_a_pool_that_must_be_named_does_not_come_back_without_the_name() -> None:
    """It was given on request. If it were given again after its removal from status, it would be stranded."""
    pools = (EDGE, pool("named", "203.0.113.0/31", auto_assign=False))
    spoken = Condition(
        type=names.ConditionType.ADDRESS_ASSIGNED,
        status="True",
        reason="Assigned",
        message="203.0.113.1 from pool named",
    )
    web = service("a/web")
    wiped = msgspec.structs.replace(web, status=msgspec.structs.replace(web.status, conditions=[spoken]))
    assert assigned_addresses(wiped, pools=pools) == ["192.0.2.128"]


def test_an_address_kept_by_a_refusal_stays_kavips_after_its_pool_is_deleted() -> None:
    """
    The condition names the kept address, so no other controller owns it. The Service gives it up for the requested one.
    """
    holder, web = ours("a/holder", ["198.51.100.1"]), ours("b/web", ["192.0.2.130"], wants="198.51.100.1")
    refused = outcome(web, holder)
    assert (refused.reason, refused.addresses) == (Reason.ADDRESS_IN_USE, (parse_address("192.0.2.130"),))
    condition = Condition(
        type=names.ConditionType.ADDRESS_ASSIGNED, status="False", reason=refused.reason, message=refused.message
    )
    waits = msgspec.structs.replace(web, status=msgspec.structs.replace(web.status, conditions=[condition]))
    assert outcome(waits, holder, pools=(LAB,)).reason is Reason.STRANDED
    assert assigned_addresses(waits, pools=(LAB,)) == ["198.51.100.1"]
    moved = msgspec.structs.replace(waits, status=msgspec.structs.replace(ours("b/web", ["203.0.113.9"]).status))
    foreign = msgspec.structs.replace(moved, status=msgspec.structs.replace(moved.status, conditions=[condition]))
    assert outcome(foreign, holder, pools=(LAB,)).reason is FOREIGN
