"""VIPs as keepalived configures them."""

import pytest

from kavip.api.address import Address, parse_address
from kavip.errors import BadInput
from kavip.vrrp.virtualips import anchor, host, is_anchor, parse_virtual_ip, without_anchors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.10", "192.0.2.10/32"),
        ("192.0.2.10/24", "192.0.2.10/24"),
        ("2001:DB8::10", "2001:db8::10/128"),
        ("2001:db8::10/64", "2001:db8::10/64"),
        ("192.0.2.0/31", "192.0.2.0/31"),
        ("fe80::100/64", "fe80::100/64"),
    ],
)
def test_parse(text: str, expected: str) -> None:
    """An address with or without a length is written in canonical form, always with the length."""
    found = parse_virtual_ip(text, "spec.virtualIPs[0].address", interface="eth0")
    assert (str(found), found.interface) == (expected, "eth0")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "192.0.2.10/",
        "192.0.2.10/024",
        "192.0.2.10/255.255.255.0",
        "192.0.2.10/33",
        "192.0.2.10/7",
        "192.0.2.255/24",
        "2001:db8::/64",
        "0.0.0.0",
        "255.255.255.255",
        "127.0.0.1",
        "240.0.0.1",
        "ff02::1",
        "::",
        "::ffff:192.0.2.1",
        "fe80::1%eth0",
        "169.254.255.7",
        "fe80::6b61:7",
        "192.0.2.10 dev eth1",
        "192.0.2.1\u0660",
    ],
)
def test_refused(text: str) -> None:
    """An address that cannot be a VIP is refused with the name of the field; keepalived would accept most of them."""
    with pytest.raises(BadInput, match=r"^spec\.virtualIPs\[0\]\.address: "):
        parse_virtual_ip(text, "spec.virtualIPs[0].address", interface="eth0")


def test_anchors() -> None:
    """Shared instances advertise an address that depends on their VRID only; no pool has such an address."""
    assert str(anchor(4, 255, "eth0")) == "169.254.255.255/32"
    assert str(anchor(6, 200, "eth0")) == "fe80::6b61:c8/128"
    assert all(is_anchor(anchor(family, number, "eth0").address) for family in (4, 6) for number in (1, 255))
    assert not is_anchor(parse_address("192.0.2.1"))
    assert not is_anchor(parse_address("fe80::1"))


def test_host() -> None:
    """An address alone is a /32 or a /128."""
    assert [str(host(parse_address(text), "eth0")) for text in ("192.0.2.1", "2001:db8::1")] == [
        "192.0.2.1/32",
        "2001:db8::1/128",
    ]


@pytest.mark.parametrize("own_anchor", ["169.254.255.9", "fe80::6b61:9"])
def test_vips_without_anchors(own_anchor: str) -> None:
    """All of one family; without an anchor it is the same object."""
    own = parse_address(own_anchor)
    vips = tuple(host(Address(own.family, value), "eth0") for value in (own.value - 99_999, own.value + 99_999))
    assert without_anchors(vips) is vips
    assert without_anchors((vips[0], host(own, "eth0"), vips[1])) == vips
    assert without_anchors(()) == ()
