"""
The nodes of a Service's VIPs, chosen together: no node has more of them than it must.

The hash order (:mod:`kavip.vrrp.priorities`) decides for each VIP alone, so two VIPs of a Service may rank the same
node first. Where a Service asks for spread, this module names the nodes that rank first and second instead:

* No node is first for more than ceil(VIPs / nodes) VIPs, counted for each family and for both together.
* If one node dies, no other node has more than ceil(VIPs / (nodes - 1)). keepalived alone keeps this bound.
* Only preferred nodes count as nodes while there is one (:mod:`kavip.vrrp.preference`).
* Of all choices within the bounds, those with the highest levels of preference are taken, then those with the fewest
  changes to the order of each VIP, and of these the one with the highest weights. A VIP whose order may stay has no
  entry.

When more nodes are *dead* than the order provides for, the fewest VIPs that restore the bound for the others
get one of them in front.

The result depends only on the VIPs of the Service and on its nodes. So nothing has to be remembered, and no other
Service matters. If some nodes have no address of one family, the bound for both families together may be out of reach.
Then the lowest possible bound replaces it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.vrrp import flow
from kavip.vrrp.flow import Item, Room
from kavip.vrrp.preference import preferred_among
from kavip.vrrp.priorities import NO_HOMES, NO_PREFERENCE, WEIGHT_BITS, rank, weight

Lead = tuple[str, ...]
"""The nodes that rank before all others; empty: the hash order decides."""

_COST_BITS: Final = 32
_MOVED: Final = 1 << (_COST_BITS + 8)
"""The cost of one change to the order: more than all losses of weight together."""
_LOWER: Final = 1 << (_COST_BITS + 16)
"""The cost of a node that is one level lower: more than all changes together."""

NO_HOLDERS: Final[Mapping["SpreadVIP", str]] = MappingProxyType({})

Nodes = Mapping[int, frozenset[str]]
"""Nodes by family."""


class SpreadVIP(NamedTuple):
    """One VIP: the *seed* of its hash order, and its *family*."""

    seed: str
    family: int


def leads(
    vips: Iterable[SpreadVIP],
    nodes: Mapping[int, Collection[str]],
    dead: frozenset[str] = frozenset(),
    levels: Mapping[str, int] = NO_PREFERENCE,
    homes: Mapping[str, str] = NO_HOMES,
) -> Mapping[str, Lead]:
    """
    The nodes that rank before all others for the *vips* of one Service, by seed.

    *nodes*: by family, those that may hold a VIP; those of them that are *dead* keep their place for their return.
    Their *levels* say which of them are preferred. *homes*: by seed, the node that ranks first of its level. A VIP
    whose order may stay is absent.
    """
    every, order = {family: frozenset(some) for family, some in nodes.items()}, _Order(levels, homes)
    placed = sorted(vip for vip in set(vips) if every.get(vip.family))
    first = order.place(placed, order.eligible(every), held={})
    second: dict[SpreadVIP, str] = {}
    for lost in sorted(set(first.values())):
        left = order.eligible({family: some - {lost} for family, some in every.items()})
        alive = [vip for vip in placed if left[vip.family]]
        second |= order.place(alive, left, held={vip: first[vip] for vip in alive if first[vip] != lost})
    found: dict[SpreadVIP, Lead] = {}
    for vip in placed:
        lead = tuple(places[vip] for places in (first, second) if vip in places)
        if lead != tuple(order.best(vip, every[vip.family], len(lead))):
            found[vip] = lead
    found |= _repaired(placed, every, dead, found, order) if dead else {}
    return {vip.seed: lead for vip, lead in found.items()}


def most(vips: int, nodes: int) -> int:
    """How many of *vips* one of *nodes* may have."""
    return -(-vips // nodes)


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of the nodes of a VIP without spread: by *levels*; of one level, its home first, then by hash."""

    levels: Mapping[str, int]
    homes: Mapping[str, str]

    def eligible(self, nodes: Nodes) -> Nodes:
        """Those of *nodes* over which VIPs are spread: preferred ones while there are any."""
        return {family: preferred_among(some, self.levels) for family, some in nodes.items()}

    def best(self, vip: SpreadVIP, nodes: Collection[str], count: int) -> list[str]:
        """The first *count* of *nodes*."""
        home = self.homes.get(vip.seed, "")
        return nlargest(count, nodes, key=lambda node: rank(vip.seed, node, self.levels, home))

    def place(
        self,
        vips: Sequence[SpreadVIP],
        nodes: Nodes,
        *,
        held: Mapping[SpreadVIP, str],
        holders: Mapping[SpreadVIP, str] = NO_HOLDERS,
    ) -> dict[SpreadVIP, str]:
        """
        The nodes of those of *vips* that are not *held* already; the bounds count all of them.

        A VIP stays on its node in *holders* if it can, by default on the first one of its order.
        """
        wanted = [vip for vip in vips if vip not in held]
        items = [self._item(vip, nodes[vip.family], len(vips), holders.get(vip, "")) for vip in wanted]
        all_nodes = frozenset[str]().union(*(nodes[vip.family] for vip in vips))
        bounds = {family: most(count, len(nodes[family])) for family, count in _by_family(vips).items()}
        loads = {node: _by_family(vip for vip, holder in held.items() if holder == node) for node in set(held.values())}
        found: tuple[str, ...] | None = None if wanted else ()
        total = most(len(vips), len(all_nodes)) if wanted else 0
        while found is None:  # ends at the latest when *total* is the number of VIPs: each family alone fits
            rooms = {node: _room(total, bounds, loads.get(node, Counter())) for node in all_nodes}
            found, total = flow.assign(items, rooms), total + 1
        return dict(zip(wanted, found, strict=True))

    def _item(self, vip: SpreadVIP, nodes: Collection[str], count: int, holder: str) -> Item:
        """
        *vip* with its *holder* and its best nodes.

        As many of these as there are VIPs suffice, because the other VIPs can fill at most one less.
        """
        best = self.best(vip, nodes, count)
        costs = {node: self._loss(vip, best[0], node) + _MOVED for node in best}
        return Item(vip.family, {**costs, holder or best[0]: 0})

    def _loss(self, vip: SpreadVIP, best: str, node: str) -> int:
        """The cost of *node* in place of *best*, in levels and in weight."""
        lower = self.levels.get(best, 0) - self.levels.get(node, 0)
        lighter = weight(vip.seed, best) - weight(vip.seed, node)
        return lower * _LOWER + (lighter >> (WEIGHT_BITS - _COST_BITS))


def _repaired(
    vips: Sequence[SpreadVIP], nodes: Nodes, dead: frozenset[str], found: Mapping[SpreadVIP, Lead], order: _Order
) -> dict[SpreadVIP, Lead]:
    """The leads of those of *vips* that must move to restore the bounds while nodes are *dead*."""
    alive = order.eligible({family: some - dead for family, some in nodes.items()})
    holders = {
        vip: next(node for node in (*found.get(vip, ()), best) if node not in dead)
        for vip in vips
        for best in order.best(vip, alive[vip.family], 1)
    }
    places = order.place(sorted(holders), alive, held={}, holders=holders)
    moved = {vip: node for vip, node in places.items() if node != holders[vip]}
    return {vip: tuple(dict.fromkeys((node, *found.get(vip, ())))) for vip, node in moved.items()}


def _room(total: int, bounds: Mapping[int, int], load: Counter[int]) -> Room:
    return Room(
        max(0, total - load.total()), {family: max(0, bound - load[family]) for family, bound in bounds.items()}
    )


def _by_family(vips: Iterable[SpreadVIP]) -> Counter[int]:
    return Counter(vip.family for vip in vips)
