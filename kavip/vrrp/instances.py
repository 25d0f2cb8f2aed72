"""
The model of one group: which VRRP instances its nodes run, and the addresses of each.

There is one instance per VRID and address family. Each advertises one constant address, the *anchor*; all other
addresses are excluded from the advertisement. So a VIP that comes or goes while nodes reload one after the other never
makes two masters. The anchor of a Service's instance is one of its VIPs, and stays the anchor while the Service has it;
a Shared instance advertises an address of its own. The same objects give the same model, in any order.

An address is in one instance only. Where several Services have it, the instance of the oldest one carries it. What
cannot be done for one Service is a problem of that Service only.
"""

from bisect import bisect_left
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
from kavip.vrrp.groupspec import has_password, vrrp_interface_of
from kavip.vrrp.homes import HomeFinder, PlacedUnits
from kavip.vrrp.members import Member, Peer, behind_of, interfaces_of, lacking_of, turns_of
from kavip.vrrp.moves import place
from kavip.vrrp.placement import nodes_of
from kavip.vrrp.preference import levels_of
from kavip.vrrp.priorities import priorities, seed_of
from kavip.vrrp.rebalance import Balance
from kavip.vrrp.spread import Lead
from kavip.vrrp.timing import timing_of
from kavip.vrrp.tracking import Track
from kavip.vrrp.units import Unit, UnitBuilder
from kavip.vrrp.virtualips import VirtualIP

NO_SOURCE: Final = {4: parse_address("192.0.0.8"), 6: parse_address("100::1")}
"""
Source addresses that no node has (RFC 7600, RFC 6666), for a node that a text does not list. keepalived puts an
instance whose source address is missing into FAULT. That is right here: no other node sends to this one, so it would
hear nothing and become master.
"""

LONE_PEER: Final = {4: parse_address("0.0.0.0"), 6: parse_address("fe80::6b61:0")}  # noqa: S104 - not bound to
"""
The peer of a node that is the only one. Without any peer keepalived falls back to multicast, which would be another
instance, with an outage at the change. Packets to these addresses go nowhere, and keepalived logs nothing: OpenShift
uses the first one as well; the second is the Shared anchor of VRID 0, which cannot exist (``::`` is unreachable, and
logged at every advertisement).
"""

NO_ANCHORS: Final[Mapping[str, Address]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Instance:
    """
    One ``vrrp_instance``. With *peers* (node, address) it is unicast, without peers multicast.

    A node that is not among the *sources* (node, address) cannot become master, but the others may listen to it as a
    peer. *also* is advertised with the anchor, as the nodes that already run the instance do. With *trusting*,
    advertisements from any source address are accepted. ``nopreempt`` does not hold on the *successor* of a drained
    node. *added*: the lines of a template.
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
    successor: str = ""
    added: tuple[Line, ...] = ()

    @property
    def addresses(self) -> tuple[VirtualIP, ...]:
        """All addresses of its master, the anchor first."""
        return (self.anchor, *self.also, *self.excluded)

    @property
    def has_own_anchor(self) -> bool:
        """Whether its anchor is no VIP: it is a Shared instance, whose *excluded* VIPs, maybe thousands, are sorted."""
        return virtualips.is_anchor(self.anchor.address)

    @cached_property
    def virtual_ips(self) -> tuple[VirtualIP, ...]:
        """The VIPs: all addresses except an anchor that is no VIP."""
        if self.has_own_anchor:
            return virtualips.without_anchors(self.excluded)
        return tuple(vip for vip in self.addresses if not virtualips.is_anchor(vip.address))

    @cached_property
    def carried(self) -> frozenset[Address]:
        """The addresses of the VIPs."""
        return virtualips.addresses_of(self.virtual_ips)

    @cached_property
    def ordered(self) -> tuple[Address, ...]:
        """The addresses of the VIPs, sorted."""
        return tuple(sorted(map(virtualips.ADDRESS, self.virtual_ips)))

    @cached_property
    def interfaces(self) -> frozenset[str]:
        """The interfaces of all its addresses."""
        return virtualips.interfaces_of(self.addresses)

    @property
    def no_source(self) -> Address:
        """The source address of nodes that are not among the sources."""
        return NO_SOURCE[self.family]

    @property
    def is_lone(self) -> bool:
        """Whether it has one node only."""
        return len({node for node, _ in self.peers}) == 1

    @property
    def lone_peer(self) -> Address:
        """The peer of a node that is the only one."""
        return LONE_PEER[self.family]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """
    What the nodes of one group run.

    *problems*: by Service (for VIPs of the group itself, by ``ns/name/virtualips``), why something was left out.
    *dead*: the dead nodes because of which VIPs of spread Services have other first nodes, sorted.
    *drained*: the drained nodes with their turns (:data:`kavip.vrrp.drain.Turns`), sorted. *lacking*: nodes with an
    interface that they do not have.
    *homes*: units and nodes, see :mod:`kavip.vrrp.homes`.
    *spread*, *unspread* and *balance*: see :class:`kavip.vrrp.moves.Placement`. *added*: the lines of a template for
    ``global_defs``.
    """

    group: str
    globals: tuple[Line, ...]
    instances: tuple[Instance, ...]
    problems: Mapping[str, Refusal] = field(default_factory=lambda: MappingProxyType({}))
    dead: tuple[str, ...] = ()
    drained: tuple[tuple[str, int], ...] = ()
    lacking: tuple[tuple[str, str], ...] = ()
    homes: tuple[tuple[str, str], ...] = ()
    spread: tuple[str, ...] = ()
    unspread: tuple[tuple[str, str], ...] = ()
    balance: Balance | None = None
    added: tuple[Line, ...] = ()

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
    dead: frozenset[str] = frozenset(),
    placed: PlacedUnits | None = None,
    memory: Memory = KEEPS_NOTHING,
) -> Model:
    """
    The model of *group* with its *members* on the nodes *peers*.

    *router_ids* are the persisted VRIDs of :func:`kavip.vrrp.keys.wanted_keys`. *anchors* are the addresses that nodes
    advertise now, by instance: those of the text that was written last. *dead* are the nodes that are dead. *placed*:
    the units that keep their place; None: all units follow the hash.
    """
    builder = UnitBuilder(group, peers, router_ids, memory=memory)
    builder.add_group_vips()
    builder.add_members(members)
    builder.set_families()
    units, unicast = builder.units.values(), bool(group.spec.unicast_enabled)
    finder = HomeFinder(group=group.key, peers=peers, unicast=unicast, dead=dead, memory=memory)
    placement = place(finder, units, placed)
    instances = (
        instance_of(
            group,
            unit,
            family,
            peers=peers,
            anchors=anchors,
            lead=placement.leads.get(unit.name, ()),
            home=placement.homes.get(unit.name, ""),
            memory=memory,
        )
        for unit in units
        for family in unit.families
    )
    return Model(
        group=group.key,
        globals=globals_of(group),
        instances=tuple(sorted(instances, key=lambda instance: instance.name)),
        problems=MappingProxyType(dict(sorted(builder.problems.items()))),
        dead=tuple(sorted(dead)) if placement.follows_dead else (),
        drained=tuple(sorted(turns_of(peers).items())),
        lacking=tuple(sorted((peer.name, interface) for peer in peers for interface in peer.lacking)),
        homes=tuple(sorted(placement.homes.items())),
        spread=placement.spread,
        unspread=placement.unspread,
        balance=placement.balance,
    )


def instance_of(
    group: KeepalivedGroup,
    unit: Unit,
    family: int,
    *,
    peers: Sequence[Peer],
    anchors: Mapping[str, Address],
    lead: Lead = (),
    home: str = "",
    memory: Memory = KEEPS_NOTHING,
) -> Instance:
    """
    The instance of *unit* for *family*.

    *anchors* are the addresses that are advertised now, by instance. *lead* are the nodes that rank first, before
    the *home* of *unit*; without both the hash order decides.
    """
    name = keys.instance_name(unit.name, family)
    source = _Source(
        group.key,
        unit.name,
        name,
        family,
        unit.router_id,
        anchors.get(name),
        unit.is_shared,
        unit.local,
        unit.lines,
        unit.holders(),
        unit.virtual_ips(family),
        lead,
        unit.preferred,
        home,
        unit.interface,
        unit.interfaces(),
    )
    return memory.last(_instance, name, group.spec, source, tuple(peers))


class _Source(NamedTuple):
    """
    The input of an instance in addition to the group's spec and the nodes.

    *anchor* is its current anchor. *interface*: that of its own anchor, if it is not the group's; *interfaces*: all on
    which its unit has addresses.
    """

    group: str
    unit: str
    name: str
    family: int
    router_id: int
    anchor: Address | None
    is_shared: bool
    local: bool
    lines: tuple[Line, ...]
    services: tuple[str, ...]
    vips: tuple[VirtualIP, ...]
    lead: Lead
    preferred: frozenset[str]
    home: str
    interface: str
    interfaces: frozenset[str]


def _instance(spec: GroupSpec, source: _Source, peers: Sequence[Peer]) -> Instance:
    family, vips = source.family, source.vips
    if source.is_shared:
        anchor = virtualips.anchor(family, source.router_id, source.interface or spec.interface)
    else:
        anchor = next((vip for vip in vips if vip.address == source.anchor), vips[0])
    timing, interface = timing_of(spec, family), vrrp_interface_of(spec)
    return Instance(
        name=source.name,
        family=family,
        router_id=source.router_id,
        version=timing.version,
        interval=timing.seconds,
        interface=interface,
        authenticated=timing.version == 2 and has_password(spec),
        priorities=priorities(
            seed_of(source.group, source.unit),
            (peer.name for peer in peers if peer.is_listed),
            lead=source.lead,
            preference=levels_of(peers, source.preferred),
            behind=_behind(peers, source, unicast=bool(spec.unicast_enabled)),
            home=source.home,
        ),
        sources=_sources(peers, family) if spec.unicast_enabled else (),
        peers=_peers(peers, family) if spec.unicast_enabled else (),
        anchor=anchor,
        excluded=_except(vips, anchor),
        lines=_lines(spec, source.lines, source.interfaces | {interface}),
        services=source.services,
        tracks=tracking.tracks_of(spec, local=tracking.local_track(source.unit) if source.local else ""),
    )


def _except(vips: tuple[VirtualIP, ...], one: VirtualIP) -> tuple[VirtualIP, ...]:
    """*vips*, which are sorted, without *one*."""
    at = bisect_left(vips, one)
    return vips[:at] + vips[at + 1 :] if vips[at : at + 1] == (one,) else vips


def _behind(peers: Sequence[Peer], source: _Source, *, unicast: bool) -> Mapping[str, int]:
    """The nodes that rank behind all others for the instance of *source*."""
    lacking, able = lacking_of(peers, source.interfaces), nodes_of(peers, unicast=unicast)[source.family]
    return behind_of(able - lacking, turns_of(peers), lacking)


def _sources(peers: Sequence[Peer], family: int) -> tuple[tuple[str, Address], ...]:
    found = ((peer.name, peer.address(family)) for peer in peers)
    return tuple(sorted((name, address) for name, address in found if address))


def _peers(peers: Sequence[Peer], family: int) -> tuple[tuple[str, Address], ...]:
    return tuple(
        sorted((peer.name, address) for peer in peers for address in peer.addresses if address.family == family)
    )


def tracked_anyway(spec: GroupSpec) -> frozenset[str]:
    """The interfaces that keepalived tracks in each instance of a group, in addition to those of its addresses."""
    return frozenset({spec.interface} | (interfaces_of(spec) if spec.interface_from_ip else set()))


def _lines(spec: GroupSpec, own: Sequence[Line], interfaces: frozenset[str]) -> tuple[Line, ...]:
    """
    The lines of the Service, and the group's preemption where the Service has no line about it.

    ``track_interface`` of one of *interfaces*, which the instance uses anyway, is left out: keepalived tracks it by
    itself and says so on stderr, and the agent's check treats any output as an error.
    """
    implied = interfaces | tracked_anyway(spec)
    lines = [line for line in own if line.keyword != "track_interface" or line.block[0] not in implied]
    keywords = {line.keyword for line in lines}
    if keywords.isdisjoint({"nopreempt", "preempt_delay"}):
        if spec.no_preempt and "preempt" not in keywords:
            lines.append(Line("nopreempt"))
        elif spec.preempt_delay_seconds:
            lines.append(Line("preempt_delay", (str(spec.preempt_delay_seconds),)))
    return tuple(sorted(lines, key=lambda line: line.keyword))
