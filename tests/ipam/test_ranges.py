"""Ranges of addresses."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netaddr import IPRange, IPSet

from kavip.api.address import Address, parse_address
from kavip.errors import BadInput
from kavip.ipam.ranges import Range, count_buggy, find, first_overlap, is_buggy, parse_range, read_network, subtract

RANGES = st.tuples(st.sampled_from((4, 6)), st.integers(0, 60), st.integers(0, 20)).map(
    lambda parts: Range(parts[0], parts[1], parts[1] + parts[2])
)


def values(ranges: list[Range] | tuple[Range, ...]) -> set[Address]:
    """Every address of *ranges*."""
    return {Address(family, value) for family, first, last in ranges for value in range(first, last + 1)}


def disjoint(ranges: list[Range]) -> list[Range]:
    """The ranges that overlap no earlier one, sorted."""
    result: list[Range] = []
    for span in ranges:
        if not any(span.overlaps(other) for other in result):
            result.append(span)
    return sorted(result)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("192.0.2.128/28", "192.0.2.128/28"),
        ("192.0.2.10-192.0.2.20", "192.0.2.10-192.0.2.20"),
        (" 192.0.2.10 - 192.0.2.11 ", "192.0.2.10/31"),
        ("192.0.2.10", "192.0.2.10"),
        ("192.0.2.10/32", "192.0.2.10"),
        ("2001:DB8::/120", "2001:db8::/120"),
        ("2001:db8::10-2001:db8::12", "2001:db8::10-2001:db8::12"),
        ("::/0", "::/0"),
    ],
)
def test_a_range_is_read_and_written_canonically(text: str, written: str) -> None:
    """CIDRs, ranges and bare addresses of both families are read, and written in their shortest form."""
    assert str(parse_range(text)) == written


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("192.0.2.130/28", "has host bits set; write 192.0.2.128/28 or 192.0.2.130"),
        ("192.0.2.20-192.0.2.10", "is reversed; write 192.0.2.10-192.0.2.20"),
        ("192.0.2.1-2001:db8::1", "want both ends of one family"),
        ("fe80::1%eth0", "without a zone"),
        ("192.0.2.0/33", "prefix length from 0 to 32"),
        ("192.0.2.0/255.255.255.0", "prefix length"),
        ("192.0.2.0/-1", "prefix length"),
        ("192.0.2.0/\u0662\u0664", "prefix length"),
        ("192.0.2.0/", "prefix length"),
        ("", "want a CIDR or first-last"),
        ("192.0.2.1-", "want a CIDR or first-last"),
        ("192.0.2.1-192.0.2.2-192.0.2.3", "want a CIDR or first-last"),
        ("192.0.2.010", "want a CIDR or first-last"),
        ("lab", "want a CIDR or first-last"),
    ],
)
def test_a_malformed_range_names_field_value_and_remedy(text: str, remedy: str) -> None:
    """A malformed range is refused with one line that has the remedy."""
    with pytest.raises(BadInput) as refused:
        parse_range(text, "spec.addresses[0]")
    assert remedy in str(refused.value)
    assert str(refused.value).startswith(f"spec.addresses[0]: {text!r}: ")


@given(st.integers(0, 2**128 - 1), st.integers(0, 128))
def test_cidrs_agree_with_the_standard_library(value: int, length: int) -> None:
    """Any IPv6 network is read as the ipaddress module reads it."""
    network = ip_network((IPv6Address(value), length), strict=False)
    assert parse_range(str(network)) == Range(6, int(network[0]), int(network[-1]))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("192.0.2.130/28", "192.0.2.128/28"),
        ("2001:DB8::1/64", "2001:db8::/64"),
    ],
)
def test_a_network_of_another_controller_is_read_without_host_bits(text: str, written: str) -> None:
    """Host bits, which OpenShift and Kubernetes accept, are dropped."""
    assert str(read_network(text)) == written


@pytest.mark.parametrize(
    "text",
    ["", "/", "lab", "192.0.2.1", "10/8", "010.0.0.0/8", "192.0.2.0/33", "192.0.2.0/255.255.255.0", "fe80::%e/10"],
)
def test_a_malformed_network_is_none(text: str) -> None:
    """A malformed CIDR of another controller is no range, and no error; Go does not read it either."""
    assert read_network(text) is None


@given(st.lists(RANGES), st.lists(RANGES))
def test_subtraction_agrees_with_netaddr(ranges: list[Range], holes: list[Range]) -> None:
    """netaddr's sets, which are too slow for the product, give the same addresses."""
    expected = _netaddr(disjoint(ranges)) - _netaddr(holes)
    assert _netaddr(subtract(disjoint(ranges), holes)) == expected


def _netaddr(ranges: Iterable[Range]) -> IPSet:
    return IPSet(IPRange(str(Address(family, first)), str(Address(family, last))) for family, first, last in ranges)


@given(st.lists(RANGES), st.lists(RANGES))
def test_subtraction_is_that_of_sets(ranges: list[Range], holes: list[Range]) -> None:
    """Subtraction leaves the addresses of a set difference, as sorted and disjoint ranges."""
    wanted = disjoint(ranges)
    left = subtract(wanted, holes)
    assert values(left) == values(wanted) - values(holes)
    assert list(left) == disjoint(list(left))
    assert all(span.size > 0 for span in left)


@given(st.lists(RANGES), RANGES)
def test_lookups_agree_with_a_scan(ranges: list[Range], wanted: Range) -> None:
    """Bisection finds the same range as a scan."""
    spans = disjoint(ranges)
    address = Address(wanted.family, wanted.first)
    assert find(spans, address) == next((span for span in spans if span.holds(address)), None)
    assert first_overlap(spans, wanted) == next((span for span in spans if span.overlaps(wanted)), None)


@given(st.integers(0, 2000), st.integers(0, 2000))
def test_buggy_addresses_are_counted_without_looking_at_each(first: int, size: int) -> None:
    """The count of .0 and .255 is that of a scan; IPv6 has none."""
    span = Range(4, first, first + size)
    assert count_buggy(span) == sum(is_buggy(Address(4, value)) for value in range(span.first, span.last + 1))
    assert count_buggy(Range(6, first, first + size)) == 0


def test_text_of_addresses_is_canonical() -> None:
    """IPv6 in capitals is read, and written as RFC 5952 requires."""
    assert str(parse_address("2001:DB8:0:0::10")) == str(ip_address("2001:db8::10"))
