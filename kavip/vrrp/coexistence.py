"""
The model of a group while the pods of keepalived-operator are replaced one after the other.

While old daemons run, a new one must use the same VRID, version, interval, authentication and mode, and the same list
of addresses in each advertisement. Otherwise neither hears the other, and both become master. Old nodes have the
priority 100; with ``spreadvips`` the node that should hold an address has 200.

New nodes stay below 100 until no old node without a VIP is left to replace. Then the first of the new nodes of each
instance gets the highest priority and takes the VIPs from the old master, which is alive and gives them up: no VIP
moves more than once, and none is down. If the first node may be unable to take over, because it has no endpoint or
fails a check, all new nodes are raised, and the best that is able becomes master. The *leaders* keep their
priorities when no old pod is left, so that nothing moves again by itself. What still differs from the group's spec then
changes on all nodes at once (:mod:`~kavip.vrrp.staging`).
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
from kavip.vrrp.operatorconfig import OperatorInstance
from kavip.vrrp.priorities import BOTTOM, TOP
from kavip.vrrp.tracking import READY_BOTTOM

Priorities = tuple[tuple[str, int], ...]

_OLD: Final = 100
"""The lowest priority of old nodes."""

_ABOVE: Final = 201
"""A priority above those of all old nodes."""

_FIXED: Final = frozenset({"advert_int", "priority"})
"""Keywords that a Service may have set on old nodes, and that must not change while they run."""


@dataclass(frozen=True, slots=True)
class Coexistence:
    """
    What new daemons must respect of keepalived-operator's daemons.

    *old* are the instances of the nodes that are not replaced yet. *leaders* are the nodes that hold the VIPs from now
    on.
    """

    old: tuple[OperatorInstance, ...] = ()
    leaders: frozenset[str] = frozenset()

    @property
    def router_ids(self) -> Mapping[str, int]:
        """The VRIDs that old nodes use, by instance; the name of an old instance is the key of its VRID."""
        return {each.name: each.router_id for each in self.old}

    def held_router_ids(self, held: Mapping[str, int]) -> Mapping[str, int]:
        """*held*, corrected by what old nodes run: keepalived-operator wrote its text before its status."""
        runs = self.router_ids
        if not runs:
            return held
        return {**{key: number for key, number in held.items() if number not in runs.values()}, **runs}

    def reserved(self, wanted: Iterable[str]) -> frozenset[int]:
        """The VRIDs of old instances that none of the *wanted* keys may get."""
        keys = set(wanted)
        return frozenset(number for name, number in self.router_ids.items() if name not in keys)

    def adapt(self, model: Model, peers: Sequence[Peer]) -> Model:
        """*model* as it may run together with old daemons, or after them."""
        if not self.old:
            return replace(model, instances=tuple(map(self._settled, model.instances))) if self.leaders else model
        old = {(each.router_id, each.family): each for each in self.old}
        owners = {address: (each.router_id, each.family) for each in self.old for address in each.addresses}
        kept: list[Instance] = []
        problems = dict(model.problems)
        for instance in model.instances:
            identity = instance.router_id, instance.family
            free = [vip for vip in instance.addresses if owners.get(vip.address, identity) == identity]
            if len(free) < len(instance.addresses):
                problems |= {name: _still_held(instance, name, owners) for name in instance.services}
            if free:
                kept.append(self._beside(_with_vips(instance, free), old.get(identity), peers))
        return replace(model, instances=tuple(kept), problems=dict(sorted(problems.items())))

    def successors(self, instance: Instance) -> tuple[str, ...]:
        """The nodes that take over *instance*, the first choice first; none while no node leads."""
        ranked = [node for node, _ in _ranked(instance.priorities, self.leaders) if node in self.leaders]
        return tuple(ranked if instance.tracks else ranked[:1])

    def _beside(self, instance: Instance, old: OperatorInstance | None, peers: Sequence[Peer]) -> Instance:
        instance = replace(instance, priorities=self._waiting(instance))
        if old is None:
            return instance
        vips = {vip.address: vip for vip in instance.addresses}
        nodes = _nodes(old.family, peers) if old.peers else ()
        listed = tuple(
            vips.get(address) or virtualips.host(address, instance.anchor.interface) for address in old.addresses
        )
        return replace(
            instance,
            interface=old.interface or instance.interface,
            version=old.version,
            interval=old.interval,
            authenticated=old.authenticated,
            # the old nodes send to these addresses only: a node with another one would hear nothing and become master
            sources=tuple(each for each in nodes if each[1] in old.peers),
            peers=nodes,
            trusting=True,
            anchor=listed[0],
            also=listed[1:],
            excluded=tuple(vip for vip in instance.addresses if vip.address not in old.addresses),
            lines=tuple(line for line in instance.lines if line.keyword not in _FIXED),
        )

    def _waiting(self, instance: Instance) -> Priorities:
        """
        The priorities while old nodes run: below all of them, and above all of them for the successors.

        None is so low that a node without an endpoint (policy ``Local``) could not rank below it.
        """
        ranked = [node for node, _ in _ranked(instance.priorities, ())]
        below = {node: max(READY_BOTTOM, _OLD - 1 - rank) for rank, node in enumerate(ranked)}
        return tuple(sorted((below | self._above(self.successors(instance))).items()))

    def _settled(self, instance: Instance) -> Instance:
        """*instance* without old nodes: the nodes that lead keep their priorities, the others rank behind them."""
        ranked = [node for node, _ in _ranked(instance.priorities, self.leaders)]
        leaders = [node for node in ranked if node in self.leaders]
        if not leaders:
            return instance
        rest = _spread(ranked[len(leaders) :], _ABOVE - 1, BOTTOM)
        return replace(instance, priorities=tuple(sorted((rest | self._above(leaders)).items())))

    def _above(self, leaders: Sequence[str]) -> dict[str, int]:
        return _spread(leaders, TOP, _ABOVE)


def stranded(model: Model, old: Iterable[OperatorInstance]) -> tuple[str, ...]:
    """
    The old instances whose VIPs are still wanted, but whose VRIDs are not: their VIPs would be lost on the way.

    That happens where ``spreadvips`` or the group's mode changed while no controller acted on it.
    """
    there = {(each.router_id, each.family) for each in model.instances}
    wanted = model.problems.keys()
    return tuple(
        each.name
        for each in old
        if (each.router_id, each.family) not in there and any(_is_of(each.name, service) for service in wanted)
    )


def _with_vips(instance: Instance, vips: Sequence[virtualips.VirtualIP]) -> Instance:
    anchor = instance.anchor if instance.anchor in vips else vips[0]
    return replace(instance, anchor=anchor, excluded=tuple(vip for vip in vips if vip != anchor))


def _nodes(family: int, peers: Sequence[Peer]) -> tuple[tuple[str, Address], ...]:
    found = ((peer.name, peer.address(family)) for peer in peers)
    return tuple(sorted((name, address) for name, address in found if address))


def _ranked(priorities: Priorities, leaders: Collection[str]) -> list[tuple[str, int]]:
    return sorted(priorities, key=lambda each: (each[0] not in leaders, -each[1], each[0]))


def _spread(nodes: Sequence[str], top: int, bottom: int) -> dict[str, int]:
    """Priorities of *nodes* from *top* down to *bottom*, as far apart as possible; the first has the highest."""
    step = max(1, (top - bottom) // max(1, len(nodes) - 1))
    return {node: max(bottom, top - rank * step) for rank, node in enumerate(nodes)}


def _still_held(instance: Instance, service: str, owners: Mapping[Address, tuple[int, int]]) -> Refusal:
    address = next(vip.address for vip in instance.addresses if owners.get(vip.address))
    message = (
        f"{address} of {service} is still held by pods of keepalived-operator in VRRP instance "
        f"{owners[address][0]}, not {instance.router_id}; it comes when all of them are replaced"
    )
    return Refusal(Reason.PENDING, message)


def _is_of(instance: str, service: str) -> bool:
    return instance == service or instance.startswith(f"{service}/")
