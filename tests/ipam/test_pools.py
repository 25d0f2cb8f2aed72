"""Pools: which are accepted, which are in force, and which Services an edit strands."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import parse_address
from kavip.api.meta import LabelSelector, Requirement
from kavip.api.pool import PoolRouting, PoolSpec, Reservation, VIPPool
from kavip.api.refusal import MAX_FINDINGS
from kavip.ipam.impact import assess_edit
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import REJECTED, Barred, Pool, cautions, parse_pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import parse_range
from kavip.ipam.request import read_request
from kavip.names import Reason
from tests.ipam.simulatedcontroller import entered
from tests.support.build import metadata, pool, service


def read(wire: VIPPool) -> Pool:
    """The pool of *wire*, which is valid."""
    found, _ = parse_pool(wire)
    assert found is not None
    return found


def refused(new: VIPPool, *others: VIPPool) -> list[str]:
    """The messages of the refusals of *new*."""
    return [finding.message for finding in Pools.of(others).check(*parse_pool(new))]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"addresses": []}, "spec.addresses: is empty; list CIDRs or first-last ranges"),
        ({"addresses": ["192.0.2.1/24"]}, "spec.addresses[0]: '192.0.2.1/24': has host bits set"),
        ({"addresses": ["127.0.0.0/24"]}, "no Service can have: loopback"),
        ({"addresses": ["10.0.0.0/24", "10.0.0.128-10.0.1.1"]}, "spec.addresses[1]: '10.0.0.128-10.0.1.1': overlaps"),
        ({"addresses": ["0.0.0.0/0"]}, "the unspecified address"),
        ({"addresses": ["ff02::/64"]}, "multicast"),
        ({"addresses": ["255.255.255.255"]}, "reserved (240.0.0.0/4)"),
        ({"addresses": ["169.254.0.0/24"]}, "link-local"),
        ({"addresses": ["fe80::/64"]}, "link-local"),
        ({"addresses": ["240.0.0.1"]}, "reserved (240.0.0.0/4)"),
        ({"addresses": ["::ffff:192.0.2.0"]}, "write 192.0.2.0"),
        ({"addresses": ["::fff0:0:0-::ffff:ffff:ffff:ffff"]}, "IPv4 written as IPv6"),
        ({"addresses": ["192.0.2.9-192.0.2.1"]}, "is reversed; write 192.0.2.1-192.0.2.9"),
        ({"addresses": ["192.0.2.9-2001:db8::1"]}, "want both ends of one family"),
        ({"addresses": ["192.0.2.0/255.255.255.0"]}, "want a prefix length from 0 to 32"),
        ({"service_selector": LabelSelector(match_labels={"a b": "x"})}, "spec.serviceSelector.matchLabels[a b]"),
        (
            {"namespace_selector": LabelSelector(match_expressions=[Requirement(key="a", operator="Is")])},
            "spec.namespaceSelector.matchExpressions[0].operator: 'Is': want In, NotIn, Exists, DoesNotExist",
        ),
        ({"priority": -1}, "spec.priority: -1: want 0 or more"),
        ({"exclude": ["10.0.0.0/24"]}, "spec.exclude[0]: '10.0.0.0/24': is outside spec.addresses"),
        ({"exclude": ["x"]}, "spec.exclude[0]: 'x': want a CIDR"),
        ({"groups": ["edge"]}, "spec.groups[0]: 'edge': want <namespace>/<name>"),
        ({"cooldown_seconds": -1}, "spec.cooldownSeconds: -1: want 0 or more"),
        ({"max_per_namespace": -1}, "spec.maxPerNamespace: -1: want 0 or more"),
        ({"reservations": [Reservation(address="10.0.0.1", service="a/b")]}, "spec.reservations[0].address"),
        ({"reservations": [Reservation(address="192.0.2.1", service="b")]}, "spec.reservations[0].service"),
        ({"reservations": [Reservation(address="192.0.2.1", service="a/b")] * 2}, "is reserved twice"),
        (
            {"exclude": ["192.0.2.1"], "reservations": [Reservation(address="192.0.2.1", service="a/b")]},
            "is excluded from this pool",
        ),
    ],
)
def test_a_malformed_pool_is_refused(spec: dict[str, Any], message: str) -> None:
    """Each malformed field is reported with its path, its value and a remedy. The pool is not in force."""
    new = VIPPool(metadata=metadata("edge"), spec=PoolSpec(**{"addresses": ["192.0.2.0/24"], **spec}))
    assert len(refused(new)) == 1
    assert message in refused(new)[0]
    pools = Pools.of([new, pool("lab", "198.51.100.0/24")])
    assert [each.name for each in pools.in_force] == ["lab"]
    assert pools.problems["edge"].reason is Reason.INVALID


def test_all_findings_of_a_pool_are_reported() -> None:
    """One malformed range does not hide another, nor an overlap."""
    new = pool("edge", "nonsense", "10.0.0.1/8", "192.0.2.0/24")
    assert len(refused(new, pool("old", "192.0.2.128/25"))) == 3


def test_an_exclude_that_reaches_outside_the_pool_is_a_warning() -> None:
    """An exclude beyond the ranges of the pool is accepted with a warning."""
    new = pool("edge", "192.0.2.0/25", exclude=["192.0.2.120-192.0.2.130", "192.0.2.1"])
    assert refused(new) == []
    parsed, _ = parse_pool(new)
    assert parsed
    assert cautions(parsed) == ("spec.exclude[0]: 192.0.2.120-192.0.2.130 is only partly inside spec.addresses",)


def test_overlap_names_the_other_pool_even_where_it_is_excluded() -> None:
    """Two pools must not declare one address, excluded or not; a pool never overlaps its own stored copy."""
    old = pool("old", "192.0.2.0/24", exclude=["192.0.2.128/25"])
    assert refused(pool("new", "192.0.2.200"), old) == [
        "spec.addresses: 192.0.2.200 overlaps 192.0.2.0/24 of pool old; remove it from one of the two"
    ]
    assert refused(pool("old", "192.0.2.0/23"), old) == []


def test_overlap_with_a_pool_that_is_not_in_force_is_refused() -> None:
    """A stored pool with another fault would overlap as soon as that fault is corrected."""
    broken = pool("broken", "192.0.2.0/24", exclude=["10.0.0.1"])
    assert refused(pool("new", "192.0.2.0/28"), broken)


@given(st.permutations([pool(f"p{index}", f"10.0.{index // 2}.0/24", created=f"20{20 + index}") for index in range(6)]))
def test_the_older_of_two_that_overlap_stays_in_force(wires: list[VIPPool]) -> None:
    """The same pools are in force, in the same order, for any order of events."""
    pools = Pools.of(wires)
    assert [each.name for each in pools.in_force] == ["p0", "p2", "p4"]
    assert {name: problem.reason for name, problem in pools.problems.items()} == dict.fromkeys(
        ("p1", "p3", "p5"), Reason.OVERLAP
    )


def test_pools_are_tried_by_priority_then_name() -> None:
    """The lower number comes first, and equal ones by name. Pools without autoAssign are skipped."""
    wires = [
        pool("c", "10.0.3.0/24"),
        pool("b", "10.0.2.0/24"),
        pool("d", "10.0.4.0/24", priority=1),
        pool("a", "10.0.1.0/24", auto_assign=False),
    ]
    request, _ = read_request(service("shop/web"))
    assert [each.name for each in Pools.of(wires).eligible(request, None)] == ["d", "b", "c"]


def test_every_selector_must_match() -> None:
    """Group, namespace labels and Service labels must all match. The message names the mismatch."""
    selector = LabelSelector(match_labels={"env": "prod"})
    picky = pool("edge", groups=["lb/edge"], namespace_selector=selector, service_selector=selector)
    edge = Pools.of([picky]).in_force[0]
    plain, _ = read_request(service("shop/web"))
    grouped, _ = read_request(service("shop/web", group="lb/edge"))
    labelled, _ = read_request(service("shop/web", group="lb/edge", labels={"env": "prod"}))
    assert edge.mismatch(plain, {"env": "prod"}) == "can serve only KeepalivedGroup lb/edge (groups)"
    assert edge.mismatch(grouped, {}) == "cannot serve namespace shop (namespaceSelector)"
    assert edge.mismatch(grouped, {"env": "prod"}) == "cannot serve the labels of Service shop/web (serviceSelector)"
    assert edge.mismatch(labelled, {"env": "prod"}) == ""


def test_addresses_find_their_pool() -> None:
    """An address belongs to the pool that declares it, even if it is excluded or barred."""
    pools = Pools.of(
        [pool("edge", "192.0.2.0/24", exclude=["192.0.2.1"])], barred=[Barred(parse_range("192.0.2.2/31"), "it")]
    )
    edge = pools.in_force[0]
    assert pools.pool_of(parse_address("192.0.2.1")) is edge
    assert pools.pool_of(parse_address("192.0.3.1")) is None
    assert [edge.is_usable(parse_address(f"192.0.2.{last}")) for last in range(5)] == [True, False, False, False, True]


def test_addresses_that_the_platform_rejects_are_not_assigned() -> None:
    """
    A reservation of a rejected address waits. The pool serves its other addresses, and the message names the platform.
    """
    wire = pool("edge", "192.0.2.0/24", reservations=[Reservation(address="192.0.2.1", service="a/b")])
    pools = Pools.of([wire], barred=[Barred(parse_range(text), REJECTED) for text in ("192.0.2.0/31", "10.0.0.0/8")])
    (edge,) = pools.in_force
    assert pools.problems == {}
    assert edge.why_barred(parse_address("192.0.2.1"), "a/b") == (
        "of pool edge lies in spec.externalIP.policy.rejectedCIDRs of Network cluster"
    )
    assert edge.why_barred(parse_address("192.0.2.2"), "a/b") == ""
    assert Ledger(pools).usage("edge") == {4: (254, 0, 254, 0)}


def test_only_an_edited_pool_is_parsed_again() -> None:
    """This holds with 3,000 pools too. Rejected CIDRs of the platform concern all pools."""
    edge, lab = pool("edge", "192.0.2.0/24"), pool("lab", "198.51.100.0/24")
    before = Pools.of([edge, lab])
    after = Pools.of([edge, pool("lab", "198.51.100.0/25")], before=before)
    assert after.get("edge") is before.get("edge")
    assert [str(span) for found in [after.get("lab")] if found for span in found.ranges] == ["198.51.100.0/25"]
    barred = Pools.of([edge, lab], barred=[Barred(parse_range("192.0.2.0/25"), "it")], before=before).get("edge")
    assert barred is not None
    assert [str(span) for span in barred.usable] == ["192.0.2.128/25"]


def test_sizes_are_exact_up_to_all_of_ipv6() -> None:
    """Totals are big integers, without .0 and .255 if the pool avoids them."""
    pools = Pools.of([pool("v6", "2000::/8"), pool("v4", "10.0.0.0/23", avoid_buggy_ips=True)])
    ledger = Ledger(pools)
    assert ledger.usage("v6") == {6: (2**120, 0, 2**120, 0)}
    assert ledger.usage("v4") == {4: (508, 0, 508, 0)}
    assert ledger.usage("gone") == {}


def test_stranding_names_the_services_that_an_edit_would_strand() -> None:
    """Shrinking, excluding and deleting strand holders. externalIPs and reservations are reported separately."""
    old = pool("edge", "192.0.2.0/29")
    ledger = entered(
        Pools.of([old]),
        [
            service("shop/web", holds=["192.0.2.1"]),
            service("shop/api", holds=["192.0.2.6"]),
            service("shop/old", type="ClusterIP", external_ips=["192.0.2.7"]),
        ],
    )
    before = read(old)
    shrunk = pool("edge", "192.0.2.0/30", reservations=[Reservation(address="192.0.2.1", service="a/b")])
    found = assess_edit(before, read(shrunk), ledger)
    assert [str(each) for each in found.lost] == ["shop/api (192.0.2.6)"]
    assert [str(each) for each in found.external] == ["shop/old (192.0.2.7)"]
    assert [str(each) for each in found.misfits] == ["shop/web (192.0.2.1)"]
    assert [str(each) for each in assess_edit(before, None, ledger).lost] == [
        "shop/web (192.0.2.1)",
        "shop/api (192.0.2.6)",
    ]
    assert assess_edit(before, read(pool("edge", "192.0.2.0/28")), ledger).lost == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from(("", "vlan20", "bond0.30")), st.booleans()),
        max_size=8,
    )
)
def test_the_interface_of_an_address_is_that_of_its_pool(drawn: list[tuple[int, int, str, bool]]) -> None:
    """Of the pool in force; else of the oldest pool that holds the address, so no edit of another one moves a VIP."""
    wires = [
        pool(
            f"p{number}",
            f"192.0.2.{first}-192.0.2.{first + size}",
            interface=interface,
            priority=-1 if is_broken else 0,
            created=f"2026-01-01T00:00:{number:02}Z",
        )
        for number, (first, size, interface, is_broken) in enumerate(drawn)
    ]
    pools = Pools.of(wires)
    for value in range(90):
        address = parse_address(f"192.0.2.{value}")
        found = pools.interface_of(address)
        owner = pools.pool_of(address)
        if owner is not None:
            assert (found.interface if found else "") == owner.interface
            assert found is None or found.pool == owner.name
        elif found is not None:
            claiming = [each for each in pools.known if any(span.holds(address) for span in each.ranges)]
            assert found.pool in {each.name for each in claiming}
            assert found.interface


@pytest.mark.parametrize(
    ("routing", "field"),
    [
        ({"gateway": "", "table": 120}, "spec.routing.gateway"),
        ({"gateway": "198.51.100.300", "table": 120}, "spec.routing.gateway"),
        ({"gateway": "198.51.100.200", "table": 120}, "spec.routing.gateway"),  # its own address
        ({"gateway": "2001:db8:30::1", "table": 120}, ""),
        ({"gateway": "198.51.100.1", "table": 0}, "spec.routing.table"),
        ({"gateway": "198.51.100.1", "table": 255}, "spec.routing.table"),
        ({"gateway": "198.51.100.1", "table": 2**32}, "spec.routing.table"),
        ({"gateway": "198.51.100.1", "gateway_ipv6": "203.0.113.1", "table": 120}, "spec.routing.gatewayIPv6"),
        ({"gateway": "0.0.0.0", "table": 120}, "spec.routing.gateway"),
        ({"gateway": "224.0.0.1", "table": 120}, "spec.routing.gateway"),
        ({"gateway": "fe80::1", "table": 120}, ""),
        ({"gateway": "198.51.100.1", "gateway_ipv6": "fe80::1", "table": 2**32 - 1}, ""),
    ],
)
def test_routing_is_checked(routing: dict[str, Any], field: str) -> None:
    """Each gateway is a usable address of a family of the pool, and the table is none of the kernel's."""
    wire = pool("dmz", "198.51.100.128/25", "2001:db8:20::/120", interface="vlan20", routing=PoolRouting(**routing))
    parsed, findings = parse_pool(wire)
    assert parsed is not None
    assert [each.message.partition(":")[0] for each in findings] == ([field] if field else [])
    assert bool(parsed.routing) is not bool(field)


def test_routing_of_a_pool_with_too_many_errors_is_none() -> None:
    """Its own errors are not among those that are reported."""
    wire = pool("dmz", "198.51.100.128/25", exclude=["x"] * MAX_FINDINGS, routing=PoolRouting(gateway="x", table=254))
    parsed, findings = parse_pool(wire)
    assert parsed is not None and parsed.routing is None
    assert not any("routing" in each.message for each in findings)
