"""
The home of each unit: a new unit gets the node that ranks first for the fewest units, and all others keep their place.

The hash (:mod:`kavip.vrrp.priorities`) spreads units by chance: of 12 instances on 3 nodes one node may get 8. So a new
unit gets the node that ranks first for the fewest units; of several such nodes, the one that the hash prefers. Where
this is not the node that the hash ranks first, it is the unit's home, and the text names it. Only nodes that are up,
undrained and preferred (:mod:`kavip.vrrp.preference`), and that have the interface of its VIPs, get new units. The VIPs
of a Service with spread go to different nodes first of all (:mod:`kavip.vrrp.spread`).

A unit keeps its home as long as it exists and the node is in the group, whatever comes and goes beside it. If the text
is lost, the nodes that hold the VIPs become their homes. The instances of a unit, one for each family, stay together.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp.drain import Turns, undrained_among
from kavip.vrrp.members import Peer, lacking_of, turns_of
from kavip.vrrp.placement import eligible, leads_of, nodes_of
from kavip.vrrp.preference import levels_of, preferred_among
from kavip.vrrp.priorities import NO_HOMES, rank, seed_of, weight
from kavip.vrrp.rebalance import Balance, balance_of
from kavip.vrrp.spread import Lead
from kavip.vrrp.units import Unit

_NAME: Final = attrgetter("name")


@dataclass(frozen=True, slots=True)
class PlacedUnits:
    """
    The *names* of the units that run, and the *homes* of units, by name.

    *spread*: the units whose VIPs are spread already. *holders*: if nothing is known of what runs, the node that is
    master, by unit. *wants_balance*: the group asks for the moves that balance it. *may_move*: the next move may begin
    (:mod:`kavip.vrrp.moves`).
    """

    names: frozenset[str] = frozenset()
    homes: Mapping[str, str] = field(default_factory=lambda: NO_HOMES)
    spread: frozenset[str] = frozenset()
    holders: Mapping[str, str] = field(default_factory=lambda: NO_HOMES)
    wants_balance: bool = False
    may_move: bool = False


@dataclass(frozen=True, kw_only=True)
class HomeFinder:
    """Finds homes in *group*, whose nodes are *peers*, while some of them are *dead*."""

    group: str
    peers: Sequence[Peer]
    unicast: bool
    dead: frozenset[str] = frozenset()
    memory: Memory = KEEPS_NOTHING

    def homes(self, units: Collection[Unit], placed: PlacedUnits) -> Mapping[str, str]:
        """
        The homes of *units*, by unit.

        A unit that has always followed the hash is absent.
        """
        present, names = {peer.name for peer in self.peers}, placed.names | {unit.name for unit in units}
        homes = {name: node for name, node in placed.homes.items() if name in names and node in present}
        known = placed.names | homes.keys()
        new = sorted((unit for unit in units if unit.name not in known), key=_NAME)
        if not new:
            return homes
        old = [unit for unit in units if unit.name in known]
        loads, firsts = _Loads(), self._first_nodes(old, homes)
        for unit in old:
            loads.add(unit, firsts[unit.name])
        for unit in new:
            order, up = self._order(unit), self._up_for(self._kind(unit))
            holder = placed.holders.get(unit.name, "")
            node = holder if holder in up else loads.fewest(unit, order, preferred_among(up, order.levels))
            loads.add(unit, node)
            if node and node != order.first(self._able(unit)):
                homes[unit.name] = node
        return homes

    def balance(self, units: Collection[Unit], homes: Mapping[str, str]) -> Balance:
        """The balance of the group with these *homes*."""
        allowed = {
            unit.name: preferred_among(self._up_for(self._kind(unit)), levels_of(self.peers, unit.preferred))
            for unit in units
            if not unit.spread and all(line.keyword != "nopreempt" for line in unit.lines)
        }
        nodes = frozenset[str]().union(*self._nodes.values()) - self.dead - self._turns.keys()
        return self.memory.last(balance_of, "", self._first_nodes(units, homes), allowed, nodes)

    def leads(self, units: Collection[Unit], homes: Mapping[str, str], *, dead: frozenset[str]) -> Mapping[str, Lead]:
        """The nodes that rank before all others for *units* with these *homes*, by unit, while nodes are *dead*."""
        return leads_of(self.group, units, self.peers, unicast=self.unicast, dead=dead, homes=homes, memory=self.memory)

    def first_node(self, unit: Unit, homes: Mapping[str, str], lead: Lead = ()) -> str:
        """The node that ranks first for *unit*, those of *lead* before all others; "" if none is up."""
        return self._order(unit, homes.get(unit.name, "")).first(self._up_for(self._kind(unit)), lead)

    @cached_property
    def _nodes(self) -> Mapping[int, frozenset[str]]:
        """By family, the nodes that can become master."""
        return nodes_of(self.peers, unicast=self.unicast)

    @cached_property
    def _turns(self) -> Turns:
        return turns_of(self.peers)

    def _able(self, unit: Unit) -> frozenset[str]:
        """The nodes that can be master of all instances of *unit*; if there is none, of any."""
        return _common(self._kind(unit).eligible(self._nodes))

    def _up_for(self, kind: "_Kind") -> frozenset[str]:
        """Those that are up, and not drained; if all that are up are drained, those that were drained last."""
        alive = {family: each - self.dead for family, each in self._nodes.items()}
        return _common([undrained_among(each, self._turns) for each in kind.eligible(alive)])

    def _kind(self, unit: Unit) -> "_Kind":
        lacking = lacking_of(self.peers, unit.interfaces()) if self._is_any_lacking else frozenset[str]()
        return _Kind(unit.families, unit.endpoints, lacking)

    @cached_property
    def _is_any_lacking(self) -> bool:
        return any(peer.lacking for peer in self.peers)

    def _order(self, unit: Unit, home: str = "") -> "_Order":
        return _Order(seed_of(self.group, unit.name), levels_of(self.peers, unit.preferred), home)

    def _first_nodes(self, units: Collection[Unit], homes: Mapping[str, str]) -> Mapping[str, str]:
        """The node that ranks first for each of *units*; "" if none is up."""
        leads = self.leads(units, homes, dead=self.dead)
        levels = {preferred: levels_of(self.peers, preferred) for preferred in {unit.preferred for unit in units}}
        kinds = {unit.name: self._kind(unit) for unit in units}
        able = {kind: self._up_for(kind) for kind in set(kinds.values())}
        return {
            unit.name: self.memory.last(
                _Order.first,
                unit.name,
                _Order(seed_of(self.group, unit.name), levels[unit.preferred], homes.get(unit.name, "")),
                able[kinds[unit.name]],
                leads.get(unit.name, ()),
            )
            for unit in units
        }


class _Order(NamedTuple):
    """The order of the nodes of one unit."""

    seed: str
    levels: Mapping[str, int]
    home: str = ""

    def first(self, nodes: Collection[str], lead: Lead = ()) -> str:
        """The one of *nodes* that ranks first, those of *lead* before all others; "" if there is none."""
        ranked = max(nodes, key=lambda node: rank(self.seed, node, self.levels, self.home), default="")
        return next((node for node in lead if node in nodes), ranked)


class _Kind(NamedTuple):
    """What the nodes that can be master of a unit depend on; those *lacking* do not have its interfaces."""

    families: tuple[int, ...]
    endpoints: frozenset[str]
    lacking: frozenset[str]

    def eligible(self, nodes: Mapping[int, frozenset[str]]) -> list[frozenset[str]]:
        """For each family, those of *nodes* that can be master of its instance."""
        return [eligible(nodes[family], self.endpoints, self.lacking) for family in self.families]


def _common(some: Sequence[frozenset[str]]) -> frozenset[str]:
    """The nodes in all of *some*; if there is none, those in any."""
    return frozenset.intersection(*some) or frozenset.union(*some) if some else frozenset()


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

    def fewest(self, unit: Unit, order: _Order, nodes: Collection[str]) -> str:
        """The one of *nodes* for the new *unit*; "" if there is none."""
        return min(nodes, key=lambda node: (*self._of(unit, node), -weight(order.seed, node), node), default="")

    def _of(self, unit: Unit, node: str) -> tuple[int, int, int]:
        """What *node* is first for: VIPs of the same Service in this family and in both, and all units."""
        service = unit.spread
        if not service:
            return 0, 0, self._all[node]
        return self._of_family[service, unit.families, node], self._of_service[service, node], self._all[node]
