"""
Hears other machines that claim VIPs of this node.

ARP comes by a packet socket for each interface, neighbour advertisements of all interfaces by one raw socket.

The kernel drops everything else before it wakes the agent. A machine that floods the LAN with claims wakes it at most
once a second, with :data:`BURST` packets.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from typing import Final

import structlog

from kavip.agent.conflicts import sockets
from kavip.agent.conflicts.packets import arp, filters, ndisc
from kavip.agent.conflicts.packets.sighting import Sighting, SightingKind
from kavip.vrrp.virtualips import VirtualIP

BURST: Final = 64
PAUSE: Final = 1.0
MOST_INTERFACES: Final = 16
_PACKET_INFO: Final = struct.Struct("@16sI")
_HOP_LIMIT: Final = struct.Struct("@i")
_LONGEST: Final = 256

Heard = Callable[[Sighting, str], None]
"""Takes what another machine said, and the interface on which it was heard."""

log = structlog.get_logger()


class Listener:
    """Calls *heard* with each claim on one of the configured VIPs."""

    def __init__(self, heard: Heard) -> None:
        """Listen to nothing yet."""
        self._heard = heard
        self._arp: dict[str, _Socket] = {}
        self._ndisc: _Socket | None = None
        self.is_forbidden = False

    def configure(self, vips: Collection[VirtualIP], *, own: tuple[str, ...] = ()) -> None:
        """Hear claims on *vips* from now on, except those of the hardware addresses *own*."""
        by_interface: dict[str, set[VirtualIP]] = {}
        for each in vips:
            if each.address.family == 4:
                by_interface.setdefault(each.interface, set()).add(each)
        wanted = dict(sorted(by_interface.items())[:MOST_INTERFACES])
        for name in self._arp.keys() - wanted.keys():
            self._arp.pop(name).close()
        for name, some in wanted.items():
            self._listen_to_arp(name, frozenset(some), own)
        self._listen_to_advertisements(frozenset(each for each in vips if each.address.family == 6))

    def close(self) -> None:
        """Listen to nothing any more."""
        self.configure(())

    def _listen_to_arp(self, interface: str, vips: frozenset[VirtualIP], own: tuple[str, ...]) -> None:
        key = (vips, own, _index(interface))
        known = self._arp.get(interface)
        if known is not None and known.key == key and not known.is_closed:
            return
        if known is not None:
            self._arp.pop(interface).close()
        senders = [bytes.fromhex(each.replace(":", "")) for each in own]
        program = filters.claims_by_arp((each.address for each in vips), own=senders)
        stack = ExitStack()
        try:
            opened = stack.enter_context(sockets.packet_socket(interface, arp.ETHERTYPE, program))
        except OSError as error:
            self._failed(interface, error)
            return
        self._arp[interface] = _Socket(stack, opened, key, lambda: self._read_arp(opened, interface))

    def _listen_to_advertisements(self, vips: frozenset[VirtualIP]) -> None:
        known = self._ndisc
        if known is not None and known.key == (vips,) and not known.is_closed:
            return
        if known is not None:
            known.close()
        self._ndisc = None
        if not vips:
            return
        stack = ExitStack()
        try:
            opened = stack.enter_context(sockets.advertisement_socket())
            sockets.attach(opened, filters.claims_by_icmpv6(each.address for each in vips))
        except OSError as error:
            stack.close()
            self._failed("", error)
            return
        self._ndisc = _Socket(stack, opened, (vips,), lambda: self._read_advertisement(opened))

    def _failed(self, interface: str, error: OSError) -> None:
        self.is_forbidden = self.is_forbidden or sockets.is_forbidden(error)
        log.debug("not listening", interface=interface, reason=error.strerror)

    def _read_arp(self, opened: socket.socket, interface: str) -> None:
        found = arp.read(sockets.received(opened, interface))
        if found is not None and found.kind is not SightingKind.PROBE:
            self._heard(found, interface)

    def _read_advertisement(self, opened: socket.socket) -> None:
        message, ancillary, *_ = opened.recvmsg(_LONGEST, 128)
        interface, hops = "", 0
        for level, kind, data in ancillary:
            if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
                with suppress(OSError):
                    interface = socket.if_indextoname(_PACKET_INFO.unpack(data)[1])
            elif level == socket.IPPROTO_IPV6 and kind == socket.IPV6_HOPLIMIT:
                (hops,) = _HOP_LIMIT.unpack(data)
        found = ndisc.read_advertisement(message)
        if found is not None and hops == ndisc.HOP_LIMIT and interface:
            self._heard(found, interface)


class _Socket:
    """One open socket; *read* reads one packet, *key* says what it hears."""

    def __init__(self, stack: ExitStack, opened: socket.socket, key: object, read: Callable[[], None]) -> None:
        self.key, self.is_closed = key, False
        self._stack, self._opened, self._read = stack, opened, read
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._loop.add_reader(opened, self._ready)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self._resume:
                self._resume.cancel()
            self._loop.remove_reader(self._opened)
            self._stack.close()

    def _ready(self) -> None:
        try:
            for _ in range(BURST):
                self._read()
        except BlockingIOError:
            return
        except OSError as error:  # the link went down, or the interface is gone: the next step opens another socket
            log.debug("listening ended", reason=error.strerror)
            self.close()
            return
        self._loop.remove_reader(self._opened)
        self._resume = self._loop.call_later(PAUSE, self._listen_again)

    def _listen_again(self) -> None:
        self._resume = None
        self._loop.add_reader(self._opened, self._ready)


def _index(interface: str) -> int:
    """The number of *interface*; 0 if there is none."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        return 0
