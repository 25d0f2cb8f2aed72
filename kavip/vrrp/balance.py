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
from kavip.vrrp.spread import Lead
from kavip.vrrp.units import Unit

_NAME: Final = attrgetter("name")


@dataclass(frozen=True, slots=True)
class PlacedUnits:
    """
    The *names* of the units that run, and the *homes* of units, by name.

    *holders*: if nothing is known of what runs, the node that is master, by unit.
    """

    names: frozenset[str] = frozenset()
    homes: Mapping[str, str] = field(default_factory=lambda: NO_HOMES)
    holders: Mapping[str, str] = field(default_factory=lambda: NO_HOMES)


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
    old: list[Unit] = []
    new: list[Unit] = []
    for unit in sorted(units, key=_NAME):
        (old if unit.name in placed.names or unit.name in homes else new).append(unit)
    if not new:
        return homes
    nodes = nodes_of(peers, unicast=unicast)
    loads = _Loads(nodes, away=dead | drained_of(peers))
    leads = leads_of(group, old, peers, unicast=unicast, dead=dead, homes=homes, memory=memory)
    for unit in old:
        order = _Order(seed_of(group, unit.name), levels_of(peers, unit.preferred), homes.get(unit.name, ""))
        able, lead = loads.able(unit), leads.get(unit.name, ())
        loads.add(unit, memory.last(_first, unit.name, order, able, lead))
    for unit in new:
        order = _Order(seed_of(group, unit.name), levels_of(peers, unit.preferred))
        holder = placed.holders.get(unit.name, "")
        node = holder if holder in loads.able(unit) else loads.fewest(unit, order)
        loads.add(unit, node)
        if node != _first(order, _common(unit, nodes)):
            homes[unit.name] = node
    return homes


class _Order(NamedTuple):
    """The order of the nodes of one unit, as in :func:`kavip.vrrp.priorities.priorities`."""

    seed: str
    levels: Mapping[str, int]
    home: str = ""

    def rank(self, node: str) -> tuple[int, bool, int, str]:
        """The higher of two nodes ranks first."""
        return self.levels.get(node, 0), node == self.home, weight(self.seed, node), node


def _first(order: _Order, nodes: Collection[str], lead: Lead = ()) -> str:
    """The one of *nodes* that ranks first; "" if there is none."""
    return next((node for node in lead if node in nodes), "") or max(nodes, key=order.rank, default="")


def _common(unit: Unit, nodes: Mapping[int, frozenset[str]]) -> frozenset[str]:
    """Those of *nodes*, by family, that can be master of all instances of *unit*; if there is none, of any."""
    some = [with_endpoint(nodes[family], unit) for family in unit.families]
    return frozenset.intersection(*some) or frozenset.union(*some) if some else frozenset()


class _Loads:
    """How many units each node is first for, of *nodes* by family, while some are *away*."""

    def __init__(self, nodes: Mapping[int, frozenset[str]], *, away: frozenset[str]) -> None:
        self._nodes = {family: each - away for family, each in nodes.items()}
        self._all: Counter[str] = Counter()
        self._of_service: Counter[tuple[str, str]] = Counter()
        self._of_family: Counter[tuple[str, tuple[int, ...], str]] = Counter()

    def able(self, unit: Unit) -> frozenset[str]:
        """The nodes that can be master of *unit* now."""
        return _common(unit, self._nodes)

    def add(self, unit: Unit, node: str) -> None:
        """Count *unit* for *node*, which is first for it."""
        self._all[node] += 1
        if unit.spread:
            self._of_service[unit.spread, node] += 1
            self._of_family[unit.spread, unit.families, node] += 1

    def fewest(self, unit: Unit, order: _Order) -> str:
        """The node for the new *unit*; "" if none can be master."""
        nodes = preferred_among(self.able(unit), order.levels)
        return min(nodes, key=lambda node: (*self._of(unit, node), -weight(order.seed, node), node), default="")

    def _of(self, unit: Unit, node: str) -> tuple[int, int, int]:
        """What *node* is first for: VIPs of the same Service in this family and in both, and all units."""
        service = unit.spread
        if not service:
            return 0, 0, self._all[node]
        return (
            self._of_family[service, unit.families, node],
            self._of_service[service, node],
            self._all[node],
        )
