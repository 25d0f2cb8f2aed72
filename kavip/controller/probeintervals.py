"""
How long a node waits for the next probe: about a second, and less while it is awaited, within what a leader can spend.

A request costs the leader about a millisecond of CPU time, whatever the answer is. So the time between two probes of a
node grows with the number of nodes that are asked: of all nodes, or of those that are awaited.
"""

from typing import Final

RATE: Final = 100
"""Requests per second to all nodes of all groups together, while each node waits :data:`LONGEST` at most."""
LONGEST: Final = 1.5
"""Seconds between two probes that :data:`RATE` does not exceed: two seconds without a master may be a fault."""
MOST_RATE: Final = 400
"""Requests per second above which each node waits longer than :data:`LONGEST`."""
QUICK: Final = 0.2
"""Seconds between quick probes; a new configuration is in a pod's mount after 0.4 to 0.9 s."""
_QUICK_PROBES: Final = 15  # probes at that interval before it grows
_SLOWER: Final = 1.5


def ordinary(least: float, *, nodes: int) -> float:
    """The seconds between two probes of a node when no change is awaited; *least*: the setting; *nodes*: in all."""
    return max(least, min(nodes / RATE, LONGEST), nodes / MOST_RATE)


def awaited(least: float, *, nodes: int, waiting: int, times: int) -> float:
    """The same of a node that is awaited, as *waiting* nodes are in all, after it was asked *times* times."""
    quick = max(QUICK * _SLOWER ** max(0, times - _QUICK_PROBES), waiting / RATE)
    return min(ordinary(least, nodes=nodes), quick)


def between_bursts(least: float, *, nodes: int) -> float:
    """The least seconds between two times at which a group is asked at once because a node has changed."""
    return max(QUICK, min(nodes / RATE, ordinary(least, nodes=nodes)))
