"""
On which nodes the pods of a group are.

Every plan of a Service asks for the nodes of its group: they are looked for again after a Node's change.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.api.scheduling import place_of, placement_of

_MOST: Final = 256


class Crew(NamedTuple):
    """The *nodes* for which a group's pods are made, which are *ready*, and which *keep* those that are there."""

    nodes: tuple[Node, ...]
    ready: tuple[str, ...]
    keeping: frozenset[str]


class Crews:
    """The crews among *nodes*, by where pods may be."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """Nothing is known yet."""
        self._nodes = nodes
        self._known: dict[object, Crew] = {}

    def forget(self) -> None:
        """A node is another."""
        self._known.clear()

    def of(self, spec: GroupSpec) -> Crew:
        """The crew of a group with *spec*, sorted by name."""
        key = place_of(spec)
        if (found := self._known.get(key)) is None:
            placement, every = placement_of(spec), [node for _, node in sorted(self._nodes.items())]
            nodes = tuple(filter(placement.admits, every))
            ready = tuple(node.metadata.name for node in nodes if node.is_ready)
            found = Crew(nodes, ready, frozenset(node.metadata.name for node in every if placement.keeps(node)))
            if len(self._known) >= _MOST:  # reviews may ask for any
                self._known.clear()
            self._known[key] = found
        return found
