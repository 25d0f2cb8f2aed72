"""
What the pools have: free space, counters per pool and family, quota per pool and namespace.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.ipam.addresses import FAMILIES
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.space import Space

LARGEST: Final = 2**63 - 1
"""Of an int64; a /64 is larger."""


class Usage(NamedTuple):
    """One family of one pool: *total* to hand out, *assigned* to Services, *available* now. Not clamped."""

    total: int
    assigned: int
    available: int

    def clamped(self) -> "Usage":
        """The same, no number larger than status and metrics can say."""
        return Usage(*(min(value, LARGEST) for value in self))


class Stock:
    """Counters over *pools*; whoever fills it says what is taken and who holds what."""

    def __init__(self, pools: Pools) -> None:
        """All free, reservations apart."""
        self.pools = pools
        self._assigned: Counter[tuple[str, int]] = Counter()
        self._held: Counter[tuple[str, str]] = Counter()
        self._spaces = {
            (pool.name, family): Space(pool.usable_of(family), avoid_buggy=pool.avoid_buggy)
            for pool in pools.in_force
            for family in FAMILIES
        }
        for pool in pools.in_force:
            for address in pool.reservations:
                self.take(address)

    def take(self, address: Address) -> None:
        """Hand *address* out to nobody else."""
        pool = self.pools.pool_of(address)
        if pool is not None and pool.is_usable(address):
            self._spaces[pool.name, address.family].take(address.value)

    def free(self, address: Address) -> None:
        """*address* may be handed out again, unless it is reserved."""
        pool = self.pools.pool_of(address)
        if pool is not None and address not in pool.reservations and pool.is_usable(address):
            self._spaces[pool.name, address.family].free(address.value)

    def count(self, address: Address, namespaces: Iterable[str], step: int) -> None:
        """Services of *namespaces* hold *address* now (*step* 1) or no longer (-1)."""
        pool = self.pools.pool_of(address)
        if pool is not None:
            for namespace in namespaces:
                self._held[pool.name, namespace] += step

    def assign(self, address: Address, step: int) -> None:
        """*address* is held by somebody now (*step* 1) or no longer (-1)."""
        pool = self.pools.pool_of(address)
        if pool is not None and pool.is_usable(address):
            self._assigned[pool.name, address.family] += step

    def lowest(self, pool: Pool, family: int) -> Address | None:
        """The lowest free address of *family* in *pool*."""
        value = self._spaces[pool.name, family].lowest()
        return None if value is None else Address(family, value)

    def quota_left(self, pool: Pool, namespace: str) -> int | None:
        """How many more addresses of *pool* the Services of *namespace* may hold; None: any number."""
        if pool.max_per_namespace is None:
            return None
        return max(pool.max_per_namespace - self._held[pool.name, namespace], 0)

    def usage(self, pool: str) -> dict[int, Usage]:
        """Family -> :class:`Usage` of the pool *pool*; a family that it lacks is left out."""
        return {
            family: Usage(space.total, self._assigned[pool, family], space.available)
            for family in FAMILIES
            if (space := self._spaces.get((pool, family))) is not None and space.total
        }
