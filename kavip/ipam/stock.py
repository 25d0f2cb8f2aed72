"""
What the pools have: free space, counters per pool and family, quota per pool and namespace.
"""

from collections import Counter
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.ipam.addresses import FAMILIES
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.space import Space

LARGEST: Final = 2**63 - 1
"""Of an int64; a /64 is larger."""


class Usage(NamedTuple):
    """One family of one pool: *total* to hand out, *assigned* to Services, *available* now, *cooling*. Not clamped."""

    total: int
    assigned: int
    available: int
    cooling: int = 0

    def clamped(self) -> "Usage":
        """The same, no number larger than status and metrics can say."""
        return Usage(*(min(value, LARGEST) for value in self))


class Shelf:
    """One *pool*: what is free of it, and who holds how much."""

    __slots__ = ("_assigned", "_cooling", "_held", "_spaces", "pool")

    def __init__(self, pool: Pool) -> None:
        """All free, reservations apart."""
        self.pool = pool
        self._assigned: Counter[int] = Counter()
        self._held: Counter[str] = Counter()
        self._cooling: dict[int, set[int]] = {family: set() for family in FAMILIES}
        self._spaces = {family: Space(pool.usable_of(family), avoid_buggy=pool.avoid_buggy) for family in FAMILIES}
        for address in pool.reservations:
            self.take(address)

    def take(self, address: Address) -> None:
        """Hand *address* out to nobody else."""
        if self.pool.is_usable(address):
            self._spaces[address.family].take(address.value)
            self._cooling[address.family].discard(address.value)

    def cool(self, address: Address) -> None:
        """Hand *address* out to nobody else: it rests."""
        if self.pool.is_usable(address):
            self._spaces[address.family].take(address.value)
            self._cooling[address.family].add(address.value)

    def free(self, address: Address) -> None:
        """*address* may be handed out again, unless it is reserved."""
        self._cooling[address.family].discard(address.value)
        if address not in self.pool.reservations and self.pool.is_usable(address):
            self._spaces[address.family].free(address.value)

    def count(self, namespace: str, step: int) -> None:
        """Services of *namespace* hold *step* addresses more now, perhaps -1 or 0."""
        if step:
            self._held[namespace] += step
            if not self._held[namespace]:
                del self._held[namespace]

    def assign(self, address: Address, step: int) -> None:
        """*address* is held by somebody now (*step* 1), no longer (-1) or as before (0)."""
        if step and self.pool.is_usable(address):
            self._assigned[address.family] += step

    def lowest(self, family: int) -> Address | None:
        """The lowest free address of *family*."""
        value = self._spaces[family].lowest()
        return None if value is None else Address(family, value)

    def quota_left(self, namespace: str) -> int | None:
        """How many more addresses the Services of *namespace* may hold; None: any number."""
        limit = self.pool.max_per_namespace
        return None if limit is None else max(limit - self._held[namespace], 0)

    def quota_held(self, namespace: str) -> int:
        """How many addresses the Services of *namespace* hold."""
        return self._held[namespace]

    def usage(self) -> dict[int, Usage]:
        """Family -> :class:`Usage`; a family that the pool lacks is left out."""
        return {
            family: Usage(space.total, self._assigned[family], space.available, len(self._cooling[family]))
            for family, space in self._spaces.items()
            if space.total
        }


class Stock:
    """The shelves of *pools*; whoever fills them says what is taken and who holds what."""

    def __init__(self, pools: Pools) -> None:
        """All free, reservations apart."""
        self.pools = pools
        self._shelves = {pool.name: Shelf(pool) for pool in pools.in_force}

    def get(self, pool: str) -> Shelf | None:
        """The shelf of *pool*, where that is in force."""
        return self._shelves.get(pool)

    def shelf_of(self, address: Address) -> Shelf | None:
        """The shelf that *address* lies on, handed out by its pool or not."""
        pool = self.pools.pool_of(address)
        return self._shelves[pool.name] if pool else None
