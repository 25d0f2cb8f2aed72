"""
The home of each unit: new units go to the nodes that are first for the fewest, and no other unit moves.

The hash (:mod:`kavip.vrrp.priorities`) spreads units by chance: of 12 instances on 3 nodes one node may get 8. So a new
unit gets the node that ranks first for the fewest units; of several such nodes, the one that the hash prefers. Where
this is not the node that the hash ranks first, it is the unit's home, and the text names it. Only nodes that are up,
undrained and preferred (:mod:`kavip.vrrp.preference`) get new units. The VIPs of a Service with spread go to different
nodes first of all (:mod:`kavip.vrrp.spread`).

A unit keeps its home as long as it exists and the node is in the group, whatever comes and goes beside it. If the text
is lost, the nodes that hold the VIPs become their homes. The instances of a unit, one for each family, stay together.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp.members import Peer, drained_of
from kavip.vrrp.placement import leads_of, nodes_of, with_endpoint
from kavip.vrrp.preference import levels_of, preferred_among
from kavip.vrrp.priorities import NO_HOMES, seed_of, weight
from kavip.vrrp.rebalance import Balance, balance_of
from kavip.vrrp.spread import Lead
from kavip.vrrp.units import Unit

_NAME: Final = attrgetter("name")


@dataclass(frozen=True, slots=True)
class PlacedUnits:
    """
    The *names* of the units that run, and the *homes* of units, by name.

    *holders*: if nothing is known of what runs, the node that is master, by unit. *is_rebalanced*: the group asks for
    the moves that balance it; *may_move*: the last one is over.
    """

    names: frozenset[str] = frozenset()
    homes: Mapping[str, str] = field(default_factory=lambda: NO_HOMES)
    holders: Mapping[str, str] = field(default_factory=lambda: NO_HOMES)
    is_rebalanced: bool = False
    may_move: bool = False


class UnitOrder(NamedTuple):
    """The order of the nodes of one unit, as in :func:`kavip.vrrp.priorities.priorities`."""

    seed: str
    levels: Mapping[str, int]
    home: str = ""

    def first(self, nodes: Collection[str], lead: Lead = ()) -> str:
        """The one of *nodes* that ranks first, those of *lead* before all others; "" if there is none."""
        return next((node for node in lead if node in nodes), "") or max(nodes, key=self._rank, default="")

    def _rank(self, node: str) -> tuple[int, bool, int, str]:
        return self.levels.get(node, 0), node == self.home, weight(self.seed, node), node


def homes_of(
    group: str,
    units: Collection[Unit],
    peers: Sequence[Peer],
    placed: PlacedUnits,
    *,
    unicast: bool,
    dead: frozenset[str] = frozenset(),
    memory: Memory = KEEPS_NOTHING,
) -> Mapping[str, str]:
    """
    The homes of *units* of *group*, by unit, while nodes are *dead*.

    A unit that has always followed the hash is absent.
    """
    present, names = {peer.name for peer in peers}, placed.names | {unit.name for unit in units}
    homes = {name: node for name, node in placed.homes.items() if name in names and node in present}
    known = placed.names | homes.keys()
    new = sorted((unit for unit in units if unit.name not in known), key=_NAME)
    if not new:
        return homes
    every = nodes_of(peers, unicast=unicast)
    up = without(every, dead | drained_of(peers))
    old = [unit for unit in units if unit.name in known]
    loads, firsts = _Loads(), first_nodes_of(group, old, peers, homes, unicast=unicast, dead=dead, memory=memory)
    for unit in old:
        loads.add(unit, firsts[unit.name])
    for unit in new:
        order = UnitOrder(seed_of(group, unit.name), levels_of(peers, unit.preferred))
        able, holder = able_nodes(unit, up), placed.holders.get(unit.name, "")
        node = holder if holder in able else loads.fewest(unit, order, preferred_among(able, order.levels))
        loads.add(unit, node)
        if node and node != order.first(able_nodes(unit, every)):
            homes[unit.name] = node
    return homes


def balance_with(
    group: str,
    units: Collection[Unit],
    peers: Sequence[Peer],
    homes: Mapping[str, str],
    *,
    unicast: bool,
    dead: frozenset[str] = frozenset(),
    memory: Memory = KEEPS_NOTHING,
) -> Balance:
    """The balance of *group* with these *homes*."""
    up = without(nodes_of(peers, unicast=unicast), dead | drained_of(peers))
    firsts = first_nodes_of(group, units, peers, homes, unicast=unicast, dead=dead, memory=memory)
    allowed = {
        unit.name: preferred_among(able_nodes(unit, up), levels_of(peers, unit.preferred))
        for unit in units
        if not unit.spread and all(line.keyword != "nopreempt" for line in unit.lines)
    }
    return memory.last(balance_of, "", firsts, allowed, frozenset[str]().union(*up.values()))


def first_nodes_of(
    group: str,
    units: Collection[Unit],
    peers: Sequence[Peer],
    homes: Mapping[str, str],
    *,
    unicast: bool,
    dead: frozenset[str] = frozenset(),
    memory: Memory = KEEPS_NOTHING,
) -> Mapping[str, str]:
    """The node that ranks first for each of *units* of *group* with these *homes*, by unit; "" if none is up."""
    up = without(nodes_of(peers, unicast=unicast), dead | drained_of(peers))
    leads = leads_of(group, units, peers, unicast=unicast, dead=dead, homes=homes, memory=memory)
    levels = {preferred: levels_of(peers, preferred) for preferred in {unit.preferred for unit in units}}
    able = {_kind(unit): able_nodes(unit, up) for unit in {_kind(unit): unit for unit in units}.values()}
    return {
        unit.name: memory.last(
            UnitOrder.first,
            unit.name,
            UnitOrder(seed_of(group, unit.name), levels[unit.preferred], homes.get(unit.name, "")),
            able[_kind(unit)],
            leads.get(unit.name, ()),
        )
        for unit in units
    }


def without(nodes: Mapping[int, frozenset[str]], away: frozenset[str]) -> Mapping[int, frozenset[str]]:
    """*nodes* by family without those that are *away*."""
    return {family: each - away for family, each in nodes.items()}


def able_nodes(unit: Unit, nodes: Mapping[int, frozenset[str]]) -> frozenset[str]:
    """Those of *nodes*, by family, that can be master of all instances of *unit*; if there is none, of any."""
    some = [with_endpoint(nodes[family], unit) for family in unit.families]
    return frozenset.intersection(*some) or frozenset.union(*some) if some else frozenset()


def _kind(unit: Unit) -> tuple[tuple[int, ...], frozenset[str]]:
    """What the nodes that can be master of *unit* depend on."""
    return unit.families, unit.endpoints


class _Loads:
    """For how many units each node ranks first."""

    def __init__(self) -> None:
        self._all: Counter[str] = Counter()
        self._of_service: Counter[tuple[str, str]] = Counter()
        self._of_family: Counter[tuple[str, tuple[int, ...], str]] = Counter()

    def add(self, unit: Unit, node: str) -> None:
        """Count *unit* for *node*."""
        self._all[node] += 1
        if unit.spread:
            self._of_service[unit.spread, node] += 1
            self._of_family[unit.spread, unit.families, node] += 1

    def fewest(self, unit: Unit, order: UnitOrder, nodes: Collection[str]) -> str:
        """The one of *nodes* for the new *unit*; "" if there is none."""
        return min(nodes, key=lambda node: (*self._of(unit, node), -weight(order.seed, node), node), default="")

    def _of(self, unit: Unit, node: str) -> tuple[int, int, int]:
        """What *node* is first for: VIPs of the same Service in this family and in both, and all units."""
        service = unit.spread
        if not service:
            return 0, 0, self._all[node]
        return self._of_family[service, unit.families, node], self._of_service[service, node], self._all[node]
