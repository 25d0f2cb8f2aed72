"""
Neighbour discovery of IPv6 over Ethernet.

Solicitations ask whether an address is in use (RFC 4862, 5.4), advertisements say which machine has it (RFC 4861).

Packets with extension headers are not read: machines send none with these messages. Checksums are not verified: to
forge a packet with a right checksum is as easy as with a wrong one.
"""

import struct
from collections.abc import Iterator
from typing import Final

from kavip.agent.conflicts.packets.sighting import Sighting, SightingKind, hardware_text
from kavip.api.address import Address

ETHERTYPE: Final = 0x86DD
SOLICITATION, ADVERTISEMENT = 135, 136
HOP_LIMIT: Final = 255
"""A packet with less has passed a router: it does not come from this LAN."""

_ICMPV6: Final = 58
_ETHERNET: Final = struct.Struct("!6s6sH")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_MESSAGE: Final = struct.Struct("!BBHI16s")  # type, code, checksum, flags or reserved, target
_UNSPECIFIED: Final = bytes(16)
_ALL_NODES: Final = bytes.fromhex("ff02" + "00" * 13 + "01")
_SOLICITED_NODE: Final = bytes.fromhex("ff02" + "00" * 9 + "01ff")
_TARGET_LINK_LAYER: Final = 2  # the option with the hardware address of the target
_OVERRIDE, _ROUTER = 0x2000_0000, 0x8000_0000


def solicitation(address: Address, *, source: bytes) -> bytes:
    """The frame that asks whether another machine has *address*, without using it: it is sent from ``::``."""
    group = solicited_node(address)
    message = _MESSAGE.pack(SOLICITATION, 0, 0, 0, _packed(address))
    return _frame(message, hardware=source, source=_UNSPECIFIED, target=group)


def advertisement(address: Address, *, source: bytes, is_router: bool) -> bytes:
    """The frame that says: *source* has *address*; with it the others replace what they believed."""
    flags = _OVERRIDE | (_ROUTER if is_router else 0)
    option = bytes((_TARGET_LINK_LAYER, 1)) + source
    message = _MESSAGE.pack(ADVERTISEMENT, 0, 0, flags, _packed(address)) + option
    return _frame(message, hardware=source, source=_packed(address), target=_ALL_NODES)


def solicited_node(address: Address) -> bytes:
    """The multicast address to which solicitations for *address* are sent."""
    return _SOLICITED_NODE + _packed(address)[-3:]


def multicast_hardware(group: bytes) -> bytes:
    """The Ethernet address of the multicast address *group*."""
    return b"\x33\x33" + group[-4:]


def read(frame: bytes) -> Sighting | None:
    """What *frame* says; None if it is no such message, or says nothing."""
    start = _ETHERNET.size + _IPV6.size
    if len(frame) < start + _MESSAGE.size or frame[12:14] != ETHERTYPE.to_bytes(2, "big"):
        return None
    _, length, following, hops, source, _ = _IPV6.unpack_from(frame, _ETHERNET.size)
    if following != _ICMPV6 or hops != HOP_LIMIT:
        return None
    message, sender = frame[start : start + length], hardware_text(frame[6:12])
    if message[:1] == bytes((SOLICITATION,)) and source == _UNSPECIFIED and len(message) >= _MESSAGE.size:
        target = _target(message)
        return Sighting(target, sender, SightingKind.PROBE) if target and sender else None
    return read_advertisement(message, sender=sender)


def read_advertisement(message: bytes, *, sender: str = "") -> Sighting | None:
    """What the ICMPv6 *message* says; *sender*: the hardware address that counts if the message names none."""
    if len(message) < _MESSAGE.size or message[:2] != bytes((ADVERTISEMENT, 0)):
        return None
    target, hardware = _target(message), _target_hardware(message) or sender
    return Sighting(target, hardware, SightingKind.CLAIM) if target and hardware else None


def _target(message: bytes) -> Address | None:
    value = int.from_bytes(message[8:24], "big")
    is_multicast = message[8] == 0xFF
    return Address(6, value) if value and not is_multicast else None


def _target_hardware(message: bytes) -> str:
    found = (hardware_text(content[:6]) for kind, content in _options(message) if kind == _TARGET_LINK_LAYER)
    return next(filter(None, found), "")


def _options(message: bytes) -> Iterator[tuple[int, bytes]]:
    at = _MESSAGE.size
    while at + 2 <= len(message) and (length := message[at + 1] * 8):
        yield message[at], message[at + 2 : at + length]
        at += length


def _frame(message: bytes, *, hardware: bytes, source: bytes, target: bytes) -> bytes:
    checksum = _checksum(source + target + struct.pack("!II", len(message), _ICMPV6) + message)
    message = message[:2] + struct.pack("!H", checksum) + message[4:]
    ethernet = _ETHERNET.pack(multicast_hardware(target), hardware, ETHERTYPE)
    return ethernet + _IPV6.pack(6 << 28, len(message), _ICMPV6, HOP_LIMIT, source, target) + message


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071); *data* has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _packed(address: Address) -> bytes:
    return address.value.to_bytes(16, "big")
