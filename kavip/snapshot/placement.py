"""
On which nodes the pods of a group run.

Every plan of a Service asks for the nodes of its group, so they are computed once until a Node changes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.api.scheduling import placement_key, placement_of

_MAX_CACHED: Final = 256


class GroupNodes(NamedTuple):
    """The *nodes* of a group's DaemonSet, the *ready* ones, and the nodes that *keep* an existing pod; by name."""

    nodes: tuple[Node, ...]
    ready: tuple[str, ...]
    keeping: frozenset[str]


class GroupNodesIndex:
    """The :class:`GroupNodes` among *nodes*, by placement."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """Compute nothing yet."""
        self._nodes = nodes
        self._known: dict[object, GroupNodes] = {}

    def clear(self) -> None:
        """A node has changed."""
        self._known.clear()

    def of(self, spec: GroupSpec) -> GroupNodes:
        """The nodes of a stored group with *spec*; the result is kept."""
        key = placement_key(spec)
        if (found := self._known.get(key)) is None:
            if len(self._known) >= _MAX_CACHED:  # groups that are edited leave results behind
                self._known.clear()
            found = self._known[key] = self.compute(spec)
        return found

    def compute(self, spec: GroupSpec) -> GroupNodes:
        """The nodes of a group with *spec*, such as one under review: nothing of it is kept."""
        placement = placement_of(spec)
        fitting = [node for _, node in sorted(self._nodes.items()) if placement.fits(node)]
        nodes = tuple(filter(placement.admits, fitting))
        ready = tuple(node.metadata.name for node in nodes if node.is_ready)
        return GroupNodes(nodes, ready, frozenset(node.metadata.name for node in fitting if placement.keeps(node)))
