"""
The fewest moves that balance a group, for a group that asks for it.

A group is balanced if no node ranks first for more than 1.25 times its share of the units. Services come and go, and
nodes join, and no unit moves to restore the balance by itself. The moves that restore it are a minimum-cost
flow (:mod:`kavip.vrrp.flow`): from each node with too many units over those that may move, to the nodes with room. They
fill the nodes with fewest units first. They are in an order in which each finds room on its node, and are made one
after the other.

A unit moves only to nodes that it prefers as much as any that is up. Units of a Service with spread stay, and those
with ``nopreempt``. If preferences allow no balance, what remains is the best that they allow.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kavip.vrrp.flow import SINK, SOURCE, Network

_MOVE: Final = 1 << 20
"""The cost of one move: more than the loads of all nodes together."""


@dataclass(frozen=True, slots=True)
class Balance:
    """
    How well a group is balanced: the *highest* number of units for which one node ranks first, of so many *units*.

    *most*: what a node should rank first for at most. *moves*: units and their new nodes, in order.
    """

    units: int
    most: int
    highest: int
    moves: tuple[tuple[str, str], ...] = ()


def balance_of(firsts: Mapping[str, str], allowed: Mapping[str, frozenset[str]], nodes: Collection[str]) -> Balance:
    """
    The balance of a group and what it takes to restore it.

    *firsts*: the node that ranks first for each unit; of *nodes*, the ones that may hold VIPs, or "". *allowed*: the
    nodes that each unit may move to; a unit that is absent stays.
    """
    loads = Counter(node for node in firsts.values() if node)
    most = -(-5 * loads.total() // (4 * len(nodes))) if nodes else 0
    highest = max(loads.values(), default=0)
    if highest <= most:
        return Balance(loads.total(), most, highest)
    classes: dict[_Class, list[str]] = {}
    for unit, node in sorted(firsts.items()):
        if node and unit in allowed:
            classes.setdefault((node, allowed[unit]), []).append(unit)
    return Balance(loads.total(), most, highest, _in_order(_flow(classes, loads, most, nodes), loads, most))


_Class = tuple[str, frozenset[str]]
"""Units for which one node ranks first, and which may move to the same nodes."""


def _flow(
    classes: Mapping[_Class, list[str]], loads: Counter[str], most: int, nodes: Collection[str]
) -> list[tuple[str, str, str]]:
    """The fewest moves, each a unit, its node and its new node."""
    network = Network()
    vertices = {node: network.add_vertex() for node in sorted({*nodes, *loads})}
    excess = 0
    for node, vertex in vertices.items():
        excess += max(0, loads[node] - most)
        network.add_edge(SOURCE, vertex, max(0, loads[node] - most), 0)
        for load in range(loads[node], most if node in nodes else 0):
            network.add_edge(vertex, SINK, 1, load)
    edges: list[tuple[list[str], str, str, int]] = []
    for (node, allowed), units in sorted(classes.items(), key=lambda each: each[1]):
        middle = network.add_vertex()
        network.add_edge(vertices[node], middle, len(units), 0)
        left = list(units)
        others = sorted(allowed & vertices.keys() - {node})
        edges += [(left, node, other, network.add_edge(middle, vertices[other], len(units), _MOVE)) for other in others]
    while excess and network.augment():
        excess -= 1
    return [(left.pop(), node, other) for left, node, other, edge in edges for _ in range(network.room[edge ^ 1])]


def _in_order(moves: list[tuple[str, str, str]], loads: Counter[str], most: int) -> tuple[tuple[str, str], ...]:
    """*moves* in an order in which each finds room on its new node."""
    loads, ordered = loads.copy(), []
    while moves:
        now = next(each for each in moves if loads[each[2]] < most)
        moves.remove(now)
        unit, node, other = now
        loads[node] -= 1
        loads[other] += 1
        ordered.append((unit, other))
    return tuple(ordered)
