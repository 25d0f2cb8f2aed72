"""
The cheapest assignment of items to places with limited room: a minimum-cost flow by successive shortest paths.

Room is limited in two levels: a place takes a number of items in total, and a number of each kind. Each item names the
places that it may have, each with its cost.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SOURCE: Final = 0
SINK: Final = 1


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a *kind*, and the *costs* of the places that it may have."""

    kind: int
    costs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Room:
    """How many items one place takes: *total*, and by *kind*; a kind that is absent has no limit of its own."""

    total: int
    kinds: Mapping[int, int]


def assign(items: Sequence[Item], room: Mapping[str, Room], network: "Network | None" = None) -> tuple[str, ...] | None:
    """
    The place of each of *items*, of all assignments within the *room* the cheapest; None: there is none.

    The time is polynomial: for each item one search for a shortest path, in a graph with an edge for each cost.
    """
    network = Network() if network is None else network
    kinds: dict[tuple[str, int], int] = {}
    for place in sorted({place for item in items for place in item.costs} & room.keys()):
        total = network.add_vertex()
        network.add_edge(total, SINK, room[place].total, 0)
        for kind in sorted({item.kind for item in items}):
            kinds[place, kind] = network.add_vertex()
            limit = room[place].kinds.get(kind, room[place].total)
            network.add_edge(kinds[place, kind], total, limit, 0)
    edges: list[dict[str, int]] = []
    for item in items:
        vertex = network.add_vertex()
        network.add_edge(SOURCE, vertex, 1, 0)
        edges.append(
            {
                place: network.add_edge(vertex, kinds[place, item.kind], 1, cost)
                for place, cost in sorted(item.costs.items())
                if place in room
            }
        )
    if not all(network.augment() for _ in items):
        return None
    return tuple(next(place for place, edge in some.items() if not network.room[edge]) for some in edges)


@dataclass(slots=True)
class Network:
    """
    A residual network: edge 2n and its reverse 2n + 1.

    *ends*, *room* and *costs* are by edge, *leaving* are the edges by vertex. *steps* counts the edges that were looked
    at.
    """

    ends: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    leaving: list[list[int]] = field(default_factory=lambda: [[], []])
    steps: int = 0

    def add_vertex(self) -> int:
        """A new vertex."""
        self.leaving.append([])
        return len(self.leaving) - 1

    def add_edge(self, start: int, end: int, room: int, cost: int) -> int:
        """A new edge."""
        edge = len(self.ends)
        self.ends += (end, start)
        self.room += (room, 0)
        self.costs += (cost, -cost)
        self.leaving[start].append(edge)
        self.leaving[end].append(edge + 1)
        return edge

    def augment(self) -> bool:
        """Send one more unit along the cheapest path; return whether there is a path."""
        arrived: dict[int, int] = {}
        cheapest: dict[int, int] = {SOURCE: 0}
        waiting = deque([SOURCE])
        queued = {SOURCE}
        while waiting:
            vertex = waiting.popleft()
            queued.discard(vertex)
            for edge in self.leaving[vertex]:
                self.steps += 1
                end, cost = self.ends[edge], cheapest[vertex] + self.costs[edge]
                if not self.room[edge] or (end in cheapest and cheapest[end] <= cost):
                    continue
                cheapest[end], arrived[end] = cost, edge
                if end not in queued and end != SINK:
                    queued.add(end)
                    waiting.append(end)
        if SINK not in arrived:
            return False
        vertex = SINK
        while vertex != SOURCE:
            edge = arrived[vertex]
            self.room[edge] -= 1
            self.room[edge ^ 1] += 1
            vertex = self.ends[edge ^ 1]
        return True
