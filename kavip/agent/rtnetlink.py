"""
rtnetlink(7): changes of this node's interfaces and addresses, as they happen.

Interfaces change all the time on a node with many pods. So each change carries a name, and the caller decides whether
it is relevant. Link-local addresses are not reported.

It does not use pyroute2 because the event loop that handles these messages also answers kubelet's probes, and a
fail-over brings all at once. For 500 VIPs and 100 interfaces that come and go, 1,600 messages, this module takes 60 ms
of processor time and 0.3 MiB of memory; with pyroute2's message types it is 190 ms and 1.1 MiB, with its AsyncIPRoute
270 ms and 2.2 MiB (``python -m bench.watch``, November 2026).
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, Self

_GROUPS: Final = 0x1 | 0x10 | 0x100  # links, IPv4 addresses, IPv6 addresses
_MESSAGE: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_LINKS: Final = frozenset({16, 17})  # RTM_NEWLINK, RTM_DELLINK
_ADDRESSES: Final = frozenset({20, 21})  # RTM_NEWADDR, RTM_DELADDR
_GONE: Final = 21
_LINK_BODY, _ADDRESS_BODY = 16, 8  # struct ifinfomsg, struct ifaddrmsg
_SCOPE, _LINK_SCOPE = 3, 253  # offset in ifaddrmsg, RT_SCOPE_LINK
_INDEX: Final = slice(4, 8)
_IFLA_IFNAME, _IFA_ADDRESS, _IFA_LOCAL = 3, 1, 2
_BUFFER: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class NetworkChange:
    """
    A change of an interface, or of an address on the interface with the number *index*.

    *is_gone*: the address was removed.
    """

    interface: str = ""
    address: str = ""
    index: int = 0
    is_gone: bool = False


class NetworkWatch:
    """Calls *observe* with each change, and *wake* upon one that *is_relevant*, for the duration of the context."""

    def __init__(
        self,
        observe: Callable[[NetworkChange], None],
        is_relevant: Callable[[NetworkChange], bool],
        wake: Callable[[], None],
    ) -> None:
        self._observe, self._is_relevant, self._wake = observe, is_relevant, wake
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            self._socket.bind((0, _GROUPS))
        except OSError:
            return self  # the agent also examines the node from time to time
        asyncio.get_running_loop().add_reader(self._socket, self._happened, self._socket)
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def _happened(self, source: socket.socket) -> None:
        try:
            found = tuple(changes(source.recv(_BUFFER)))
            for each in found:
                self._observe(each)
            is_relevant = any(map(self._is_relevant, found))
        except BlockingIOError:
            return
        except OSError:
            is_relevant = True  # ENOBUFS: some messages were lost
        if is_relevant:
            self._wake()


def changes(messages: bytes) -> Iterator[NetworkChange]:
    """The changes in *messages* of the kernel; what is malformed is skipped."""
    at = 0
    while at + _MESSAGE.size <= len(messages):
        length, kind, *_ = _MESSAGE.unpack_from(messages, at)
        if length < _MESSAGE.size:
            return
        body = messages[at + _MESSAGE.size : at + length]
        at += _aligned(length)
        if kind in _LINKS and (name := attributes(body, _LINK_BODY).get(_IFLA_IFNAME)):
            yield NetworkChange(interface=name.rstrip(b"\0").decode(errors="replace"))
        if kind in _ADDRESSES and body[_SCOPE] != _LINK_SCOPE:
            found = attributes(body, _ADDRESS_BODY)
            if address := found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS):
                index = int.from_bytes(body[_INDEX], sys.byteorder)
                yield NetworkChange(address=str(ip_address(address)), index=index, is_gone=kind == _GONE)


def attributes(body: bytes, at: int) -> dict[int, bytes]:
    """The attributes of a message, by type, from the offset *at*; what is malformed ends them."""
    found = {}
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = body[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)
    return found


def _aligned(length: int) -> int:
    return length + 3 & ~3
