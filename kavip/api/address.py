"""
An IP address as a value: family and integer.

Addresses are parsed once, at the edge, and written canonically (RFC 5952 for IPv6). Order is family, then number.
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from kavip.errors import BadInput

BITS = {4: 32, 6: 128}
_MAX_LENGTH: Final = 128  # characters; an IPv6 address with a zone stays below
WANTED: Final = "want one IPv4 or IPv6 address, such as 192.0.2.10 or 2001:db8::10"


class Address(NamedTuple):
    """One address; *family* is 4 or 6."""

    family: int
    value: int

    def __str__(self) -> str:
        """The canonical text, without a prefix length."""
        value = self.value
        if self.family == 4:
            return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"
        return str(IPv6Address(value))


def parse_address(text: str, field: str = "") -> Address:
    """
    Read one IPv4 or IPv6 address that a user wrote, without prefix length or zone.

    Raises :class:`BadInput` naming *field*. IPv4 that is mapped into IPv6 is refused too: the kernel treats it as IPv4.
    """
    if len(text) > _MAX_LENGTH:  # the error of ipaddress would repeat a long text several times
        raise BadInput(field, text[:_MAX_LENGTH], WANTED)
    try:
        address = ip_address(text)
    except ValueError:
        raise BadInput(field, text, WANTED) from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise BadInput(field, text, "want an address without a zone")
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise BadInput(field, text, f"is an IPv4 address written as IPv6; write {address.ipv4_mapped}")
    return Address(address.version, int(address))


def read_address(text: str) -> Address | None:
    """Read an address in an object, for example in a status, as the kernel would; None if *text* is not an address."""
    return _read(text) if len(text) <= _MAX_LENGTH else None  # longer texts must not fill the cache


MOST_READ: Final = 1 << 17
"""
Addresses whose texts are remembered: more than the VIPs of the largest groups.

A change of a Shared group reads all of its addresses one after the other. If they were more than the cache holds, each
of them would be parsed again each time.
"""


@lru_cache(MOST_READ)
def _read(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        address = address.ipv4_mapped or address
    return Address(address.version, int(address))
