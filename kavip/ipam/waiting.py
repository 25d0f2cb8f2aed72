"""
Who waits for what: Services without (all of) the addresses that they ask for, by pool.

Whoever frees something asks here whom it may help; nobody polls.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kavip.api.address import Address
from kavip.ipam.request import Request

ANY_POOL: Final = "*"
"""Stands for the pool that would help and does not exist yet."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """
    A Service that waits for an address of one of *families*, from one of *pools*, tried in this order.

    *reason* is what it is told; "" where it has enough and would take more. Without pools nothing but an edit of its
    own helps it.
    """

    request: Request
    pools: tuple[str, ...]
    families: tuple[int, ...]
    reason: str

    @classmethod
    def of(cls, request: Request, pools: tuple[str, ...], held: tuple[Address, ...], *, reason: str = "") -> "Waiter":
        """*request*, which has *held* already: it waits for what it lacks, or for other addresses of all families."""
        lacks = tuple(family for family in request.families if not _has(request.wanted_of(family), family, held))
        return cls(request, pools, lacks or request.families, reason)

    @property
    def label(self) -> tuple[str, str]:
        """The pool that it waits for first, "" where there is none, and why."""
        first = self.pools[0] if self.pools else ""
        return "" if first == ANY_POOL else first, self.reason

    @property
    def age(self) -> tuple[str, str]:
        """Sorts the oldest first."""
        return self.request.terms.age


class Waiting:
    """All waiters."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiters: dict[str, Waiter] = {}
        self._by_pool: defaultdict[str, set[str]] = defaultdict(set)
        self.tally: Counter[tuple[str, str]] = Counter()
        """How many lack an address, by :attr:`Waiter.label`; never 0."""

    def __bool__(self) -> bool:
        """Whether anybody waits for a pool."""
        return bool(self._by_pool)

    def __iter__(self) -> Iterator[Waiter]:
        """All that wait for a pool, oldest first."""
        return iter(sorted((each for each in self._waiters.values() if each.pools), key=lambda waiter: waiter.age))

    def put(self, waiter: Waiter) -> None:
        """Enter *waiter*, in place of what was known of its Service."""
        key = waiter.request.key
        self.drop(key)
        self._waiters[key] = waiter
        if waiter.reason:
            self.tally[waiter.label] += 1
        for pool in waiter.pools:
            self._by_pool[pool].add(key)

    def drop(self, key: str) -> None:
        """Service *key* waits no longer."""
        waiter = self._waiters.pop(key, None)
        if waiter is None:
            return
        if waiter.reason:
            self.tally[waiter.label] -= 1
            if not self.tally[waiter.label]:
                del self.tally[waiter.label]
        for pool in waiter.pools:
            self._by_pool[pool].discard(key)
            if not self._by_pool[pool]:
                del self._by_pool[pool]

    def for_pool(self, name: str) -> list[Waiter]:
        """Those that wait for pool *name*, in no order."""
        return [self._waiters[key] for key in self._by_pool.get(name, ())]


def _has(wanted: Address | None, family: int, held: tuple[Address, ...]) -> bool:
    return wanted in held if wanted else any(address.family == family for address in held)
