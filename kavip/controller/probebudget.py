"""
How often a node is asked, by what its answers cost.

The cost of an answer is its size: decoding takes time in proportion to it. An answer that is equal to the last one is
not decoded and costs nothing. An honest node sends new answers one after the other only while it takes up a new
configuration or a fail-over goes on, which the burst covers, even at a megabyte each.
"""

from dataclasses import dataclass
from typing import Final

RATE: Final = 256 * 2**10
"""Bytes of new answers per second that are decoded of one node, after the burst."""
RATE_IN_ALL: Final = 4 * 2**20
"""The same of all nodes of all groups together, which have equal shares."""
BURST: Final = 8 * 2**20
"""Bytes of new answers of one node that are decoded at once."""


@dataclass(slots=True)
class ProbeBudget:
    """The bytes that one node has left, as of *at* (monotonic seconds); a negative number is a debt."""

    at: float
    left: float = BURST

    def spend(self, size: int, *, at: float, nodes: int) -> None:
        """An answer of *size* bytes was decoded; *nodes* are asked in all."""
        self._refill(at, nodes)
        self.left -= size

    def delay(self, *, at: float, nodes: int) -> float:
        """The seconds until the node may be asked again."""
        self._refill(at, nodes)
        return max(0.0, -self.left / _rate(nodes))

    def _refill(self, at: float, nodes: int) -> None:
        self.left = min(BURST, self.left + (at - self.at) * _rate(nodes))
        self.at = at


def _rate(nodes: int) -> float:
    return min(RATE, RATE_IN_ALL / max(nodes, 1))
