"""
The model of a group whose VIPs are being taken over from keepalived-operator.

Beside old daemons a new one must speak as they do: the same VRID, version, interval, authentication and mode, and the
same list of addresses in each advertisement, else neither hears the other and both become master. Old nodes have the
priority 100, with ``spreadvips`` 200 where an address is wanted. So new nodes keep below 100 as long as any node can be
replaced that holds nothing; then, for each instance, one of those that are new by then leads with the highest priority
and takes the VIPs from their holder, which lives and sees them go: no VIP moves more than once, and none is away. Where
the first may be unable to, for want of an endpoint or for a check, all that are new rise, and who is able is master.
Those that *lead* stay in front when no old pod is left, so that nothing moves again by itself. What is still spoken
otherwise than the group wants it is then switched by all nodes at once (:mod:`~kavip.vrrp.staging`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.names import Reason
from kavip.vrrp import virtualips
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.members import Peer
from kavip.vrrp.predecessor import Inherited
from kavip.vrrp.priorities import BOTTOM, TOP
from kavip.vrrp.tracking import READY_BOTTOM

Priorities = tuple[tuple[str, int], ...]

_OLD: Final = 100
"""The priority of old nodes, of those that have the least."""

_ABOVE: Final = 201
"""Above the priority of all old nodes."""

_SPOKEN: Final = frozenset({"advert_int", "priority"})
"""What a Service may have said to old nodes too, and what must not change beside them."""


@dataclass(frozen=True, slots=True)
class Succession:
    """
    What the new daemons of a group owe to those that ran before.

    *old* are the instances of nodes that are not replaced yet, none where all are. *leads*: the nodes that hold the
    VIPs from now on.
    """

    old: tuple[Inherited, ...] = ()
    leads: frozenset[str] = frozenset()

    @property
    def router_ids(self) -> Mapping[str, int]:
        """The VRIDs that old nodes use, by the name of the instance, which is the key of its VRID."""
        return {each.name: each.router_id for each in self.old}

    def first(self, held: Mapping[str, int]) -> Mapping[str, int]:
        """*held* as far as nothing else runs: keepalived-operator wrote its text before its status."""
        runs = self.router_ids
        if not runs:
            return held
        return {**{key: number for key, number in held.items() if number not in runs.values()}, **runs}

    def taken(self, wanted: Iterable[str]) -> frozenset[int]:
        """Those that none of the *wanted* keys may be given."""
        keys = set(wanted)
        return frozenset(number for name, number in self.router_ids.items() if name not in keys)

    def of(self, model: Model, peers: Sequence[Peer]) -> Model:
        """*model* as it may run beside the old daemons, and after them."""
        if not self.old:
            return replace(model, instances=tuple(map(self._settled, model.instances))) if self.leads else model
        heirs = {(each.router_id, each.family): each for each in self.old}
        owners = {address: (each.router_id, each.family) for each in self.old for address in each.addresses}
        kept: list[Instance] = []
        problems = dict(model.problems)
        for instance in model.instances:
            identity = instance.router_id, instance.family
            mine = [vip for vip in instance.addresses if owners.get(vip.address, identity) == identity]
            if len(mine) < len(instance.addresses):
                problems |= {name: _awaited(instance, name, owners) for name in instance.services}
            if mine:
                kept.append(self._beside(_holding(instance, mine), heirs.get(identity), peers))
        return replace(model, instances=tuple(kept), problems=dict(sorted(problems.items())))

    def heirs(self, instance: Instance) -> tuple[str, ...]:
        """The nodes that are to take *instance*, the first that is able to; none as long as nobody leads."""
        ranked = [node for node, _ in _ranked(instance.priorities, self.leads) if node in self.leads]
        return tuple(ranked if instance.tracks else ranked[:1])

    def _beside(self, instance: Instance, heir: Inherited | None, peers: Sequence[Peer]) -> Instance:
        instance = replace(instance, priorities=self._waiting(instance))
        if heir is None:
            return instance
        vips = {vip.address: vip for vip in instance.addresses}
        nodes = _nodes(heir, peers) if heir.peers else ()
        listed = tuple(
            vips.get(address) or virtualips.host(address, instance.anchor.interface) for address in heir.addresses
        )
        return replace(
            instance,
            interface=heir.interface or instance.interface,
            version=heir.version,
            interval=heir.interval,
            authenticated=heir.authenticated,
            sources=tuple(each for each in nodes if each[1] in heir.peers),  # another would hear nothing, and be master
            peers=nodes,
            trusting=True,
            anchor=listed[0],
            also=listed[1:],
            excluded=tuple(vip for vip in instance.addresses if vip.address not in heir.addresses),
            lines=tuple(line for line in instance.lines if line.keyword not in _SPOKEN),
        )

    def _waiting(self, instance: Instance) -> Priorities:
        """
        Below all old nodes, but for those that are to take it: they are above them.

        None is so low that one without an endpoint (policy ``Local``) would not be lower.
        """
        ranked = [node for node, _ in _ranked(instance.priorities, ())]
        below = {node: max(READY_BOTTOM, _OLD - 1 - rank) for rank, node in enumerate(ranked)}
        return tuple(sorted((below | self._above(self.heirs(instance))).items()))

    def _settled(self, instance: Instance) -> Instance:
        """Without old neighbours: in its own order, but behind those that lead, whose priorities stay what they are."""
        ranked = [node for node, _ in _ranked(instance.priorities, self.leads)]
        leads = [node for node in ranked if node in self.leads]
        if not leads:
            return instance
        rest = _spread(ranked[len(leads) :], _ABOVE - 1, BOTTOM)
        return replace(instance, priorities=tuple(sorted((rest | self._above(leads)).items())))

    def _above(self, leads: Sequence[str]) -> dict[str, int]:
        return _spread(leads, TOP, _ABOVE)


def stranded(model: Model, old: Iterable[Inherited]) -> tuple[str, ...]:
    """
    The old instances whose VIPs are still wanted, and by no instance of theirs: they would be lost on the way.

    That is so where ``spreadvips`` or the group's mode was changed while nobody acted on it.
    """
    there = {(each.router_id, each.family) for each in model.instances}
    wanted = model.problems.keys()
    return tuple(
        each.name
        for each in old
        if (each.router_id, each.family) not in there and any(_is_of(each.name, service) for service in wanted)
    )


def _holding(instance: Instance, vips: Sequence[virtualips.VirtualIP]) -> Instance:
    anchor = instance.anchor if instance.anchor in vips else vips[0]
    return replace(instance, anchor=anchor, excluded=tuple(vip for vip in vips if vip != anchor))


def _nodes(heir: Inherited, peers: Sequence[Peer]) -> tuple[tuple[str, Address], ...]:
    found = ((peer.name, peer.address(heir.family)) for peer in peers)
    return tuple(sorted((name, address) for name, address in found if address))


def _ranked(priorities: Priorities, leads: Collection[str]) -> list[tuple[str, int]]:
    return sorted(priorities, key=lambda each: (each[0] not in leads, -each[1], each[0]))


def _spread(nodes: Sequence[str], top: int, bottom: int) -> dict[str, int]:
    """Priorities of *nodes*, the first with the highest, as far from each other as there is room."""
    step = max(1, (top - bottom) // max(1, len(nodes) - 1))
    return {node: max(bottom, top - rank * step) for rank, node in enumerate(nodes)}


def _awaited(instance: Instance, service: str, owners: Mapping[Address, tuple[int, int]]) -> Refusal:
    address = next(vip.address for vip in instance.addresses if owners.get(vip.address))
    message = (
        f"{address} of {service} is still held by pods of keepalived-operator in VRRP instance "
        f"{owners[address][0]}, not {instance.router_id}; it comes when all of them are replaced"
    )
    return Refusal(Reason.PENDING, message)


def _is_of(instance: str, service: str) -> bool:
    return instance == service or instance.startswith(f"{service}/")
