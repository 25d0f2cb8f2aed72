"""
Which node is to hold an instance: rendezvous hashing.

Every node draws a weight per instance; the heaviest leads. So instances spread over the nodes, a dead node's instances
spread over the others, and a new node takes over only those that it leads. Weights become VRRP priorities in a fixed
band, in the order of weight:

* The order of two nodes never depends on a third. A priority itself changes only where weights fall on one number and
  have to be told apart, and by one for each node that comes or goes: rare, and never enough for one node's coming to
  make nodes with the old and with the new text disagree on the order.
* Neighbours in the order are usually far apart, so after a death the second and the third do not both become master.
* The band ends below 255, which keepalived gives a meaning of its own, and it is as wide as the space below it: a check
  that lowers a priority by :data:`STEP_DOWN` puts a node behind all that are well, and the order stays.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

TOP: Final = 250
STEP_DOWN: Final = 100
BOTTOM: Final = TOP - STEP_DOWN + 1
UNLISTED: Final = 1
"""The priority of a node that a text does not name: it lets all others go first."""

_WEIGHT_BYTES: Final = 8


def priorities(instance: str, nodes: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """
    The priority of each of *nodes* for *instance*, sorted by node.

    Distinct for the first :data:`STEP_DOWN` nodes; those that rank behind share the bottom of the band.
    """
    ranked = sorted(((_weight(instance, node), node) for node in set(nodes)), reverse=True)
    seats = min(len(ranked), STEP_DOWN)
    result: dict[str, int] = {}
    above = TOP + 1
    for rank, (weight, node) in enumerate(ranked):
        drawn = BOTTOM + (weight * STEP_DOWN >> 8 * _WEIGHT_BYTES)
        room_below = BOTTOM + max(0, seats - 1 - rank)  # leaves a number for each that ranks behind
        above = max(min(drawn, above - 1), room_below)
        result[node] = above
    return tuple(sorted(result.items()))


def _weight(instance: str, node: str) -> int:
    digest = hashlib.sha256(f"{instance}\n{node}".encode()).digest()
    return int.from_bytes(digest[:_WEIGHT_BYTES])
