"""
Asks the LAN whether another machine has some VIPs: three probes each, 100 ms apart, on the interface of the VIP.

RFC 5227 waits longer, because a host that starts may ask before its switch forwards. A node that runs Kubernetes has
been on its LAN for a while, and a Service waits.

If a machine claims a VIP whose hardware address is no node's as far as this node knows, the unicast peers are asked
for theirs: then a node that loaded the VIP earlier is recognised without the controller.

Whether a node has a VIP is asked for with one probe: nodes are there, and answer at once.
"""

import asyncio
import socket
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import structlog

from kavip.agent.conflicts import sockets
from kavip.agent.conflicts.packets import arp, filters, ndisc
from kavip.agent.conflicts.packets.sighting import Sighting, SightingKind
from kavip.agent.conflicts.sockets import Link
from kavip.agent.conflicts.verdicts import Answer, Finding
from kavip.api.address import Address
from kavip.vrrp.virtualips import VirtualIP

PROBES: Final = 3
SPACING: Final = 0.1
"""Seconds between two probes, and after the last one."""
MOST: Final = 32
"""VIPs of one inquiry: a node sends at most some 300 probes a second."""
MOST_ONCE: Final = 128
"""VIPs for which one probe is sent each: 1,280 a second, for a few seconds when a pod starts."""
MOST_PEERS: Final = 64
"""Peers that are asked for their hardware address."""
_BATCH: Final = 64  # hardware addresses that are kept about one VIP
_FRAMES: Final = 4 * MOST_ONCE  # that are read at once

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KnownMachines:
    """The hardware addresses of this node (*own*) and of all *nodes*, and the addresses of the unicast *peers*."""

    own: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    peers: frozenset[Address] = frozenset()


@dataclass(slots=True)
class _Ear:
    """One socket: what it hears about *targets* and *peers* of one family on one interface."""

    opened: socket.socket
    interface: str
    link: Link
    targets: tuple[VirtualIP, ...]
    machines: KnownMachines
    peers: tuple[Address, ...]
    claims: defaultdict[Address, set[str]] = field(default_factory=lambda: defaultdict(set))
    probes: defaultdict[Address, set[str]] = field(default_factory=lambda: defaultdict(set))
    sent: Counter[Address] = field(default_factory=Counter)
    asks_peers: bool = False

    def send(self, addresses: Iterable[Address]) -> None:
        for each in addresses:
            frame = (arp.probe if each.family == 4 else ndisc.solicitation)(each, source=self.link.hardware)
            try:
                self.opened.send(frame)
                self.sent[each] += 1
            except OSError as error:  # the link is down, or its queue is full
                log.debug("probe not sent", address=str(each), reason=error.strerror)

    def examine_link(self) -> None:
        """Count only probes that were sent while the link was up all the time."""
        if not sockets.has_carrier(self.opened):
            self.sent.clear()

    def receive(self) -> None:
        read = arp.read if self.targets[0].address.family == 4 else ndisc.read
        for _ in range(_FRAMES):
            try:
                frame = sockets.received(self.opened, self.interface)
            except OSError:  # nothing is left, or the link went down
                return
            if (found := read(frame)) and found.hardware not in self.machines.own:
                self._enter(found)

    def _enter(self, found: Sighting) -> None:
        if found.kind is SightingKind.ANSWER:
            return
        known = self.claims if found.kind is SightingKind.CLAIM else self.probes
        if len(known[found.address]) < _BATCH:
            known[found.address].add(found.hardware)

    @property
    def nodes(self) -> frozenset[str]:
        """The hardware addresses of nodes, those of peers that answered included."""
        return self.machines.nodes.union(*(self.claims[each] for each in self.peers))

    @property
    def is_puzzled(self) -> bool:
        """Whether a machine claims a target that may be a peer."""
        claimed = set[str]().union(*(self.claims[each.address] for each in self.targets))
        return bool(claimed) and not claimed <= self.nodes

    def finding(self, vip: VirtualIP) -> Finding:
        """What was heard about *vip*."""
        claims, nodes = self.claims[vip.address], self.nodes
        if claims & nodes:
            return Finding(Answer.NODE)
        if claims:
            return Finding(Answer.CLAIMED, min(claims))
        if self.sent[vip.address] < PROBES:
            return Finding(Answer.DOWN)
        return Finding(Answer.CONTENDED if self.probes[vip.address] - nodes else Answer.SILENT)


async def held_by_nodes(vips: Collection[VirtualIP], machines: KnownMachines) -> frozenset[VirtualIP]:
    """Those of *vips* that another node has, after 0.1 s; it takes 0.2 s if an unknown machine claims one."""
    found = await inquire(vips, machines, probes=1)
    return frozenset(vip for vip, finding in found.items() if finding.answer is Answer.NODE)


async def inquire(
    vips: Collection[VirtualIP],
    machines: KnownMachines,
    *,
    heard: Mapping[VirtualIP, str] | None = None,
    probes: int = PROBES,
) -> Mapping[VirtualIP, Finding]:
    """
    The answer of the LAN about each of *vips*.

    It takes 0.1 s for each of the *probes*, and 0.1 s more if an unknown machine claims one.

    *heard*: claims that were heard before, by the hardware address. With fewer probes than usual no answer is SILENT.
    """
    by_place: defaultdict[tuple[str, int], list[VirtualIP]] = defaultdict(list)
    for each in sorted(vips):
        by_place[each.interface, each.address.family].append(each)
    found: dict[VirtualIP, Finding] = {}
    with ExitStack() as stack:
        ears = []
        for (interface, _), some in sorted(by_place.items()):
            ear = _open(stack, interface, tuple(some), machines)
            if isinstance(ear, Answer):
                found |= dict.fromkeys(some, Finding(ear))
            else:
                ears.append(ear)
        for ear in ears:
            for vip in ear.targets:
                ear.claims[vip.address] |= {heard[vip]} if heard and vip in heard else set()
        await _ask(ears, probes)
        found |= {vip: ear.finding(vip) for ear in ears for vip in ear.targets}
    return found


async def _ask(ears: Collection[_Ear], probes: int) -> None:
    if not ears:
        return
    for _ in range(probes):
        for ear in ears:
            ear.send(each.address for each in ear.targets)
            _ask_peers(ear)
        await asyncio.sleep(SPACING)
        for ear in ears:
            ear.examine_link()
    late = [ear for ear in ears if ear.is_puzzled and not ear.asks_peers]
    for ear in late:
        _ask_peers(ear)
    if late:
        await asyncio.sleep(SPACING)


def _ask_peers(ear: _Ear) -> None:
    if ear.is_puzzled:
        ear.asks_peers = True
        ear.send(each for each in ear.peers if not ear.claims[each])


def _open(stack: ExitStack, interface: str, vips: tuple[VirtualIP, ...], machines: KnownMachines) -> _Ear | Answer:
    """The socket for *vips*; an Answer if there can be none."""
    family = vips[0].address.family
    peers = tuple(sorted(each for each in machines.peers if each.family == family))[:MOST_PEERS]
    addresses = [*(each.address for each in vips), *peers]
    try:
        program = filters.sightings_by_arp(addresses) if family == 4 else filters.sightings_by_ndisc(addresses)
        ethertype = arp.ETHERTYPE if family == 4 else ndisc.ETHERTYPE
        opened = stack.enter_context(sockets.packet_socket(interface, ethertype, program))
        link = sockets.link_of(opened)
        if family == 6:
            sockets.join(opened, map(ndisc.solicited_node, addresses), index=link.index)
    except OSError as error:
        return Answer.UNABLE if sockets.is_forbidden(error) else Answer.DOWN
    if not link.is_ethernet:
        return Answer.UNABLE
    if not link.is_up:
        return Answer.DOWN
    ear = _Ear(opened, interface, link, vips, machines, peers)
    loop = asyncio.get_running_loop()
    loop.add_reader(opened, ear.receive)
    stack.callback(loop.remove_reader, opened)
    return ear
