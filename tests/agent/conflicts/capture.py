"""
Captures on the bridge which machine probes and claims which address, and when.

The port of the bridge identifies the machine. The kernel stamps each frame: a program on a busy machine may read late.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hack.testbed.segment import Segment
from kavip.agent.conflicts.packets import arp, ndisc
from kavip.agent.conflicts.packets.sighting import SightingKind
from tests.agent.pod import entered

_ALL_FRAMES, _OUTGOING = 3, 4  # ETH_P_ALL, PACKET_OUTGOING
_STAMPED, _BUFFER_FORCE = 35, 33  # SO_TIMESTAMPNS, SO_RCVBUFFORCE
_STAMP = struct.Struct("@ll")


class Frame(NamedTuple):
    """A frame of *host* about *address*, from *hardware*."""

    moment: float
    host: str
    address: str
    hardware: str
    is_claim: bool


class Capture:
    """The frames since the last look."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._seen: list[Frame] = []

    def frames(self, *addresses: str) -> list[Frame]:
        """All frames so far about *addresses*; without any, about all addresses."""
        self._seen += self._read()
        return [each for each in self._seen if not addresses or each.address in addresses]

    def claims(self, address: str, *, by: str = "") -> list[Frame]:
        """The frames by which *by*, or any machine, said that it has *address*."""
        return [each for each in self.frames(address) if each.is_claim and by in ("", each.host)]

    def probes(self, address: str, *, by: str = "") -> list[Frame]:
        """The frames by which *by*, or any machine, asked for *address* before it used it."""
        return [each for each in self.frames(address) if not each.is_claim and by in ("", each.host)]

    def _read(self) -> Iterator[Frame]:
        while True:
            try:
                content, ancillary, _, sender = self._socket.recvmsg(256, 256)
            except BlockingIOError:
                return
            found = arp.read(content) or ndisc.read(content)
            if found is None or sender[2] == _OUTGOING or not sender[0].startswith("p-"):
                continue
            (stamp,) = (data for _, kind, data in ancillary if kind == _STAMPED)
            seconds, nanoseconds = _STAMP.unpack(stamp)
            yield Frame(
                seconds + nanoseconds / 1e9,
                sender[0].removeprefix("p-"),
                str(found.address),
                found.hardware,
                found.kind is not SightingKind.PROBE,
            )


@contextmanager
def captured(lan: Segment) -> Iterator[Capture]:
    """The frames on *lan* during the block."""

    def opened() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(_ALL_FRAMES))
        made.setsockopt(socket.SOL_SOCKET, _BUFFER_FORCE, 32 << 20)
        made.setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
        return made

    with entered(lan.bridge.netns, opened) as listening:
        yield Capture(listening)
