"""
Who carries which address: the step from Services to VRRP instances.

A unit is what becomes one instance per address family. Units are filled in a fixed order, the group's own VIPs first,
then Services by age, and whoever comes first carries an address. What cannot be done for one Service is a problem of
that Service, and of no other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.errors import BadInput
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.names import Reason
from kavip.vrrp import keys, verbatim, virtualips
from kavip.vrrp.grammar import Line, is_interface
from kavip.vrrp.lots import NONE, Lot, lots_of
from kavip.vrrp.members import Member, Peer, is_name
from kavip.vrrp.shares import count_of, shares_of, slot_names, slot_of
from kavip.vrrp.virtualips import VirtualIP


@dataclass(frozen=True, slots=True)
class Sharing:
    """One address that several Services have: the *instance* that carries it, and all of the *services*, sorted."""

    address: Address
    instance: str
    services: tuple[str, ...]


@dataclass(slots=True)
class Unit:
    """
    What becomes one instance per family. A *slot* has its own anchor, and the families that all slots have.

    A *local* one follows the endpoints of its Service. *lot*: what it has besides.
    """

    name: str
    router_id: int
    slot: bool = False
    local: bool = False
    vips: list[VirtualIP] = field(default_factory=list)
    lines: tuple[Line, ...] = ()
    services: list[str] = field(default_factory=list)
    families: tuple[int, ...] = ()
    lot: Lot = NONE

    def virtual_ips(self, family: int) -> tuple[VirtualIP, ...]:
        """The VIPs of *family*, sorted."""
        own = [vip for vip in self.vips if vip.address.family == family]
        rest = self.lot.vips.get(family, ())
        return tuple(sorted([*rest, *own])) if own else rest

    def own_families(self) -> set[int]:
        """Those of its VIPs."""
        return {*self.lot.vips, *(vip.address.family for vip in self.vips)}

    def holders(self) -> tuple[str, ...]:
        """The Services, sorted."""
        return tuple(sorted([*self.lot.services, *self.services])) if self.services else self.lot.services


class Draft:
    """Gathers units: whoever comes first carries an address."""

    def __init__(
        self,
        group: KeepalivedGroup,
        peers: Sequence[Peer],
        router_ids: Mapping[str, int],
        *,
        memory: Memory = KEEPS_NOTHING,
    ) -> None:
        self._memory = memory
        self.units: dict[str, Unit] = {}
        self.problems: dict[str, Refusal] = {}
        self._group = group
        self._ids = router_ids
        self._slots = slot_names(count_of(group))
        self._node_of = {address: peer.name for peer in peers for address in peer.addresses}
        self._carriers: dict[Address, Unit] = {}
        self._holders: dict[Address, list[str]] = {}

    def add_own(self) -> None:
        """Add the VIPs that the group names itself; in Shared mode they live in a slot, like all others."""
        vips, own = [], keys.own_key(self._group)
        for index, entry in enumerate(self._group.spec.virtual_ips or ()):
            where, path = entry.interface or self._group.spec.interface, f"spec.virtualIPs[{index}].address"
            try:
                if entry.interface and not is_interface(entry.interface):
                    raise BadInput(
                        f"spec.virtualIPs[{index}].interface", entry.interface, "want the name of an interface"
                    )
                vips.append(virtualips.parse_virtual_ip(entry.address, path, interface=where))
            except BadInput as error:
                self._object(own, Reason.INVALID, str(error))
        if vips:
            self._place(own, vips, unit=self._slot(own) or own)

    def add_all(self, members: Iterable[Member]) -> None:
        """Add all Services of the group, the older ones first; those of a slot that are alike, all at once."""
        rest: list[Member] = [] if self._slots else list(members)
        for slot, lot in self._lots(members).items() if self._slots else ():
            unit = self._unit(slot)
            rest += lot.members if unit is None else lot.rest
            if unit is not None:
                unit.lot = lot
        for member in sorted(rest, key=lambda member: member.age_key):
            self.add(member)

    def add(self, member: Member) -> None:
        """Add one Service."""
        if not is_name(member.key):
            self._object(member.key, Reason.INVALID_REQUEST, f"{member.key[:80]!r} is not a namespace and a name")
            return
        if member.problem:
            self.problems[member.key] = member.problem
        vips = [virtualips.host(address, self._group.spec.interface) for address in sorted(set(member.addresses))]
        slot = "" if member.local else self._slot(member.key)
        if slot and member.lines:
            self._object(member.key, Reason.INVALID_VERBATIM, verbatim.shared(self._group.key).message)
        if slot or not member.spread or self._slots:
            placed = {slot or member.key: vips}
        else:
            placed = {f"{member.key}/{vip.address}": [vip] for vip in vips}
        for unit, some in placed.items():
            self._place(member.key, some, unit=unit, lines=() if slot else member.lines)
            if member.local and unit in self.units:
                self.units[unit].local = True

    def fill_slots(self) -> None:
        """
        Give each unit its families, and each slot those of all slots.

        Slots without a VIP run too: the first VIP then finds a master that is settled, and comes up at once.
        """
        units, slots = self.units.values(), frozenset(self._slots)
        shared = {family for unit in units if unit.name in slots for family in unit.own_families()}
        for slot in self._slots if shared else ():
            self._unit(slot)
        for unit in units:
            unit.slot = unit.name in slots
            unit.families = tuple(sorted(shared if unit.slot else unit.own_families()))

    def sharings(self) -> tuple[Sharing, ...]:
        """The addresses that more than one Service has."""
        return tuple(
            Sharing(address, keys.instance_name(self._carriers[address].name, address.family), tuple(sorted(holders)))
            for address, holders in sorted(self._holders.items())
            if len(holders) > 1
        )

    def _lots(self, members: Iterable[Member]) -> Mapping[str, Lot]:
        reserved = {*self._node_of, *self._carriers}
        shares = shares_of(self._group, members, self._memory)
        return lots_of(shares, interface=self._group.spec.interface, reserved=reserved)

    def _slot(self, key: str) -> str:
        """The slot of *key*; "" where the group has none."""
        return slot_of(key, len(self._slots)) if self._slots else ""

    def _place(self, holder: str, vips: list[VirtualIP], *, unit: str, lines: tuple[Line, ...] = ()) -> None:
        """Put those of *vips* that nobody carries yet into the *unit* of that name."""
        if not vips:
            return
        home = self._unit(unit)
        if home is None:
            message = f"group {self._group.key} has no VRID left for {unit}; use another group, or mode Shared"
            self.problems[holder] = Refusal(Reason.ROUTER_IDS_EXHAUSTED, message)  # weighs more than any other
            return
        home.services.append(holder)
        home.lines = lines
        for vip in vips:
            if vip.address in self._node_of:
                message = f"{vip.address} is the address of node {self._node_of[vip.address]}; it can be no VIP"
                self._object(holder, Reason.ADDRESS_NOT_ALLOWED, message)
                continue
            if vip.address not in self._carriers:
                self._carriers[vip.address] = home
                home.vips.append(vip)
            self._holders.setdefault(vip.address, []).append(holder)

    def _unit(self, name: str) -> Unit | None:
        if name not in self.units and name in self._ids:
            self.units[name] = Unit(name, self._ids[name])
        return self.units.get(name)

    def _object(self, holder: str, reason: Reason, message: str) -> None:
        self.problems.setdefault(holder, Refusal(reason, message))
