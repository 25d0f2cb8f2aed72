"""
Two questions to the kernel, by netlink: whether any rule of nftables has changed, and what is in one routing table.

They are asked every few seconds. ``nft`` would be a process each time, and pyroute2 reads all routes of the node to
find those of one table: a node may have thousands.
"""

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from kavip.agent.rtnetlink import attributes

_MESSAGE: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE: Final = struct.Struct("=HHI")  # length, type, a 32-bit value
_NETFILTER: Final = 12  # NETLINK_NETFILTER
_SOL_NETLINK, _STRICT = 270, 12  # NETLINK_GET_STRICT_CHK: the kernel filters what it dumps (Linux 5.0)
_REQUEST, _DUMP, _MULTI = 0x1, 0x300, 0x2  # NLM_F_*
_ERROR, _DONE = 2, 3  # NLMSG_*
_GET_GENERATION: Final = 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_GENERATION: Final = 1  # NFTA_GEN_ID
_GET_ROUTE: Final = 26  # RTM_GETROUTE
_ROUTE: Final = struct.Struct("=BBBBBBBBI")  # struct rtmsg
_TABLE: Final = 15  # RTA_TABLE
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_BUFFER: Final = 1 << 16
_PATIENCE: Final = 2.0


class TableEntry(NamedTuple):
    """A route of a table: the number of the *protocol* that added it, and the *length* of its prefix."""

    protocol: int
    length: int


def ruleset_generation() -> int:
    """The number that grows with each change of nftables in this network namespace; raises OSError."""
    body = struct.pack("=BBH", socket.AF_UNSPEC, 0, 0)
    for answer in _ask(_NETFILTER, _GET_GENERATION, _REQUEST, body):
        return int.from_bytes(attributes(answer, len(body)).get(_GENERATION, b""), "big")
    return 0


def entries_of(family: int, table: int) -> list[TableEntry]:
    """The routes of *family* in the routing table number *table*; raises OSError."""
    route = _ROUTE.pack(_FAMILIES[family], 0, 0, 0, 0, 0, 0, 0, 0) + _ATTRIBUTE.pack(_ATTRIBUTE.size, _TABLE, table)
    found = []
    for answer in _ask(socket.NETLINK_ROUTE, _GET_ROUTE, _REQUEST | _DUMP, route):
        _, length, _, _, small, protocol, *_ = _ROUTE.unpack_from(answer)
        own = attributes(answer, _ROUTE.size).get(_TABLE)
        if (int.from_bytes(own, sys.byteorder) if own else small) == table:
            found.append(TableEntry(protocol, length))
    return found


def _ask(protocol: int, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
    """The bodies of the kernel's answers to one request."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as connection:
        connection.settimeout(_PATIENCE)
        with suppress(OSError):  # an older kernel dumps all tables
            connection.setsockopt(_SOL_NETLINK, _STRICT, 1)
        connection.send(_MESSAGE.pack(_MESSAGE.size + len(body), kind, flags, 1, 0) + body)
        while True:
            received, at = connection.recv(_BUFFER), 0
            while at + _MESSAGE.size <= len(received):
                length, answered, answer_flags, *_ = _MESSAGE.unpack_from(received, at)
                content = received[at + _MESSAGE.size : at + length]
                if answered == _ERROR:
                    raise OSError(-struct.unpack_from("=i", content)[0], "netlink")
                if answered == _DONE:
                    return
                yield content
                if not answer_flags & _MULTI:
                    return
                at += length + 3 & ~3
