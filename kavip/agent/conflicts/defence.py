"""
Watches over the VIPs that this node holds: hears claims of other machines, verifies them, and defends the VIPs.

At a fail-over both nodes announce a VIP for a moment. So a claim counts only if this node still holds the VIP after the
LAN was asked, and the machine is no node. Two nodes must not defend a VIP against each other, so nothing is defended
before the controller has said which machines are nodes.
"""

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Final

import structlog

from kavip.agent.conflicts import sockets
from kavip.agent.conflicts.inquiry import MOST, KnownMachines, inquire
from kavip.agent.conflicts.listener import Listener
from kavip.agent.conflicts.packets import arp, ndisc
from kavip.agent.conflicts.packets.sighting import Sighting, SightingKind
from kavip.agent.conflicts.verdicts import Answer, HeldClaims
from kavip.agent.network import NodeNetwork
from kavip.api.address import Address
from kavip.api.agent import ConflictReport
from kavip.api.instant import instant_text
from kavip.vrrp.virtualips import VirtualIP

SOONEST: Final = 1.0
"""Seconds between two verifications, at least."""
_MOST_SUSPECTS: Final = 256  # claims that wait to be verified
_NOT_CLAIMED: Final = ""
_FORWARDING: Final = "/proc/sys/net/ipv6/conf/{}/forwarding"

log = structlog.get_logger()


class VIPDefence:
    """
    The VIPs of one group on one node.

    *wake* is called when there is something to verify. *defences* counts the announcements that were sent.
    """

    def __init__(self, network: NodeNetwork, wake: Callable[[], None]) -> None:
        """Watch over nothing yet."""
        self._network, self._wake = network, wake
        self._listener, self._claims = Listener(self._heard), HeldClaims()
        self._vips: dict[tuple[Address, str], VirtualIP] = {}
        self._machines = KnownMachines()
        self._suspects: dict[VirtualIP, str] = {}
        self._verified = -inf
        self.defences = 0

    def configure(self, vips: Collection[VirtualIP], machines: KnownMachines) -> None:
        """Watch over *vips*, those of them that this node holds at a time."""
        self._vips, self._machines = {(each.address, each.interface): each for each in vips}, machines
        self._listener.configure(vips, own=self._network.hardware.public)

    def close(self) -> None:
        """Watch over nothing any more."""
        self._listener.close()

    @property
    def is_forbidden(self) -> bool:
        """Whether the agent has no right to listen."""
        return self._listener.is_forbidden

    @property
    def next_due(self) -> float:
        """When there is something to verify, in monotonic seconds."""
        due = -inf if self._suspects else self._claims.next_due()
        return max(due, self._verified + SOONEST)

    def reports(self) -> tuple[ConflictReport, ...]:
        """The VIPs that this node holds and another machine claims."""
        return self._claims.reports()

    async def verify(self) -> bool:
        """Verify what was heard, and what is due; returns whether the reports have changed."""
        self._verified = time.monotonic()
        has_ended = self._end()
        heard = {vip: self._suspects.pop(vip) for vip in sorted(self._suspects)[:MOST]}
        heard = {vip: hardware for vip, hardware in heard.items() if self._is_held(vip)}
        due = self._claims.due(now=self._verified)
        if not (vips := sorted({*heard, *due})[:MOST]):
            return has_ended
        claims = {vip: hardware for vip, hardware in heard.items() if hardware}
        found = await inquire(vips, self._machines, heard=claims)
        now = time.monotonic()
        self._claims.asked(vips, now=now)
        claimed = [vip for vip in vips if found[vip].answer is Answer.CLAIMED and self._is_held(vip)]
        fresh = [
            vip
            for vip in claimed
            if self._claims.heard(vip, found[vip].hardware, now=now, time=instant_text(datetime.now(UTC)))
        ]
        for vip in fresh:
            where = {"address": str(vip.address), "hardware": found[vip].hardware, "interface": vip.interface}
            log.warning("address claimed by another machine", **where)
        self._defend(claimed)
        return has_ended or bool(fresh)

    def _end(self) -> bool:
        held = {vip for vip in self._vips.values() if self._is_held(vip)} if self._claims else frozenset[VirtualIP]()
        return self._claims.end(held=held, nodes=self._machines.nodes, now=time.monotonic())

    def _is_held(self, vip: VirtualIP) -> bool:
        return (vip.address, vip.interface) in self._network.held

    def _heard(self, sighting: Sighting, interface: str) -> None:
        vip, machines = self._vips.get((sighting.address, interface)), self._machines
        if vip is None or sighting.hardware in machines.own or sighting.hardware in machines.nodes:
            return
        if self._is_held(vip) and len(self._suspects) < _MOST_SUSPECTS:
            if sighting.kind is SightingKind.CLAIM:
                self._suspects[vip] = sighting.hardware
            else:
                self._suspects.setdefault(vip, _NOT_CLAIMED)
            self._wake()

    def _defend(self, claimed: Collection[VirtualIP]) -> None:
        """Announce once that this node has the VIPs, so that neighbours believe it again."""
        if not self._machines.nodes:
            return
        for vip in self._claims.take_defences(claimed, now=time.monotonic()):
            try:
                with ExitStack() as stack:
                    opened = stack.enter_context(sockets.packet_socket(vip.interface, 0, ()))
                    opened.send(_announcement(vip, sockets.link_of(opened).hardware))
            except OSError as error:
                log.warning("address not defended", address=str(vip.address), reason=error.strerror)
                continue
            self.defences += 1


def _announcement(vip: VirtualIP, hardware: bytes) -> bytes:
    if vip.address.family == 4:
        return arp.announcement(vip.address, source=hardware)
    return ndisc.advertisement(vip.address, source=hardware, is_router=_forwards(vip.interface))


def _forwards(interface: str) -> bool:
    """Whether the node is a router for IPv6 on *interface*, as its own kernel says in advertisements."""
    try:
        return Path(_FORWARDING.format(interface)).read_text().strip() == "1"
    except OSError:
        return False
