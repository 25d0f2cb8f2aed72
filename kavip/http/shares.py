"""
Fair shares of the connections of a port: which connection a new one displaces. All servers of kavip use it.

The connections of a port form a tree: each has a path, for example the kind of its sender, and then the sender. On each
level of the tree the branches have equal shares (max-min fairness). The connection that is displaced is one of the
largest branch, and there of the largest branch of the next level. So a branch that needs less than its share keeps all
that it has, and the others divide the rest. A new connection displaces none of a branch that is smaller than its own.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import groupby
from typing import Protocol, TypeVar

Path = tuple[Hashable, ...]


class Occupant(Protocol):
    """A connection that has, or wants, one of the connections of a port; all paths of a port have the same length."""

    @property
    def path(self) -> Path:
        """Its place in the tree."""


C = TypeVar("C", bound=Occupant)
Rank = Callable[[C], float | None]
"""The order in which connections of one branch are displaced, lowest first; None: this one is not displaced."""


def network_of(address: IPv4Address | IPv6Address) -> bytes:
    """What counts as one sender: an IPv4 address, or a /64 of IPv6, because one machine may own all its addresses."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed[:8]


def sender_of(peer: str) -> bytes:
    """The sender for the address of a socket's peer, which may have a zone."""
    return network_of(ip_address(peer.partition("%")[0]))


def displaced(taken: Iterable[C], new: Occupant, *, rank: Rank[C]) -> C | None:
    """The one of *taken* (oldest first) that makes room for *new*; None if there is none that may."""
    branches: defaultdict[Path, list[C]] = defaultdict(list)
    for each in taken:
        branches[each.path].append(each)
    size = _sizes({path: len(members) for path, members in branches.items()})
    size.update(prefixes(new.path))

    def largest_first(path: Path) -> list[int]:
        return [-size[prefix] for prefix in prefixes(path)]

    for _, tied in groupby(sorted(branches, key=largest_first), key=largest_first):
        ranked = ((order, each) for path in tied for each in branches[path] if (order := rank(each)) is not None)
        found = min(ranked, key=lambda pair: pair[0], default=None)
        if found is not None:
            return None if _is_smaller(found[1].path, new.path, size) else found[1]
    return None


def fewest(waiting: Iterable[C], taken: Iterable[Occupant]) -> C:
    """The one of *waiting* (oldest first, at least one) whose branches have the fewest of *taken*."""
    size = _sizes(Counter(each.path for each in taken))
    return min(waiting, key=lambda each: [size[prefix] for prefix in prefixes(each.path)])


def _sizes(members: dict[Path, int]) -> Counter[Path]:
    """The number of connections of each branch, from those of each path."""
    size = Counter[Path]()
    for path, count in members.items():
        for prefix in prefixes(path):
            size[prefix] += count
    return size


def prefixes(path: Path) -> list[Path]:
    """The branches of *path*, from the root."""
    return [path[:length] for length in range(1, len(path) + 1)]


def _is_smaller(path: Path, than: Path, size: Counter[Path]) -> bool:
    """Whether the branch of *path* is smaller than that of *than*, on the level where the two part."""
    pairs = zip(prefixes(path), prefixes(than), strict=True)
    return next((size[one] < size[other] for one, other in pairs if one != other), False)
