"""
Which unit carries which address: the step from Services to VRRP instances.

A unit has one VRID and becomes one instance per address family. Units are filled in a fixed order: first the VIPs that
the group itself names, then the Services, oldest first. The first one with an address carries it. What cannot be done
for one Service is a problem of that Service only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.api.naming import is_interface
from kavip.api.refusal import Refusal
from kavip.errors import BadInput
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.names import Reason
from kavip.vrrp import keys, verbatim, virtualips
from kavip.vrrp.grammar import Line
from kavip.vrrp.members import Member, Peer, is_name
from kavip.vrrp.sharding import (
    EMPTY,
    Shard,
    SharedVIPs,
    combine,
    instance_on,
    shard_count,
    shard_members,
    shard_of,
    shared_instances,
)
from kavip.vrrp.virtualips import VirtualIP


@dataclass(slots=True)
class Unit:
    """
    What becomes one instance per family.

    *is_shared*: a Shared instance; it advertises an anchor of its own, on *interface* ("": that of the group).
    *local*: it follows the endpoints of its Service. *spread*: the Service whose VIPs are spread together, each in a
    unit of its own; *endpoints*: the nodes over which they are spread; empty: all. *preferred*: the nodes that its
    Service prefers. *plain*: the plain Services of a Shared instance; the other fields do not contain them.
    """

    name: str
    router_id: int
    is_shared: bool = False
    interface: str = ""
    local: bool = False
    spread: str = ""
    endpoints: frozenset[str] = frozenset()
    preferred: frozenset[str] = frozenset()
    vips: list[VirtualIP] = field(default_factory=list)
    lines: tuple[Line, ...] = ()
    services: list[str] = field(default_factory=list)
    families: tuple[int, ...] = ()
    plain: SharedVIPs = EMPTY

    def virtual_ips(self, family: int) -> tuple[VirtualIP, ...]:
        """The sorted VIPs of *family*."""
        own = [vip for vip in self.vips if vip.address.family == family]
        combined = self.plain.vips.get(family, ())
        return tuple(sorted([*combined, *own])) if own else combined

    def vip_families(self) -> set[int]:
        """The families of its VIPs."""
        return {*self.plain.vips, *(vip.address.family for vip in self.vips)}

    def holders(self) -> tuple[str, ...]:
        """The sorted keys of its Services."""
        return tuple(sorted([*self.plain.services, *self.services])) if self.services else self.plain.services

    def interfaces(self) -> frozenset[str]:
        """The interfaces of the nodes that its instances use for addresses."""
        plain = (some[0].interface for some in self.plain.vips.values())
        return frozenset((self.interface, *plain, *(vip.interface for vip in self.vips))) - {""}


class UnitBuilder:
    """Builds the *units* of a group; *problems* holds, by Service, what could not be done."""

    def __init__(
        self,
        group: KeepalivedGroup,
        peers: Sequence[Peer],
        router_ids: Mapping[str, int],
        *,
        memory: Memory = KEEPS_NOTHING,
    ) -> None:
        """Only units with a VRID in *router_ids* are built; the addresses of *peers* cannot be VIPs."""
        self.units: dict[str, Unit] = {}
        self.problems: dict[str, Refusal] = {}
        self._group = group
        self._router_ids = router_ids
        self._memory = memory
        self._shared = shared_instances(shard_count(group))
        self._node_of = {address: peer.name for peer in peers for address in peer.addresses}
        self._carried: set[Address] = set()

    def add_group_vips(self) -> None:
        """
        Add the VIPs that the group itself names, those that pin one VRID to one unit.

        In Shared mode, the others are in a Shared instance, as all VIPs.
        """
        placed: dict[str, list[VirtualIP]] = {}
        for index, entry in enumerate(self._group.spec.virtual_ips or ()):
            interface, path = entry.interface or self._group.spec.interface, f"spec.virtualIPs[{index}].address"
            own = keys.own_key(self._group, entry.router_id)
            try:
                if entry.interface and not is_interface(entry.interface):
                    raise BadInput(
                        f"spec.virtualIPs[{index}].interface", entry.interface, "want the name of an interface"
                    )
                vip = virtualips.parse_virtual_ip(entry.address, path, interface=interface)
            except BadInput as error:
                self._add_problem(own, Reason.INVALID, str(error))
            else:
                placed.setdefault(own, []).append(vip)
        pinned = keys.pinned_ids(self._group)
        for own, vips in placed.items():
            self._place(own, vips, unit=own if own in pinned else self._shard_of(own) or own)

    def add_members(self, members: Iterable[Member]) -> None:
        """Add all Services of the group, oldest first; the plain ones of a Shared instance are added at once."""
        single: list[Member] = [] if self._shared else list(members)
        for name, shard in self._shards(members).items() if self._shared else ():
            single += shard.special
            for interface, plain in shard.on.items():
                if (unit := self._unit(instance_on(name, interface), interface)) is not None:
                    unit.plain = plain
                else:
                    self._refuse(plain.services, instance_on(name, interface))
        for member in sorted(single, key=lambda member: member.age_key):
            self.add_member(member)

    def add_member(self, member: Member) -> None:
        """Add one Service."""
        if not is_name(member.key):
            self._add_problem(member.key, Reason.INVALID_REQUEST, f"{member.key[:80]!r} is not a namespace and a name")
            return
        if member.problem:
            self.problems[member.key] = member.problem
        vips, shard = self._vips_of(member), "" if member.has_own_instances else self._shard_of(member.key)
        if shard and member.lines:
            self._add_problem(member.key, Reason.INVALID_VERBATIM, verbatim.shared(self._group.key).message)
        if shard:
            self._share(member, vips)
            return
        placed = {keys.address_key(member.key, vip.address): [vip] for vip in vips} if member.spread else {}
        for unit, some in (placed or {member.key: vips}).items():
            self._place(member.key, some, unit=unit, lines=member.lines)
            if (own := self.units.get(unit)) is not None:
                own.local, own.preferred = member.local, member.preferred
                own.spread, own.endpoints = (member.key, member.endpoints) if member.spread else ("", frozenset())
        self._share(member, [vip for vip in vips if vip.address in member.shared])

    def set_families(self) -> None:
        """
        Set the families of each unit; a Shared instance has those of all Shared instances.

        Shared instances without a VIP run too: the first VIP then finds a settled master and is up at once. Those on
        other interfaces than the group's exist only with a VIP, because each takes a VRID.
        """
        units, names = self.units.values(), frozenset(self._shared)
        families = {family for unit in units if unit.name in names for family in unit.vip_families()}
        for name in self._shared if families else ():
            self._unit(name)
        for unit in units:
            unit.is_shared = unit.name in names or bool(unit.interface)
            unit.families = tuple(sorted(families if unit.name in names else unit.vip_families()))

    def _shards(self, members: Iterable[Member]) -> Mapping[str, Shard]:
        shards = shard_members(self._group, members, self._memory)
        return combine(shards, interface=self._group.spec.interface, reserved={*self._node_of, *self._carried})

    def _shard_of(self, key: str) -> str:
        """The Shared instance of *key*; "" if the group has none."""
        return shard_of(key, len(self._shared))

    def _vips_of(self, member: Member) -> list[VirtualIP]:
        """The VIPs of *member*, sorted."""
        interface, others = self._group.spec.interface, dict(member.interfaces)
        return [virtualips.host(each, others.get(each, interface)) for each in sorted(set(member.addresses))]

    def _share(self, member: Member, vips: list[VirtualIP]) -> None:
        """Put *vips* of *member* into Shared instances, by their interface."""
        own = dict(member.interfaces)
        for interface in sorted({own.get(vip.address, "") for vip in vips}):
            some = [vip for vip in vips if own.get(vip.address, "") == interface]
            unit = instance_on(self._shard_of(member.key), interface)
            self._place(member.key, some, unit=unit, interface=interface)

    def _place(
        self,
        holder: str,
        vips: list[VirtualIP],
        *,
        unit: str,
        lines: tuple[Line, ...] = (),
        interface: str = "",
    ) -> None:
        """
        Put those of *vips* that no unit carries yet into the *unit* of that name.

        *interface*: that of a Shared instance, if it is not the group's.
        """
        if not vips:
            return
        home = self._unit(unit, interface)
        if home is None:
            self._refuse([holder], unit)
            return
        home.services.append(holder)
        home.lines = lines
        for vip in vips:
            if vip.address in self._node_of:
                message = f"{vip.address} is the address of node {self._node_of[vip.address]} and cannot be a VIP"
                self._add_problem(holder, Reason.ADDRESS_NOT_ALLOWED, message)
                continue
            if vip.address not in self._carried:
                self._carried.add(vip.address)
                home.vips.append(vip)

    def _unit(self, name: str, interface: str = "") -> Unit | None:
        if name not in self.units and name in self._router_ids:
            self.units[name] = Unit(name, self._router_ids[name], interface=interface)
        return self.units.get(name)

    def _refuse(self, holders: Iterable[str], unit: str) -> None:
        """Report for *holders* that there is no VRID for *unit*; this replaces any other problem."""
        message = f"group {self._group.key} has no VRID left for {unit}; use another group"
        if not self._shared:
            message += ", or mode Shared"
        self.problems.update(dict.fromkeys(holders, Refusal(Reason.ROUTER_IDS_EXHAUSTED, message)))

    def _add_problem(self, holder: str, reason: Reason, message: str) -> None:
        """The first problem of a Service is the one that is reported."""
        self.problems.setdefault(holder, Refusal(reason, message))
