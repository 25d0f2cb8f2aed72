"""ARP over Ethernet: probes and announcements (RFC 5227), and what other machines' packets say."""

import struct
from typing import Final

from kavip.agent.conflicts.packets.sighting import BROADCAST, Sighting, SightingKind, hardware_text
from kavip.api.address import Address

ETHERTYPE: Final = 0x0806
SHORTEST: Final = 42
"""Bytes of a frame without padding."""

REQUEST, REPLY = 1, 2
_SHAPE: Final = (1, 0x0800, 6, 4)  # Ethernet, IPv4, and the lengths of their addresses
_ETHERNET: Final = struct.Struct("!6s6sH")
_ARP: Final = struct.Struct("!HHBBH6sI6sI")
_NOBODY: Final = bytes(6)


def probe(address: Address, *, source: bytes) -> bytes:
    """The frame that asks whether another machine has *address*, without using it: the sender's address is 0."""
    return _frame(REQUEST, source, sender=0, target=address.value)


def announcement(address: Address, *, source: bytes) -> bytes:
    """The frame that says: *source* has *address*."""
    return _frame(REQUEST, source, sender=address.value, target=address.value)


def read(frame: bytes) -> Sighting | None:
    """What *frame* says; None if it is not ARP for IPv4 on Ethernet, or says nothing."""
    if len(frame) < SHORTEST or frame[12:14] != ETHERTYPE.to_bytes(2, "big"):
        return None
    *shape, operation, hardware, sender, _, target = _ARP.unpack_from(frame, _ETHERNET.size)
    text = hardware_text(hardware)
    if tuple(shape) != _SHAPE or operation not in (REQUEST, REPLY) or not text:
        return None
    if sender:
        is_answer = operation == REPLY and sender == target and frame[:6] != BROADCAST
        return Sighting(Address(4, sender), text, SightingKind.ANSWER if is_answer else SightingKind.CLAIM)
    return Sighting(Address(4, target), text, SightingKind.PROBE) if operation == REQUEST and target else None


def _frame(operation: int, source: bytes, *, sender: int, target: int) -> bytes:
    head = _ETHERNET.pack(BROADCAST, source, ETHERTYPE)
    return head + _ARP.pack(*_SHAPE, operation, source, sender, _NOBODY, target)
