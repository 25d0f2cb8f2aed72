"""
Classic BPF programs: the kernel passes only packets about certain addresses, before it wakes the agent.

A segment may have thousands of ARP packets a second. The addresses are few sorted spans of 32-bit numbers, of IPv6 the
last 32 bits, so a program may pass more than it was asked for, never less; the reader compares whole addresses. It is
a binary search: a packet costs about two comparisons for each doubling of the spans. The kernel lets a socket have a
program of at most 20 KB, so there are at most :data:`MOST` spans.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kavip.agent.conflicts.packets import arp, ndisc
from kavip.api.address import Address
from kavip.api.spans import Span, runs_of, widened

MOST: Final = 64
MOST_SENDERS: Final = 16
"""Hardware addresses that a program drops; the reader drops the others."""

_LOAD, _LOAD_HALF, _LOAD_BYTE = 0x20, 0x28, 0x30  # BPF_LD | BPF_ABS | BPF_W, BPF_H, BPF_B
_JUMP, _EQUAL, _GREATER, _AT_LEAST = 0x05, 0x15, 0x25, 0x35
_RETURN: Final = 0x06
_ALL: Final = 0xFFFF  # bytes of the packet
_PACKET_TYPE: Final = 0xFFFF_F000 + 4  # SKF_AD_OFF + SKF_AD_PKTTYPE
_OUTGOING: Final = 4
_LOW: Final = 0xFFFF_FFFF


class Instruction(NamedTuple):
    """One instruction: *code*, how many to skip if a comparison is *true* or *false*, and its operand *k*."""

    code: int
    true: int
    false: int
    k: int


Program = tuple[Instruction, ...]

_DROP: Final = Instruction(_RETURN, 0, 0, 0)
_PASS: Final = Instruction(_RETURN, 0, 0, _ALL)


def packed(program: Program) -> bytes:
    """*program* as the array of ``struct sock_filter`` that the kernel takes."""
    return b"".join(struct.pack("@HBBI", *each) for each in program)


def claims_by_arp(addresses: Iterable[Address], *, own: Iterable[bytes]) -> Program:
    """Passes ARP packets whose sender has one of *addresses*, except those from *own* hardware addresses."""
    return (*_arp_head(own), _load(28), *_search(_keys(addresses)))


def sightings_by_arp(addresses: Iterable[Address], *, own: Iterable[bytes] = ()) -> Program:
    """The same, and ARP probes for one of *addresses*."""
    search = _search(_keys(addresses))
    skipped = len(search)
    return (
        *_arp_head(own),
        _load(28),
        Instruction(_EQUAL, 0, 1, 0),
        Instruction(_JUMP, 0, 0, skipped),  # no sender: the target counts
        *search,
        _load(38),
        *search,
    )


def sightings_by_ndisc(addresses: Iterable[Address]) -> Program:
    """Passes frames with neighbour solicitations and advertisements about *addresses*."""
    return (
        Instruction(_LOAD_HALF, 0, 0, 12),
        *_drop_unless(ndisc.ETHERTYPE),
        Instruction(_LOAD_BYTE, 0, 0, 20),
        *_drop_unless(58),
        Instruction(_LOAD_BYTE, 0, 0, 54),
        Instruction(_EQUAL, 2, 0, ndisc.SOLICITATION),
        *_drop_unless(ndisc.ADVERTISEMENT),
        _load(74),
        *_search(_keys(addresses)),
    )


def claims_by_icmpv6(addresses: Iterable[Address]) -> Program:
    """Passes ICMPv6 messages, without the headers before them, that are neighbour advertisements about *addresses*."""
    return (
        Instruction(_LOAD_BYTE, 0, 0, 0),
        *_drop_unless(ndisc.ADVERTISEMENT),
        _load(20),
        *_search(_keys(addresses)),
    )


def _arp_head(own: Iterable[bytes]) -> Program:
    """Drops what is not ARP for IPv4 on Ethernet, what this machine sends, and packets of *own* hardware addresses."""
    senders = [each for mac in sorted(own)[:MOST_SENDERS] for each in _drop_sender(mac)]
    return (
        Instruction(_LOAD_HALF, 0, 0, 12),
        *_drop_unless(arp.ETHERTYPE),
        Instruction(_LOAD_HALF, 0, 0, 14),
        *_drop_unless(1),
        _load(16),
        *_drop_unless(0x0800_0604),
        Instruction(_LOAD_HALF, 0, 0, _PACKET_TYPE),
        Instruction(_EQUAL, 0, 1, _OUTGOING),
        _DROP,
        *senders,
    )


def _drop_sender(hardware: bytes) -> Program:
    high, low = struct.unpack("!IH", hardware)
    return (
        _load(22),
        Instruction(_EQUAL, 0, 3, high),
        Instruction(_LOAD_HALF, 0, 0, 26),
        Instruction(_EQUAL, 0, 1, low),
        _DROP,
    )


def _load(offset: int) -> Instruction:
    return Instruction(_LOAD, 0, 0, offset)


def _drop_unless(value: int) -> Program:
    return (Instruction(_EQUAL, 1, 0, value), _DROP)


def _keys(addresses: Iterable[Address]) -> Sequence[Span]:
    """The last 32 bits of *addresses*, as few spans."""
    return widened(runs_of(Address(4, each.value & _LOW) for each in addresses), MOST).spans


def _search(spans: Sequence[Span]) -> Program:
    """Passes the packet if the loaded number is in one of *spans*."""
    if not spans:
        return (_DROP,)
    if len(spans) == 1:
        ((first, last),) = spans
        return (
            Instruction(_AT_LEAST, 0, 1, first.value),
            Instruction(_GREATER, 0, 1, last.value),
            _DROP,
            _PASS,
        )
    middle = len(spans) // 2
    left, right = _search(spans[:middle]), _search(spans[middle:])
    return (
        Instruction(_AT_LEAST, 0, 1, spans[middle].first.value),
        Instruction(_JUMP, 0, 0, len(left)),  # a comparison can skip 255 instructions only
        *left,
        *right,
    )
