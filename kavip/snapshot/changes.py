"""
What has changed in a Snapshot beside the object that was put or dropped; each change is taken once.

The keys that such a change concerns do not follow from the object alone (:mod:`kavip.reconcile.enqueue`).
"""

from collections.abc import Iterable

from kavip.ipam.ranges import Range, merged


class Changes:
    """The changes since they were last taken."""

    def __init__(self) -> None:
        """Start without any."""
        self._nodes: set[str] = set()
        self._ranges: list[Range] = []

    def add_node(self, key: str) -> None:
        """Node *key* has got or lost own addresses without a change of its object."""
        self._nodes.add(key)

    def add_ranges(self, ranges: Iterable[Range]) -> None:
        """The VIPs in *ranges* are announced on another interface, or with other routes or detection."""
        self._ranges = merged((*self._ranges, *ranges))

    def drain_nodes(self) -> set[str]:
        """Take the nodes."""
        taken, self._nodes = self._nodes, set()
        return taken

    def drain_ranges(self) -> list[Range]:
        """Take the ranges, sorted and disjoint."""
        taken, self._ranges = self._ranges, []
        return taken

    def forget(self) -> None:
        """Drop all: a replica that does not lead requeues nothing."""
        self._nodes.clear()
        self._ranges.clear()
