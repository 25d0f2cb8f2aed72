"""
The model of one group: which VRRP instances its nodes run, and what each holds.

One instance per address family. In each, one constant address is advertised (the anchor) and all others are excluded
from the advertisement, so that a VIP that comes or goes while nodes reload one after the other never makes two masters.
The anchor of a Service's instance is one of its VIPs and stays it while the Service has it; Shared instances advertise
an address of their own. The same objects give the same model, in whatever order they come.

An address may be in one instance only. Where Services share one, the oldest carries it, and the others' VIPs are where
it is (:class:`Sharing`). What cannot be done for one Service is a problem of that Service and of no other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.api.address import Address, parse_address
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp import keys, tracking, virtualips
from kavip.vrrp.globaldefs import globals_of
from kavip.vrrp.grammar import Line
from kavip.vrrp.members import Member, Peer, interfaces_of
from kavip.vrrp.priorities import priorities
from kavip.vrrp.timing import timing_of
from kavip.vrrp.tracking import Track
from kavip.vrrp.units import Draft, Sharing, Unit
from kavip.vrrp.virtualips import VirtualIP

NOBODY: Final = {4: parse_address("192.0.0.8"), 6: parse_address("100::1")}
"""
Source addresses that no node has (RFC 7600, RFC 6666). keepalived puts an instance whose source is missing into FAULT,
which is right for a node that a text does not name: nobody sends to it, so it would hear nothing and become master.
"""

LONE_PEER: Final = {4: parse_address("0.0.0.0"), 6: parse_address("fe80::6b61:0")}  # noqa: S104 - not bound to
"""
The peer of a node that has no other. Without any peer keepalived falls back to multicast, which would be another
instance with an outage at the change; these go nowhere, and in silence: OpenShift uses the first one as well, and the
second is the Shared anchor of VRID 0, which cannot exist (``::`` is unreachable, and logged at every advertisement).
"""

NO_ANCHORS: Final[Mapping[str, Address]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Instance:
    """
    One ``vrrp_instance``. With *peers* (node, address) it is unicast, without it is multicast.

    A node that is not among the *sources* (node, address) is held out, though the others may listen to it as a peer.

    *also* is advertised beside the anchor, as the nodes that run it already do. *trusting*: from whatever address of
    theirs its peers speak.
    """

    name: str
    family: int
    router_id: int
    version: int
    interval: str
    interface: str
    authenticated: bool
    priorities: tuple[tuple[str, int], ...]
    sources: tuple[tuple[str, Address], ...]
    peers: tuple[tuple[str, Address], ...]
    anchor: VirtualIP
    excluded: tuple[VirtualIP, ...]
    lines: tuple[Line, ...]
    services: tuple[str, ...]
    tracks: tuple[Track, ...] = ()
    also: tuple[VirtualIP, ...] = ()
    trusting: bool = False

    @property
    def addresses(self) -> tuple[VirtualIP, ...]:
        """What its master has: the anchor first."""
        return (self.anchor, *self.also, *self.excluded)

    @cached_property
    def virtual_ips(self) -> tuple[VirtualIP, ...]:
        """The VIPs, without an anchor that is none."""
        return tuple(vip for vip in self.addresses if not virtualips.is_anchor(vip.address))

    @cached_property
    def carried(self) -> frozenset[Address]:
        """The addresses of the VIPs."""
        return virtualips.addresses_of(self.virtual_ips)

    @property
    def nobody(self) -> Address:
        """The source address for nodes that are not among the sources."""
        return NOBODY[self.family]

    @property
    def is_lone(self) -> bool:
        """Whether its only node has no other."""
        return len({node for node, _ in self.peers}) == 1

    @property
    def lone_peer(self) -> Address:
        """The peer for a node that is alone."""
        return LONE_PEER[self.family]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """
    What the nodes of one group run.

    *problems* tells by Service (or ``ns/name/virtualips`` of the group) what was left out, and why.
    """

    group: str
    globals: tuple[Line, ...]
    instances: tuple[Instance, ...]
    shared: tuple[Sharing, ...] = ()
    problems: Mapping[str, Refusal] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def tracks(self) -> tuple[str, ...]:
        """The names of all track files, sorted."""
        return tuple(sorted({track.name for instance in self.instances for track in instance.tracks}))


def model_of(
    group: KeepalivedGroup,
    members: Iterable[Member],
    peers: Sequence[Peer],
    router_ids: Mapping[str, int],
    *,
    anchors: Mapping[str, Address] = NO_ANCHORS,
    memory: Memory = KEEPS_NOTHING,
) -> Model:
    """
    The model of *group* with its *members* on the nodes *peers*.

    *router_ids* are the VRIDs that were persisted for :func:`kavip.vrrp.keys.wanted_keys`. *anchors* are those that
    nodes advertise now: :func:`kavip.vrrp.config.anchors_of` the text that was written last.
    """
    draft = Draft(group, peers, router_ids, memory=memory)
    draft.add_own()
    draft.add_all(members)
    draft.fill_slots()
    instances = (
        instance_of(group, unit, family, peers=peers, held=anchors, memory=memory)
        for unit in draft.units.values()
        for family in unit.families
    )
    return Model(
        group=group.key,
        globals=globals_of(group),
        instances=tuple(sorted(instances, key=lambda instance: instance.name)),
        shared=draft.sharings(),
        problems=MappingProxyType(dict(sorted(draft.problems.items()))),
    )


def instance_of(
    group: KeepalivedGroup,
    unit: Unit,
    family: int,
    *,
    peers: Sequence[Peer],
    held: Mapping[str, Address],
    memory: Memory = KEEPS_NOTHING,
) -> Instance:
    """The instance of *unit* for *family*; *held* are the anchors that are advertised now, by instance."""
    name = keys.instance_name(unit.name, family)
    made = _Made(
        group.key,
        unit.name,
        name,
        family,
        unit.router_id,
        held.get(name),
        unit.slot,
        unit.local,
        unit.lines,
        unit.holders(),
        unit.virtual_ips(family),
    )
    return memory.last(_instance, name, group.spec, made, tuple(peers))


class _Made(NamedTuple):
    """What an instance is made from, beside the spec of its group and the nodes; *held*: the anchor that it has."""

    group: str
    unit: str
    name: str
    family: int
    router_id: int
    held: Address | None
    slot: bool
    local: bool
    lines: tuple[Line, ...]
    services: tuple[str, ...]
    vips: tuple[VirtualIP, ...]


def _instance(spec: GroupSpec, made: _Made, peers: Sequence[Peer]) -> Instance:
    family, vips = made.family, made.vips
    if made.slot:
        anchor = virtualips.anchor(family, made.router_id, spec.interface)
    else:
        anchor = next((vip for vip in vips if vip.address == made.held), vips[0])
    timing, interface = timing_of(spec, family), spec.vrrp_interface or spec.interface
    return Instance(
        name=made.name,
        family=family,
        router_id=made.router_id,
        version=timing.version,
        interval=timing.seconds,
        interface=interface,
        authenticated=timing.version == 2 and _has_password(spec),
        priorities=priorities(_seed(made.group, made.unit), (peer.name for peer in peers if peer.is_listed)),
        sources=_sources(peers, family) if spec.unicast_enabled else (),
        peers=_peers(peers, family) if spec.unicast_enabled else (),
        anchor=anchor,
        excluded=tuple(vip for vip in vips if vip != anchor),
        lines=_lines(spec, made.lines, interface),
        services=made.services,
        tracks=tracking.tracks_of(spec, local=tracking.local_track(made.unit) if made.local else ""),
    )


def seed_of(group: KeepalivedGroup, unit: str) -> str:
    """What the priorities of the instances of *unit* are drawn from."""
    return _seed(group.key, unit)


def _seed(group: str, unit: str) -> str:
    return f"{group} {unit}"


def _sources(peers: Sequence[Peer], family: int) -> tuple[tuple[str, Address], ...]:
    found = ((peer.name, peer.address(family)) for peer in peers)
    return tuple(sorted((name, address) for name, address in found if address))


def _peers(peers: Sequence[Peer], family: int) -> tuple[tuple[str, Address], ...]:
    return tuple(
        sorted((peer.name, address) for peer in peers for address in peer.addresses if address.family == family)
    )


def _lines(spec: GroupSpec, own: Sequence[Line], interface: str) -> tuple[Line, ...]:
    """
    The lines of the Service, then what the group says about preemption where the Service says nothing.

    ``track_interface`` of an interface that the instance uses anyway is left out: keepalived does it by itself, and
    says so on stderr, where the agent's check takes any word for a fault.
    """
    implied = {interface, spec.interface} | (interfaces_of(spec) if spec.interface_from_ip else set())
    lines = [line for line in own if line.keyword != "track_interface" or line.block[0] not in implied]
    said = {line.keyword for line in lines}
    if said.isdisjoint({"nopreempt", "preempt_delay"}):
        if spec.no_preempt and "preempt" not in said:
            lines.append(Line("nopreempt"))
        elif spec.preempt_delay_seconds:
            lines.append(Line("preempt_delay", (str(spec.preempt_delay_seconds),)))
    return tuple(sorted(lines, key=lambda line: line.keyword))


def _has_password(spec: GroupSpec) -> bool:
    return spec.password_auth is not None and bool(spec.password_auth.secret_ref.name)
