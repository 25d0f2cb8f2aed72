"""
Free addresses and counters per pool and family, and quota per pool and namespace.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.ipam.eligibility import Audience
from kavip.ipam.ledger.freelist import FreeList
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILIES

MAX_INT64: Final = 2**63 - 1
"""The largest number in a pool's status; a /64 has more addresses."""


class FamilyUsage(NamedTuple):
    """Addresses of one family of one pool: *total*, *assigned* to Services, *available* now, *cooling* down."""

    total: int
    assigned: int
    available: int
    cooling: int = 0

    def clamped(self) -> "FamilyUsage":
        """The same, with no number above int64."""
        return FamilyUsage(*(min(value, MAX_INT64) for value in self))


class _FreePools:
    """The pools of one audience that have a free address, by family, in the order in which they are tried."""

    __slots__ = ("_ranks",)

    def __init__(self) -> None:
        self._ranks: dict[int, list[tuple[int, str]]] = {family: [] for family in FAMILIES}

    def set(self, pool: Pool, family: int, *, has_free: bool) -> None:
        """Record whether *pool* has a free address of *family*."""
        ranks, rank = self._ranks[family], pool.rank
        at = bisect_left(ranks, rank)
        is_listed = at < len(ranks) and ranks[at] == rank
        if has_free and not is_listed:
            ranks.insert(at, rank)
        elif is_listed and not has_free:
            del ranks[at]

    def ranks(self, family: int) -> Sequence[tuple[int, str]]:
        """The ranks of the pools that have a free address of *family*."""
        return self._ranks[family]


class PoolUsage:
    """The addresses of one *pool*: free, assigned, cooling down or kept back; and the quota of each namespace."""

    __slots__ = ("_assigned", "_cooling", "_free", "_free_pools", "_held", "pool")

    def __init__(self, pool: Pool, free_pools: _FreePools) -> None:
        """Start with all addresses free, except the reserved ones."""
        self.pool, self._free_pools = pool, free_pools
        self._held: Counter[str] = Counter()
        self._assigned: dict[int, set[int]] = {family: set() for family in FAMILIES}
        self._cooling: dict[int, set[int]] = {family: set() for family in FAMILIES}
        self._free = {family: FreeList(pool.usable_of(family), avoid_buggy=pool.avoid_buggy) for family in FAMILIES}
        for family, free in self._free.items():
            free_pools.set(pool, family, has_free=free.available > 0)
        for address in pool.reservations:
            self.keep_back(address)

    def assign(self, address: Address) -> None:
        """Mark *address* as held by Services."""
        if self.keep_back(address):
            self._assigned[address.family].add(address.value)

    def cool(self, address: Address) -> None:
        """Mark *address* as cooling down."""
        if self.keep_back(address):
            self._cooling[address.family].add(address.value)

    def keep_back(self, address: Address) -> bool:
        """Mark *address* as neither free nor assigned nor cooling down; False if the pool never assigns it."""
        if not self.pool.is_usable(address):
            return False
        family, value = address
        self._assigned[family].discard(value)
        self._cooling[family].discard(value)
        free = self._free[family]
        free.take(value)
        if not free.available:
            self._free_pools.set(self.pool, family, has_free=False)
        return True

    def free(self, address: Address) -> None:
        """Mark *address* as free, unless it is reserved."""
        if self.keep_back(address) and address not in self.pool.reservations:
            family, value = address
            free = self._free[family]
            free.free(value)
            if free.available == 1:
                self._free_pools.set(self.pool, family, has_free=True)

    def count(self, namespace: str, step: int) -> None:
        """Add *step*, which may be 0 or negative, to the addresses that the Services of *namespace* hold."""
        if step:
            self._held[namespace] += step
            if not self._held[namespace]:
                del self._held[namespace]

    def available(self, family: int) -> int:
        """How many addresses of *family* are free."""
        return self._free[family].available

    def lowest(self, family: int, number: int) -> list[Address]:
        """The *number* lowest free addresses of *family*, or all of them if there are fewer."""
        return [Address(family, value) for value in self._free[family].lowest_of(number)]

    def quota_left(self, namespace: str) -> int | None:
        """How many more addresses the Services of *namespace* may hold; None: no limit."""
        limit = self.pool.max_per_namespace
        return None if limit is None else max(limit - self._held[namespace], 0)

    def quota_held(self, namespace: str) -> int:
        """How many addresses the Services of *namespace* hold."""
        return self._held[namespace]

    def by_family(self) -> dict[int, FamilyUsage]:
        """The usage of each family that the pool has."""
        return {
            family: FamilyUsage(free.total, len(self._assigned[family]), free.available, len(self._cooling[family]))
            for family, free in self._free.items()
            if free.total
        }


class UsageByPool:
    """The usage of all pools in force. :class:`.book.AddressBook` keeps it."""

    def __init__(self, pools: Pools) -> None:
        """Start with all addresses free, except the reserved ones."""
        self.configure(pools)

    def configure(self, pools: Pools) -> None:
        """Replace the pools, and start again."""
        self.pools = pools
        self._free_pools = {
            pool.name: free for audience in pools.audiences.every for free in (_FreePools(),) for pool in audience.pools
        }
        self._usages = {
            pool.name: PoolUsage(pool, self._free_pools.get(pool.name) or _FreePools()) for pool in pools.in_force
        }

    def get(self, pool: str) -> PoolUsage | None:
        """The usage of *pool*, if it is in force."""
        return self._usages.get(pool)

    def of(self, address: Address) -> PoolUsage | None:
        """The usage of the pool whose ranges hold *address*, even if the pool never assigns it."""
        pool = self.pools.pool_of(address)
        return self._usages[pool.name] if pool else None

    def pools_with_free(self, audiences: Iterable[Audience], family: int) -> Iterator[Pool]:
        """The pools of *audiences* that have a free address of *family*, in the order in which they are tried."""
        found = [self._free_pools[each.pools[0].name].ranks(family) for each in audiences]
        ranks = found[0] if len(found) == 1 else merge(*found)
        return (self._usages[name].pool for _, name in ranks)
