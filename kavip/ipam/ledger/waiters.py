"""
Who waits for what: Services without (all of) the addresses that they ask for, by pool.

Whoever frees something says so here (:meth:`Waiting.touch`), and the oldest that it helps is called; nobody polls. One
call at a time and pool: when it is answered, by taking something or by leaving it, the next is called, as long as there
is somebody who can be served. So one address costs one call, however many wait for it, and none stays free while it
would help. Waiters whom the same things help are looked at as one.

**Nobody is forgotten.** Of each waiter whom a pool can serve, and who has not been looked at since it can, this holds:
the pool is touched from an age before his on, or somebody as old as he or older is called for it.

* He begins to wait when he has just been looked at, and whatever helps him later touches the pool, from the oldest on.
* A call takes the oldest of that age or younger who can be served, so he is called himself or an older one is. Of one
  kind all can be served or none can, so the oldest of each speaks for it.
* An answer touches the pool again from that age on. It comes whatever becomes of the call: when the worker has looked
  at him, or could not; when he is gone, is no LoadBalancer any more, or waits for something else. Each call is
  looked at: the queue loses no key, what waits for the return of a write comes with it, a new term looks at everybody.

So a chain ends only where nobody can be served. It rests on two things that tests ask for: that everything that can
help touches its pool, and that whoever asks "can it serve him?" says yes where the decision would give him something.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from kavip.api.address import Address
from kavip.ipam.request import Request

ANY_POOL: Final = "*"
"""Stands for the pool that would help and does not exist yet."""

Age = tuple[str, str]
_OLDEST: Final[Age] = ("", "")  # before everybody


@dataclass(frozen=True, slots=True)
class Waiter:
    """
    A Service that waits for an address of one of *families*, from one of *pools*, tried in this order.

    *reason* is what it is told; "" where it has enough and would take more. Without pools nothing but an edit of its
    own helps it. *kind*: equal for those whom the same things help.
    """

    request: Request
    pools: tuple[str, ...]
    families: tuple[int, ...]
    reason: str
    kind: Hashable

    @classmethod
    def of(
        cls, request: Request, pools: tuple[str, ...], stays: tuple[Address, ...], *, reason: str, is_plain: bool
    ) -> "Waiter":
        """
        *request*, which has *stays* of *pools*: it waits for what it lacks besides, or for other addresses altogether.

        *is_plain*: any free address helps it, and nothing else does.
        """
        lacks = tuple(family for family in request.families if not _has(request.wanted_of(family), family, stays))
        families = lacks or request.families
        kind = (request.namespace, families, request.require_all) if is_plain else request.key
        return cls(request, pools, families, reason, kind)

    @property
    def label(self) -> tuple[str, str]:
        """The pool that it names or else waits for first, "" where there is none, and why."""
        first = self.request.pool or (self.pools[0] if self.pools else "")
        return "" if first == ANY_POOL else first, self.reason

    @property
    def age(self) -> Age:
        """Sorts the oldest first; ends with the key."""
        return self.request.terms.age


class Waiting:
    """All waiters."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiters: dict[str, Waiter] = {}
        self._by_pool: defaultdict[str, dict[Hashable, list[Age]]] = defaultdict(dict)  # sorted
        self._touched: dict[str, Age] = {}  # pools that may help somebody younger than that
        self._called: defaultdict[str, set[str]] = defaultdict(set)  # Service -> the pools that may help it
        self.tally: Counter[tuple[str, str]] = Counter()
        """How many lack an address, by :attr:`Waiter.label`; never 0."""

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
            insort(self._by_pool[pool].setdefault(waiter.kind, []), waiter.age)

    def drop(self, key: str) -> None:
        """Service *key* waits no longer."""
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

    # --- calling --------------------------------------------------------------------------------------------------
    def touch(self, pool: str) -> None:
        """*pool* may help somebody now."""
        if pool in self._by_pool:  # whoever begins to wait later has seen it
            self._touched[pool] = _OLDEST

    def touch_all(self) -> None:
        """Every pool may help somebody now: they are others than before."""
        self._touched = dict.fromkeys(self._by_pool, _OLDEST)

    def answer(self, key: str) -> None:
        """Service *key* has been looked at, if it was called: what it has left may help somebody younger."""
        if key in self._called:
            age = self._waiters[key].age
            for pool in self._called.pop(key):
                self._touched[pool] = min(self._touched.get(pool, age), age)

    def call(self, can_serve: Callable[[str, Waiter], bool]) -> list[str]:
        """The oldest Service that each pool touched since the last call *can_serve*, oldest first."""
        touched, self._touched = self._touched, {}
        called: dict[str, Age] = {}
        for pool, after in touched.items():
            for waiter in sorted(self._heads(pool, after), key=lambda head: head.age):
                if can_serve(pool, waiter):
                    key = waiter.request.key
                    self._called[key].add(pool)
                    called[key] = waiter.age
                    break
        return sorted(called, key=lambda key: called[key])

    def _heads(self, pool: str, after: Age) -> Iterator[Waiter]:
        """Of each kind that waits for *pool*, the oldest that is younger than *after*."""
        for ages in self._by_pool.get(pool, {}).values():
            at = bisect_right(ages, after)
            if at < len(ages):
                yield self._waiters[ages[at][1]]


def _has(wanted: Address | None, family: int, held: tuple[Address, ...]) -> bool:
    return wanted in held if wanted else any(address.family == family for address in held)
