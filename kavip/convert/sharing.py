"""
Which Services are connected because they share addresses.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kavip.api.address import Address


def sharers(held: Mapping[str, Iterable[Address]]) -> Mapping[str, tuple[str, ...]]:
    """
    For each Service that shares one of the addresses that it has *held*: the Services of its connected set, sorted.

    Services that share different addresses with a third one belong to one set. One that shares none is left out.
    """
    holders: defaultdict[Address, list[str]] = defaultdict(list)
    for key, addresses in sorted(held.items()):
        for address in addresses:
            holders[address].append(key)
    joined: dict[str, frozenset[str]] = {}
    for keys in (each for each in holders.values() if len(each) > 1):
        union = frozenset(keys).union(*(joined.get(key, frozenset()) for key in keys))
        joined |= dict.fromkeys(union, union)
    return {key: tuple(sorted(union)) for key, union in sorted(joined.items())}
