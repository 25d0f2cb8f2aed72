"""
What the pools have: free space, counters per pool and family, quota per pool and namespace.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.ipam.eligibility import Audience
from kavip.ipam.ledger.freelist import Space
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILIES

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


class Row:
    """Which pools of one audience have room, by family, in the order in which they are tried."""

    __slots__ = ("_ranks",)

    def __init__(self) -> None:
        """None."""
        self._ranks: dict[int, list[tuple[int, str]]] = {family: [] for family in FAMILIES}

    def note(self, pool: Pool, family: int, *, has_room: bool) -> None:
        """Whether *pool* has room for *family* now."""
        ranks, rank = self._ranks[family], pool.rank
        at = bisect_left(ranks, rank)
        is_noted = at < len(ranks) and ranks[at] == rank
        if has_room and not is_noted:
            ranks.insert(at, rank)
        elif is_noted and not has_room:
            del ranks[at]

    def with_room(self, family: int) -> Sequence[tuple[int, str]]:
        """The ranks of the pools that have room for *family*."""
        return self._ranks[family]


class Shelf:
    """One *pool*: what is free of it, and who holds how much."""

    __slots__ = ("_assigned", "_cooling", "_held", "_row", "_spaces", "pool")

    def __init__(self, pool: Pool, row: Row) -> None:
        """All free, reservations apart; *row* hears whether there is room."""
        self.pool, self._row = pool, row
        self._held: Counter[str] = Counter()
        self._assigned: dict[int, set[int]] = {family: set() for family in FAMILIES}
        self._cooling: dict[int, set[int]] = {family: set() for family in FAMILIES}
        self._spaces = {family: Space(pool.usable_of(family), avoid_buggy=pool.avoid_buggy) for family in FAMILIES}
        for family, space in self._spaces.items():
            row.note(pool, family, has_room=space.available > 0)
        for address in pool.reservations:
            self.keep(address)

    def assign(self, address: Address) -> None:
        """Hand *address* out to nobody else: Services hold it."""
        if self.keep(address):
            self._assigned[address.family].add(address.value)

    def cool(self, address: Address) -> None:
        """Hand *address* out to nobody else: it rests."""
        if self.keep(address):
            self._cooling[address.family].add(address.value)

    def keep(self, address: Address) -> bool:
        """Hand *address* out to nobody; whether it is ever handed out."""
        if not self.pool.is_usable(address):
            return False
        family, value = address
        self._assigned[family].discard(value)
        self._cooling[family].discard(value)
        space = self._spaces[family]
        space.take(value)
        if not space.available:
            self._row.note(self.pool, family, has_room=False)
        return True

    def free(self, address: Address) -> None:
        """*address* may be handed out again, unless it is reserved."""
        if self.keep(address) and address not in self.pool.reservations:
            family, value = address
            space = self._spaces[family]
            space.free(value)
            if space.available == 1:
                self._row.note(self.pool, family, has_room=True)

    def count(self, namespace: str, step: int) -> None:
        """Services of *namespace* hold *step* addresses more now, perhaps -1 or 0."""
        if step:
            self._held[namespace] += step
            if not self._held[namespace]:
                del self._held[namespace]

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
            family: Usage(space.total, len(self._assigned[family]), space.available, len(self._cooling[family]))
            for family, space in self._spaces.items()
            if space.total
        }


class Stock:
    """The shelves of *pools*; whoever fills them says what is taken and who holds what."""

    def __init__(self, pools: Pools) -> None:
        """All free, reservations apart."""
        self.pools = pools
        self._rows = {pool.name: row for each in pools.audiences.every for row in (Row(),) for pool in each.pools}
        self._shelves = {pool.name: Shelf(pool, self._rows.get(pool.name) or Row()) for pool in pools.in_force}

    def get(self, pool: str) -> Shelf | None:
        """The shelf of *pool*, where that is in force."""
        return self._shelves.get(pool)

    def shelf_of(self, address: Address) -> Shelf | None:
        """The shelf that *address* lies on, handed out by its pool or not."""
        pool = self.pools.pool_of(address)
        return self._shelves[pool.name] if pool else None

    def with_room(self, audiences: Iterable[Audience], family: int) -> Iterator[Pool]:
        """The pools of *audiences* that have room for *family*, in the order in which they are tried."""
        rows = [self._rows[each.pools[0].name].with_room(family) for each in audiences]
        ranks = rows[0] if len(rows) == 1 else merge(*rows)
        return (self._shelves[name].pool for _, name in ranks)
