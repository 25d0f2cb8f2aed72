"""
The nodes of a Service's VIPs, chosen together: no node has more of them than it must.

The hash order (:mod:`kavip.vrrp.priorities`) decides for each VIP alone, so two VIPs of a Service may rank the same
node first. Where a Service asks for spread, this module names the nodes that rank first and second instead:

* No node is first for more than ceil(VIPs / nodes) VIPs, counted for each family and for both together.
* If one node dies, no other node has more than ceil(VIPs / (nodes - 1)). keepalived alone keeps this bound.
* Of all choices within the bounds, those with the fewest changes to the hash order are taken, and of these the one with
  the highest weights. A VIP whose hash order may stay has no entry.

When more nodes are *dead* than the order provides for, the fewest VIPs that restore the bound for the others
get one of them in front.

The result depends only on the VIPs of the Service and on its nodes. So nothing has to be remembered, and no other
Service matters. If some nodes have no address of one family, the bound for both families together may be out of reach.
Then the lowest possible bound replaces it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.vrrp import flow
from kavip.vrrp.flow import Item, Room
from kavip.vrrp.priorities import WEIGHT_BITS, weight

Lead = tuple[str, ...]
"""The nodes that rank before all others; empty: the hash order decides."""

_COST_BITS: Final = 32
_MOVED: Final = 1 << (_COST_BITS + 8)
"""The cost of one change to the hash order: more than all losses of weight together."""

NO_PREFERENCE: Final[Mapping["SpreadVIP", str]] = MappingProxyType({})


class SpreadVIP(NamedTuple):
    """One VIP: the *seed* of its hash order, and its *family*."""

    seed: str
    family: int


def leads(
    vips: Iterable[SpreadVIP], nodes: Mapping[int, Collection[str]], dead: frozenset[str] = frozenset()
) -> Mapping[str, Lead]:
    """
    The nodes that rank before all others for the *vips* of one Service, by seed.

    *nodes*: by family, those that may hold a VIP; those of them that are *dead* keep their place for their return. A
    VIP whose hash order may stay is absent.
    """
    eligible = {family: frozenset(some) for family, some in nodes.items()}
    placed = sorted(vip for vip in set(vips) if eligible.get(vip.family))
    first = _place(placed, eligible, held={})
    second: dict[SpreadVIP, str] = {}
    for lost in sorted(set(first.values())):
        left = {family: some - {lost} for family, some in eligible.items()}
        alive = [vip for vip in placed if left[vip.family]]
        second |= _place(alive, left, held={vip: first[vip] for vip in alive if first[vip] != lost})
    found: dict[SpreadVIP, Lead] = {}
    for vip in placed:
        lead = tuple(places[vip] for places in (first, second) if vip in places)
        if lead != tuple(_best(vip, eligible[vip.family], len(lead))):
            found[vip] = lead
    found |= _repaired(placed, eligible, dead, found) if dead else {}
    return {vip.seed: lead for vip, lead in found.items()}


def most(vips: int, nodes: int) -> int:
    """How many of *vips* one of *nodes* may have."""
    return -(-vips // nodes)


def _repaired(
    vips: Sequence[SpreadVIP],
    nodes: Mapping[int, frozenset[str]],
    dead: frozenset[str],
    found: Mapping[SpreadVIP, Lead],
) -> dict[SpreadVIP, Lead]:
    """The leads of those of *vips* that must move to restore the bounds while nodes are *dead*."""
    alive = {family: some - dead for family, some in nodes.items()}
    holders = {
        vip: next(node for node in (*found.get(vip, ()), best) if node not in dead)
        for vip in vips
        for best in _best(vip, alive[vip.family], 1)
    }
    places = _place(sorted(holders), alive, held={}, preferred=holders)
    moved = {vip: node for vip, node in places.items() if node != holders[vip]}
    return {vip: tuple(dict.fromkeys((node, *found.get(vip, ())))) for vip, node in moved.items()}


def _place(
    vips: Sequence[SpreadVIP],
    nodes: Mapping[int, frozenset[str]],
    *,
    held: Mapping[SpreadVIP, str],
    preferred: Mapping[SpreadVIP, str] = NO_PREFERENCE,
) -> dict[SpreadVIP, str]:
    """
    The nodes of those of *vips* that are not *held* already; the bounds count all of them.

    A VIP stays on its *preferred* node if it can, by default on the first one of its hash order.
    """
    wanted = [vip for vip in vips if vip not in held]
    items = [_item(vip, nodes[vip.family], len(vips), preferred.get(vip, "")) for vip in wanted]
    all_nodes = frozenset[str]().union(*(nodes[vip.family] for vip in vips))
    bounds = {family: most(count, len(nodes[family])) for family, count in _by_family(vips).items()}
    loads = {node: _by_family(vip for vip, holder in held.items() if holder == node) for node in set(held.values())}
    found: tuple[str, ...] | None = None if wanted else ()
    total = most(len(vips), len(all_nodes)) if wanted else 0
    while found is None:  # ends at the latest when *total* is the number of VIPs: each family alone fits
        rooms = {node: _room(total, bounds, loads.get(node, Counter())) for node in all_nodes}
        found, total = flow.assign(items, rooms), total + 1
    return dict(zip(wanted, found, strict=True))


def _item(vip: SpreadVIP, nodes: Collection[str], count: int, preferred: str) -> Item:
    """
    *vip* with its *preferred* node and its best nodes.

    As many of these as there are VIPs suffice, because the other VIPs can fill at most one less.
    """
    best = _best(vip, nodes, count)
    top, stay = weight(vip.seed, best[0]), preferred or best[0]
    loss = {node: (top - weight(vip.seed, node)) >> (WEIGHT_BITS - _COST_BITS) for node in best}
    return Item(vip.family, {**{node: loss[node] + _MOVED for node in best}, stay: 0})


def _room(total: int, bounds: Mapping[int, int], load: Counter[int]) -> Room:
    return Room(
        max(0, total - load.total()), {family: max(0, bound - load[family]) for family, bound in bounds.items()}
    )


def _best(vip: SpreadVIP, nodes: Collection[str], count: int) -> list[str]:
    """The first *count* of *nodes* in the hash order of *vip*."""
    return nlargest(count, nodes, key=lambda node: (weight(vip.seed, node), node))


def _by_family(vips: Iterable[SpreadVIP]) -> Counter[int]:
    return Counter(vip.family for vip in vips)
