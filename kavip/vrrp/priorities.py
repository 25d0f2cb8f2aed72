"""
The node that should hold each instance: rendezvous hashing.

Every node draws a weight for each instance, and the node with the highest weight leads. So instances are spread over
the nodes, those of a dead node over the remaining ones, and a new node takes over only those that it leads. Weights
become VRRP priorities in a fixed band, in the order of weight:

* The order of two nodes never depends on a third. A priority changes only if two weights give the same number and
  must be made different, and then by one for each node that comes or goes. That is rare, and never enough to make nodes
  with the old text and nodes with the new one disagree on the order after one node has come.
* Neighbours in the order usually have very different priorities, so after a death the second and the third node do not
  both become master.
* The band ends below 255, which has a special meaning in keepalived. It is as wide as the space below it: a check that
  lowers a priority by :data:`STEP_DOWN` puts a node behind all healthy nodes and keeps the order of the others.

Nodes that are preferred (:mod:`kavip.vrrp.preference`) rank before all others, in the order of their preference; those
of equal preference in the order of weight. So a node that joins still moves instances only to itself.

A node that is the home of an instance (:mod:`kavip.vrrp.homes`) ranks before all others of equal preference.

A Service that asks for spread names the nodes that rank first and second (:mod:`kavip.vrrp.spread`). They get the
highest numbers, and the other nodes keep their order behind them.

A drained node (:mod:`kavip.vrrp.drain`) gets a number at the bottom of the band, and the others keep theirs. So
keepalived is reloaded on that node only, and its VIPs move as after its death, but while it still answers: straight to
the node that ranks next. If the others' numbers changed too, the node that is reloaded first could take a VIP from the
one that ranks before it, and give it back. Of several drained nodes the one that was drained last ranks first, so those
that were drained before keep their numbers too.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

TOP: Final = 250
STEP_DOWN: Final = 100
BOTTOM: Final = TOP - STEP_DOWN + 1
UNLISTED: Final = 1
"""The priority of a node that a text does not list: below all others."""

WEIGHT_BITS: Final = 64

NO_PREFERENCE: Final[Mapping[str, int]] = MappingProxyType({})
NO_HOMES: Final[Mapping[str, str]] = MappingProxyType({})


def priorities(
    instance: str,
    nodes: Iterable[str],
    *,
    lead: Sequence[str] = (),
    preference: Mapping[str, int] = NO_PREFERENCE,
    behind: Mapping[str, int] = NO_PREFERENCE,
    home: str = "",
) -> tuple[tuple[str, int], ...]:
    """
    The priority of each of *nodes* for *instance*, sorted by node.

    Those of *lead* rank first, in this order, then those with a higher *preference*; a node without one has 0. Of equal
    ones, the *home* ranks first. Those *behind* rank last: the higher the number, the further back.
    The first :data:`STEP_DOWN` nodes have distinct priorities; all later ones share the bottom of the band.
    """
    preferred = sorted(set(nodes), key=lambda node: rank(instance, node, preference, home), reverse=True)
    weights = sorted((weight(instance, node) for node in preferred), reverse=True)
    first = [node for node in lead if node in preferred]
    order = [*first, *(node for node in preferred if node not in first)]
    distinct = min(len(order), STEP_DOWN)
    others_first = sorted(order, key=lambda node: behind.get(node, 0))  # keeps the order otherwise
    lowest = {node: BOTTOM + max(0, distinct - 1 - place) for place, node in enumerate(others_first)}
    result: dict[str, int] = {}
    above = TOP + 1
    for node, number in zip(order, weights, strict=True):
        drawn = BOTTOM + (number * STEP_DOWN >> WEIGHT_BITS)
        above = max(min(drawn, above - 1), lowest[node])  # leaves a number for each node that ranks behind
        result[node] = lowest[node] if node in behind else above
    return tuple(sorted(result.items()))


def rank(instance: str, node: str, preference: Mapping[str, int], home: str) -> tuple[int, bool, int, str]:
    """What orders the nodes of *instance* without a lead: the node with the highest one is the first."""
    return preference.get(node, 0), node == home, weight(instance, node), node


def seed_of(group: str, unit: str) -> str:
    """The seed from which the priorities of the instances of *unit* in *group* are drawn."""
    return f"{group} {unit}"


@lru_cache(8192)
def weight(instance: str, node: str) -> int:
    """The weight that *node* draws for *instance*."""
    return int.from_bytes(hashlib.sha256(f"{instance}\n{node}".encode()).digest()[: WEIGHT_BITS // 8])
