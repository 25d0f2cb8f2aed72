"""
VIPs as keepalived configures them: an address, its prefix length, an interface.

keepalived also accepts ``0.0.0.0``, multicast, loopback, and a prefix length of 0, which routes all traffic to the
interface. Addresses of Services come from validated pools; addresses that a group itself names are checked here.
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from operator import attrgetter
from typing import Final, NamedTuple

from kavip.api.address import BITS, MOST_READ, Address
from kavip.errors import BadInput

ANCHOR_IPV4: Final = 0xA9FEFF00
"""169.254.255.0: Shared instances advertise ``169.254.255.<VRID>``, which never changes."""
ANCHOR_IPV6: Final = 0xFE80 << 112 | 0x6B61 << 16
"""fe80::6b61:0: the same for IPv6; 0x6b61 is "ka"."""

_ANCHORS: Final = {4: range(ANCHOR_IPV4, ANCHOR_IPV4 + (1 << 8)), 6: range(ANCHOR_IPV6, ANCHOR_IPV6 + (1 << 16))}
SHORTEST_PREFIX: Final = {4: 8, 6: 16}
"""By family, the shortest prefix of a VIP: keepalived routes all its addresses to the interface."""
ADDRESS: Final = attrgetter("address")
_VALUE: Final = attrgetter("address.value")
_INTERFACE: Final = attrgetter("interface")
_SHAPE: Final = "want an address, with or without a prefix length, such as 192.0.2.10/24 or 2001:db8::10"


class VirtualIP(NamedTuple):
    """One VIP on one interface."""

    address: Address
    prefix: int
    interface: str

    def __str__(self) -> str:
        """In keepalived's form, always with the length: keepalived reads an empty ``/`` as ``/0``."""
        return f"{self.address}/{self.prefix}"

    def on(self, interface: str) -> "VirtualIP":
        """The same VIP on *interface*; itself if it is there: results that depend on it are found by identity."""
        return self if self.interface == interface else self._replace(interface=interface)


@lru_cache(MOST_READ)  # most stay the same from one plan to the next
def host(address: Address, interface: str) -> VirtualIP:
    """*address* alone, as /32 or /128."""
    return VirtualIP(address, BITS[address.family], interface)


def anchor(family: int, router_id: int, interface: str) -> VirtualIP:
    """The address that a Shared instance advertises, whatever its VIPs."""
    return host(Address(family, (ANCHOR_IPV4 if family == 4 else ANCHOR_IPV6) + router_id), interface)


def is_anchor(address: Address) -> bool:
    """Whether *address* is from :func:`anchor`."""
    return address.value in _ANCHORS[address.family]


def without_anchors(vips: tuple[VirtualIP, ...]) -> tuple[VirtualIP, ...]:
    """*vips*, sorted and of one family, without the addresses from :func:`anchor`: mostly there are none."""
    if not vips:
        return vips
    anchors = _ANCHORS[vips[0].address.family]
    first, end = (bisect_left(vips, value, key=_VALUE) for value in (anchors.start, anchors.stop))
    return vips if first == end else vips[:first] + vips[end:]


def interfaces_of(vips: Iterable[VirtualIP]) -> frozenset[str]:
    """The interfaces of *vips*."""
    return frozenset(map(_INTERFACE, vips))


def addresses_of(vips: Iterable[VirtualIP]) -> frozenset[Address]:
    """The addresses of *vips*."""
    return frozenset(map(ADDRESS, vips))


def parse_virtual_ip(text: str, field: str, *, interface: str) -> VirtualIP:
    """
    The VIP *text* of a group itself.

    Raises :class:`BadInput` naming *field*.
    """
    bare, slash, length = text.partition("/")
    if slash and (not length.isascii() or not length.isdecimal() or str(int(length)) != length):
        raise BadInput(field, text, _SHAPE)
    try:
        parsed = ip_interface(text)
    except ValueError:
        raise BadInput(field, text, _SHAPE) from None
    if "%" in bare:
        raise BadInput(field, text, _SHAPE)
    if isinstance(parsed, IPv6Interface) and parsed.ip.ipv4_mapped is not None:
        raise BadInput(field, text, f"is IPv4 written as IPv6; write {parsed.ip.ipv4_mapped}")
    address = Address(parsed.version, int(parsed.ip))
    if problem := _problem(parsed, address):
        raise BadInput(field, text, problem)
    return VirtualIP(address, parsed.network.prefixlen, interface)


def _problem(parsed: IPv4Interface | IPv6Interface, address: Address) -> str:
    """Why *address* cannot be a VIP, with the remedy; "" if it can."""
    ip, network = parsed.ip, parsed.network
    if ip.is_unspecified or ip.is_loopback or ip.is_multicast or (ip.version == 4 and ip.is_reserved):
        return "want a unicast address that is not loopback, unspecified or reserved"
    if is_anchor(address):
        return "kavip uses this range itself, to advertise Shared instances; want another address"
    if network.prefixlen < SHORTEST_PREFIX[ip.version]:
        return f"want a prefix length of at least {SHORTEST_PREFIX[ip.version]}"
    edges = {network.network_address, network.broadcast_address} if ip.version == 4 else {network.network_address}
    if network.prefixlen < BITS[ip.version] - 1 and ip in edges:
        return f"this is the network or broadcast address of {network}; want a host's address"
    return ""
