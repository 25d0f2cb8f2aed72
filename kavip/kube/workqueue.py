"""
A keyed work queue: fair, stingy, delayable, with back-off for each key.

The promises are those of client-go's ``util/workqueue``, on one event loop:

* fair: keys are lent out in the order in which they became dirty; those that may wait let the others pass, but not for
  longer than :data:`PATIENCE`; those of :meth:`WorkQueue.add_behind` let all others pass, but one of :data:`SHARE`;
* stingy: many adds before a worker picks the key up are one piece of work, and no key is lent to two workers at once;
* safe: a key added while it is lent out is lent out once more afterwards;
* closed means closed: nothing is lent any more, and whoever waits is told so at once. What is lent is finished.

Only :meth:`WorkQueue.lend` waits. Everything else is synchronous, hence atomic on the loop, hence without locks.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from kavip.errors import QueueClosed
from kavip.kube.backoff import backoff

K = TypeVar("K", bound=Hashable)

PATIENCE: Final = 3.0
"""Seconds for which a key that may wait lets others pass."""

SHARE: Final = 8
"""Of so many keys lent one is from behind, where there are any, whatever else comes."""


class Loan(Generic[K]):
    """One key lent out, for the duration of a block. A class: a generator would cost a tenth of a small plan."""

    __slots__ = ("_give_back", "_key", "_take")

    def __init__(self, take: Callable[[], Awaitable[K]], give_back: Callable[[K], None]) -> None:
        self._take, self._give_back = take, give_back

    async def __aenter__(self) -> K:
        """Wait for a key."""
        self._key = await self._take()
        return self._key

    async def __aexit__(self, *_: object) -> None:
        """Whatever became of it, it may be lent again."""
        self._give_back(self._key)


class WorkQueue(Generic[K]):
    """See the module. *base* and *cap* are the seconds between which a key that fails backs off."""

    def __init__(
        self, *, base: float = 0.05, cap: float = 300.0, may_wait: Callable[[K], bool] = lambda _: False
    ) -> None:
        """Start empty. *may_wait* says which keys let others pass."""
        self._base, self._cap = base, cap
        self._ready: deque[K] = deque()  # dirty and not lent, in order
        self._patient: deque[tuple[float, K]] = deque()  # the same, of keys that may wait, with when that ends
        self._behind: OrderedDict[K, None] = OrderedDict()  # the same, of keys that were added behind
        self._passed = 0  # keys lent since the last one from behind
        self._may_wait = may_wait
        self._dirty: set[K] = set()
        self._lent: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """Count the keys that wait for a worker; those that wait for a time are not among them."""
        return len(self._dirty)

    def add(self, key: K) -> None:
        """Mark *key* as dirty now. A timer for it becomes moot: whoever works on it sets the next one."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if self._closed:
            return
        if key in self._behind:
            del self._behind[key]
        elif key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._lent:
            self._offer(key)

    def add_behind(self, key: K) -> None:
        """Mark *key* as dirty, with nothing that is known to be done for it; :meth:`add` brings it to the others."""
        if self._closed or key in self._dirty:
            return
        if key in self._lent:
            self.add(key)
            return
        self._dirty.add(key)
        self._behind[key] = None
        self._wake()

    def add_after(self, key: K, delay: float) -> None:
        """Mark *key* as dirty in *delay* seconds; of two times the earlier counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + delay
        timer = self._timers.get(key)
        if self._closed or key in self._dirty or (timer is not None and timer.when() <= when):
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self.add, key)

    def retry(self, key: K) -> float:
        """Mark *key* as failed once more: it comes back after a back-off, which is returned."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = backoff(failures, base=self._base, cap=self._cap)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Mark *key* as healthy: its next failure starts from the shortest back-off."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often *key* has failed since it was last healthy."""
        return self._failures.get(key, 0)

    def lend(self) -> "Loan[K]":
        """Lend out the next dirty key for the duration of a block; :class:`QueueClosed` after :meth:`close`."""
        return Loan(self._take, self._give_back)

    def close(self) -> None:
        """Lend nothing more. The keys left are dropped: state decides what is to do, not the queue."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for container in (self._timers, self._ready, self._patient, self._behind, self._dirty, self._failures):
            container.clear()
        while self._waiting:
            self._wake()

    async def _take(self) -> K:
        while not self._has_any():
            if self._closed:
                raise QueueClosed
            await self._turn()
        if self._closed:
            raise QueueClosed
        key = self._next()
        self._dirty.discard(key)
        self._lent.add(key)
        return key

    def _has_any(self) -> bool:
        return bool(self._ready or self._patient or self._behind)

    def _next(self) -> K:
        is_due = bool(self._patient) and self._patient[0][0] <= asyncio.get_running_loop().time()
        self._passed += 1
        if self._behind and (self._passed >= SHARE or not (self._ready or is_due)):
            self._passed = 0
            return self._behind.popitem(last=False)[0]
        return self._patient.popleft()[1] if is_due or not self._ready else self._ready.popleft()

    def _give_back(self, key: K) -> None:
        self._lent.discard(key)
        if key in self._dirty:
            self._offer(key)

    async def _turn(self) -> None:
        """Wait to be woken; a wake-up that a cancelled waiter did not use goes to the next one."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif self._has_any():
                self._wake()
            raise

    def _offer(self, key: K) -> None:
        if self._may_wait(key):
            self._patient.append((asyncio.get_running_loop().time() + PATIENCE, key))
        else:
            self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
