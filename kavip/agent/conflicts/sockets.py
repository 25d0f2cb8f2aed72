"""
Sockets for Ethernet frames: packet(7) with a BPF program, and raw ICMPv6.

Standard library only: pyroute2 has no packet sockets, and a library that builds packets would take more memory than the
agent. A program is attached before the socket is bound, so no other packet is ever queued.
"""

import ctypes
import errno
import fcntl
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kavip.agent.conflicts.packets import ndisc
from kavip.agent.conflicts.packets.filters import Program, packed

_ATTACH_FILTER: Final = 26  # SO_ATTACH_FILTER
_ADD_MEMBERSHIP, _MULTICAST = 1, 0  # PACKET_ADD_MEMBERSHIP, PACKET_MR_MULTICAST
_SOL_PACKET: Final = 263
_ICMP6_FILTER: Final = 1
_GET_FLAGS: Final = 0x8913  # SIOCGIFFLAGS
_ETHTOOL: Final = 0x8946  # SIOCETHTOOL
_GET_LINK: Final = 0x0A  # ETHTOOL_GLINK
_LONGEST: Final = 256
_UP, _RUNNING, _NO_ARP = 0x1, 0x40, 0x80
_ETHERNET: Final = 1  # ARPHRD_ETHER
_BUFFER: Final = 192 << 10  # some 170 frames, as the kernel doubles it and counts 2.3 KB for one of some cards
_REQUEST: Final = struct.Struct("@16sH14x")
_REQUEST_BY_POINTER: Final = struct.Struct("@16sP16x")
_LINK: Final = struct.Struct("@II")
_MEMBERSHIP: Final = struct.Struct("@iHH8s")
_FORBIDDEN: Final = frozenset({errno.EPERM, errno.EACCES})


@dataclass(frozen=True, slots=True)
class Link:
    """An interface: its *index* and *hardware* address. *is_up*: it sends; *is_ethernet*: addresses are resolved."""

    index: int
    hardware: bytes
    is_up: bool
    is_ethernet: bool


@contextmanager
def packet_socket(interface: str, ethertype: int, program: Program) -> Iterator[socket.socket]:
    """A socket for frames of *ethertype* on *interface* that *program* passes; for 0 it only sends. Raises OSError."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        attach(opened, program)
        opened.bind((interface, ethertype))
        yield opened


def attach(opened: socket.socket, program: Program) -> None:
    """Let *opened* receive only what *program* passes; without a program it receives all."""
    if program:
        instructions = ctypes.create_string_buffer(packed(program))
        argument = struct.pack("@HP", len(program), ctypes.addressof(instructions))
        opened.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, argument)


def link_of(opened: socket.socket) -> Link:
    """The interface to which a packet socket is bound."""
    interface, _, _, kind, hardware = opened.getsockname()
    request = _REQUEST.pack(interface.encode(), 0)
    _, flags = _REQUEST.unpack(fcntl.ioctl(opened, _GET_FLAGS, request))
    return Link(
        socket.if_nametoindex(interface),
        hardware,
        is_up=flags & (_UP | _RUNNING) == _UP | _RUNNING,
        is_ethernet=kind == _ETHERNET and not flags & _NO_ARP,
    )


def has_carrier(opened: socket.socket) -> bool:
    """
    Whether the interface to which a packet socket is bound sends now.

    The flags of :func:`link_of` may be a second late: the kernel collects changes of links.
    """
    try:
        if not link_of(opened).is_up:
            return False
    except OSError:  # the interface is gone
        return False
    interface, *_ = opened.getsockname()
    answer = ctypes.create_string_buffer(_LINK.pack(_GET_LINK, 0), _LINK.size)
    try:
        fcntl.ioctl(opened, _ETHTOOL, _REQUEST_BY_POINTER.pack(interface.encode(), ctypes.addressof(answer)))
    except OSError:  # its driver does not know
        return True
    _, is_up = _LINK.unpack(answer.raw)
    return bool(is_up)


def received(opened: socket.socket, interface: str) -> bytes:
    """
    The next frame of a packet socket; empty if it is not of *interface* itself. Raises OSError.

    The kernel hands over the untagged content of other VLANs too: as a frame for another host, or as one of the VLAN's
    own interface.
    """
    frame, (name, _, packet_type, *_) = opened.recvfrom(_LONGEST)
    return frame if name == interface and packet_type != socket.PACKET_OTHERHOST else b""


def join(opened: socket.socket, groups: Iterable[bytes], *, index: int) -> None:
    """Let the card pass frames to the IPv6 multicast addresses *groups*."""
    for each in sorted(set(groups)):
        hardware = ndisc.multicast_hardware(each)
        opened.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, _MEMBERSHIP.pack(index, _MULTICAST, 6, hardware))


def advertisement_socket() -> socket.socket:
    """A socket for the neighbour advertisements that all interfaces receive. Raises OSError."""
    opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6)
    try:
        blocked = [0xFFFF_FFFF] * 8  # a set bit blocks a type
        blocked[ndisc.ADVERTISEMENT >> 5] &= ~(1 << (ndisc.ADVERTISEMENT & 31))
        opened.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("@8I", *blocked))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
    except OSError:
        opened.close()
        raise
    return opened


def is_forbidden(error: OSError) -> bool:
    """Whether *error* says that this process has no right to such sockets."""
    return error.errno in _FORBIDDEN
