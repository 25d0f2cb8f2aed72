"""
Which Services wait for which pools, and which of them to requeue after a change.

A Service waits if it lacks an address, or would take another one. A change that may help touches a pool
(:meth:`Waiters.touch`), and :meth:`Waiters.call` then returns the oldest waiter that the pool can serve; nothing
polls. Each pool calls one waiter at a time. After that Service was reconciled, whether it took the address or not, the
next one is called, as long as the pool can serve one. So a freed address costs one reconcile, however many
Services wait for it, and no address stays free while a waiter could use it. Waiters with equal needs (*kind*) are
evaluated as one.

**No waiter is forgotten.** For each waiter that a pool can serve, and that was not reconciled since it can, one of
these holds: the pool is touched from an age before that of the waiter on, or the waiter or an older one is called.

* A Service starts to wait directly after it was reconciled. Whatever helps it later touches the pool for all ages.
* A call takes the oldest waiter, from the touched age on, that the pool can serve: this waiter or an older one. A pool
  can serve all waiters of one kind or none of them, so it is enough to evaluate the oldest of each kind.
* An answer touches the pool again, from the age of the called waiter on. Every call is answered: the worker has
  reconciled the Service, or has failed to; or the Service is deleted, is no longer a LoadBalancer, or waits for
  something else. The queue loses no key, a key that waits for the return of its write is requeued with the write, and
  a new leader requeues every Service.

So a chain of calls ends only where the pool can serve no waiter. This depends on two conditions, which tests check:
everything that can help touches its pool, and *can_serve* is true wherever a decision would assign something.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from kavip.api.address import Address
from kavip.ipam.request import Request

ANY_POOL: Final = "*"
"""Stands for a pool that would help and does not exist yet."""

Age = tuple[str, str]
_OLDEST: Final[Age] = ("", "")  # sorts before every age


@dataclass(frozen=True, slots=True)
class Waiter:
    """
    A Service that waits for addresses from one of *pools*, in the order in which they are tried.

    *families*: the family of each address that it lacks besides those that *stay*.

    *reason*: why it lacks something; "" if it lacks nothing and would take more. Without pools only an edit of the
    Service helps. *kind* is equal for waiters that the same changes help.
    """

    request: Request
    pools: tuple[str, ...]
    families: tuple[int, ...]
    stay: tuple[Address, ...]
    reason: str
    kind: Hashable

    @classmethod
    def of(
        cls, request: Request, pools: tuple[str, ...], stay: tuple[Address, ...], *, reason: str, is_plain: bool
    ) -> "Waiter":
        """
        *request*, which keeps *stay* of *pools*, waits for what it lacks, or for all if it lacks nothing.

        *is_plain*: any free address helps it, and nothing else does.
        """
        lacks = request.lacking(stay)
        families, stay = (lacks, stay) if lacks else (request.lacking(()), ())
        kind = (request.namespace, families, request.require_all) if is_plain else request.key
        return cls(request, pools, families, stay, reason, kind)

    @property
    def label(self) -> tuple[str, str]:
        """The pool that it names, or else waits for first ("" if there is none), and the reason."""
        first = self.request.pool or (self.pools[0] if self.pools else "")
        return "" if first == ANY_POOL else first, self.reason

    @property
    def age(self) -> Age:
        """Sorts the oldest Service first; ends with the key."""
        return self.request.terms.age


class Waiters:
    """All Services that wait."""

    def __init__(self) -> None:
        """Start empty."""
        self._waiters: dict[str, Waiter] = {}
        self._by_pool: defaultdict[str, dict[Hashable, list[Age]]] = defaultdict(dict)  # sorted
        self._touched: dict[str, Age] = {}  # pool -> it may help waiters that are younger than this
        self._called: defaultdict[str, set[str]] = defaultdict(set)  # Service -> the pools that may help it
        self.tally: Counter[tuple[str, str]] = Counter()
        """How many Services lack an address, by :attr:`Waiter.label`; never 0."""

    def by_age(self) -> tuple[str, ...]:
        """The Services that wait for a pool, oldest first: for changes that concern all, such as an edit of a pool."""
        found = sorted((each for each in self._waiters.values() if each.pools), key=lambda waiter: waiter.age)
        return tuple(waiter.request.key for waiter in found)

    def put(self, waiter: Waiter) -> None:
        """Enter *waiter* in the place of an earlier one for its Service."""
        key = waiter.request.key
        self.drop(key)
        self._waiters[key] = waiter
        if waiter.reason:
            self.tally[waiter.label] += 1
        for pool in waiter.pools:
            insort(self._by_pool[pool].setdefault(waiter.kind, []), waiter.age)

    def drop(self, key: str) -> None:
        """Service *key* no longer waits."""
        self.answer(key)
        waiter = self._waiters.pop(key, None)
        if waiter is None:
            return
        if waiter.reason:
            self.tally[waiter.label] -= 1
            if not self.tally[waiter.label]:
                del self.tally[waiter.label]
        for pool in waiter.pools:
            kinds = self._by_pool[pool]
            ages = kinds[waiter.kind]
            del ages[bisect_left(ages, waiter.age)]
            if not ages:
                del kinds[waiter.kind]
            if not kinds:
                del self._by_pool[pool]

    # --- calls ----------------------------------------------------------------------------------------------------
    def touch(self, pool: str) -> None:
        """Something in *pool* has changed that may help a waiter."""
        if pool in self._by_pool:  # a Service that starts to wait later was decided after the change
            self._touched[pool] = _OLDEST

    def touch_all(self) -> None:
        """The pools have changed: each may help a waiter."""
        self._touched = dict.fromkeys(self._by_pool, _OLDEST)

    def answer(self, key: str) -> None:
        """Service *key* was reconciled. If it was called, what it left may help a younger waiter."""
        if key in self._called:
            age = self._waiters[key].age
            for pool in self._called.pop(key):
                self._touched[pool] = min(self._touched.get(pool, age), age)

    def call(self, can_serve: Callable[[str, Waiter], bool]) -> list[str]:
        """Take, for each pool touched since the last call, the oldest waiter that it *can_serve*; oldest first."""
        touched, self._touched = self._touched, {}
        called: dict[str, Age] = {}
        for pool, after in touched.items():
            for waiter in sorted(self._oldest_of_kinds(pool, after), key=lambda head: head.age):
                if can_serve(pool, waiter):
                    key = waiter.request.key
                    self._called[key].add(pool)
                    called[key] = waiter.age
                    break
        return sorted(called, key=lambda key: called[key])

    def _oldest_of_kinds(self, pool: str, after: Age) -> Iterator[Waiter]:
        """The oldest waiter of each kind that waits for *pool* and is younger than *after*."""
        for ages in self._by_pool.get(pool, {}).values():
            at = bisect_right(ages, after)
            if at < len(ages):
                yield self._waiters[ages[at][1]]
