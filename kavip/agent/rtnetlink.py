"""
rtnetlink(7): changes of this node's interfaces and addresses, as they happen.

On a node with many pods interfaces come and go all the time, so each change is told by name and the listener says
whether it matters. Link-local addresses never do.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, Self

_GROUPS: Final = 0x1 | 0x10 | 0x100  # links, IPv4 addresses, IPv6 addresses
_MESSAGE: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_LINKS: Final = frozenset({16, 17})  # RTM_NEWLINK, RTM_DELLINK
_ADDRESSES: Final = frozenset({20, 21})  # RTM_NEWADDR, RTM_DELADDR
_LINK_BODY, _ADDRESS_BODY = 16, 8  # struct ifinfomsg, struct ifaddrmsg
_SCOPE, _LINK_SCOPE = 3, 253  # offset in ifaddrmsg, RT_SCOPE_LINK
_IFLA_IFNAME, _IFA_ADDRESS, _IFA_LOCAL = 3, 1, 2
_BUFFER: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Change:
    """Of an interface, or of an address."""

    interface: str = ""
    address: str = ""


class Changes:
    """Calls *wake* when something changes that *matters*, as long as the context lasts."""

    def __init__(self, matters: Callable[[Change], bool], wake: Callable[[], None]) -> None:
        self._matters, self._wake = matters, wake
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            self._socket.bind((0, _GROUPS))
        except OSError:
            return self  # the node is looked at now and then whatever happens
        asyncio.get_running_loop().add_reader(self._socket, self._happened, self._socket)
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def _happened(self, source: socket.socket) -> None:
        try:
            news = any(self._matters(each) for each in changed(source.recv(_BUFFER)))
        except BlockingIOError:
            return
        except OSError:
            news = True  # ENOBUFS: some were lost
        if news:
            self._wake()


def changed(messages: bytes) -> Iterator[Change]:
    """What *messages* of the kernel are about."""
    at = 0
    while at + _MESSAGE.size <= len(messages):
        length, kind, *_ = _MESSAGE.unpack_from(messages, at)
        if length < _MESSAGE.size:
            return
        body = messages[at + _MESSAGE.size : at + length]
        at += _aligned(length)
        if kind in _LINKS and (name := _attributes(body, _LINK_BODY).get(_IFLA_IFNAME)):
            yield Change(interface=name.rstrip(b"\0").decode(errors="replace"))
        if kind in _ADDRESSES and body[_SCOPE] != _LINK_SCOPE:
            found = _attributes(body, _ADDRESS_BODY)
            if address := found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS):
                yield Change(address=str(ip_address(address)))


def _attributes(body: bytes, at: int) -> dict[int, bytes]:
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
