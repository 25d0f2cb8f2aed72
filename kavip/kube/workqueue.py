"""
A rate-limited work queue of keys: fair, stingy, with delays and a back-off for each key.

The promises are those of client-go's ``util/workqueue``, on one event loop:

* fair: keys are processed in the order in which they were added. A key that :attr:`can_defer <WorkQueue>` lets the
  others pass for at most :data:`MAX_DEFER_SECONDS`. Keys of low priority let all others pass, but every
  :data:`LOW_PRIORITY_SHARE`-th key is one of them, and at most :data:`LOW_PRIORITY_CONCURRENCY` of them are processed
  at once, so that their writes do not slow down the writes of the others;
* stingy: several adds before a key is processed count once, and a key is never processed by two workers at once;
* safe: a key that is added while it is processed is processed again afterwards;
* after :meth:`WorkQueue.close` no key is processed, and waiting workers get :class:`QueueClosed`. A key that is being
  processed is finished.

Only :meth:`WorkQueue.get` waits. Everything else is synchronous, so it is atomic on the loop and needs no locks.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from kavip.errors import QueueClosed
from kavip.kube.backoff import backoff

K = TypeVar("K", bound=Hashable)

MAX_DEFER_SECONDS: Final = 3.0
LOW_PRIORITY_SHARE: Final = 8
"""One of so many keys has low priority, if there is one."""
LOW_PRIORITY_CONCURRENCY: Final = 4
"""Keys of low priority that are processed at once."""


class QueueItem(Generic[K]):
    """
    One key, processed in the block of an ``async with``; at its end the key is done.

    It is a class, because a generator-based context manager would cost a tenth of a small plan.
    """

    __slots__ = ("_done", "_key", "_take")

    def __init__(self, take: Callable[[], Awaitable[K]], done: Callable[[K], None]) -> None:
        self._take, self._done = take, done

    async def __aenter__(self) -> K:
        """Wait for a key."""
        self._key = await self._take()
        return self._key

    async def __aexit__(self, *_: object) -> None:
        """Mark the key as done, whatever the outcome."""
        self._done(self._key)


class WorkQueue(Generic[K]):
    """See the module. *base* and *cap* are the shortest and the longest back-off, in seconds."""

    def __init__(
        self, *, base: float = 0.05, cap: float = 300.0, can_defer: Callable[[K], bool] = lambda _: False
    ) -> None:
        """Start empty. *can_defer* selects the keys that let others pass."""
        self._base, self._cap = base, cap
        # a dirty key that is not processing is in exactly one of these three
        self._ready: deque[K] = deque()
        self._deferred: deque[tuple[float, K]] = deque()  # with the time at which it may pass others
        self._low_priority: OrderedDict[K, None] = OrderedDict()
        self._processing_low_priority: set[K] = set()
        self._low_priority_when_done: set[K] = set()  # keys added with low priority while they are processed
        self._since_low_priority = 0  # keys taken since the last one of low priority
        self._can_defer = can_defer
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """The number of keys that wait for a worker; keys that wait for a time do not count."""
        return len(self._dirty)

    def add(self, key: K) -> None:
        """Add *key* now. Its timer is cancelled: the worker that processes the key sets the next one."""
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if self._closed:
            return
        if key in self._low_priority:
            del self._low_priority[key]
        elif key in self._dirty:
            self._low_priority_when_done.discard(key)
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._enqueue(key)

    def add_low_priority(self, key: K) -> None:
        """Add *key* for which no urgent work is known; :meth:`add` raises its priority."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key in self._processing:
            self._low_priority_when_done.add(key)
        else:
            self._enqueue_low_priority(key)

    def add_after(self, key: K, delay: float) -> None:
        """Add *key* in *delay* seconds; the earlier of two times counts."""
        self._call_after(key, delay, self.add)

    def add_low_priority_after(self, key: K, delay: float) -> None:
        """Add *key* with low priority in *delay* seconds; the earlier of two times counts."""
        self._call_after(key, delay, self.add_low_priority)

    def has_low_priority(self, key: K) -> bool:
        """Whether *key*, which is processed now, had low priority."""
        return key in self._processing_low_priority

    def add_rate_limited(self, key: K) -> float:
        """Count a failure of *key* and add it after a back-off, which is returned."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = backoff(failures, base=self._base, cap=self._cap)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Forget the failures of *key*: the next back-off is the shortest one."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """The number of failures of *key* since :meth:`forget`."""
        return self._failures.get(key, 0)

    def get(self) -> "QueueItem[K]":
        """The next key, for the block of an ``async with``; raises :class:`QueueClosed` after :meth:`close`."""
        return QueueItem(self._take, self._done)

    def close(self) -> None:
        """Drop all keys and accept no more: the next leader reads the state, not the queue."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for container in (self._timers, self._ready, self._deferred, self._low_priority, self._dirty, self._failures):
            container.clear()
        self._low_priority_when_done.clear()
        while self._waiters:
            self._wake_one()

    async def _take(self) -> K:
        while not self._has_any():
            if self._closed:
                raise QueueClosed
            await self._wait()
        if self._closed:
            raise QueueClosed
        key = self._pop()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def _has_any(self) -> bool:
        return bool(self._ready or self._deferred or self._has_low_priority())

    def _has_low_priority(self) -> bool:
        return bool(self._low_priority) and len(self._processing_low_priority) < LOW_PRIORITY_CONCURRENCY

    def _pop(self) -> K:
        is_due = bool(self._deferred) and self._deferred[0][0] <= asyncio.get_running_loop().time()
        self._since_low_priority += 1
        if self._has_low_priority() and (self._since_low_priority >= LOW_PRIORITY_SHARE or not (self._ready or is_due)):
            self._since_low_priority = 0
            key = self._low_priority.popitem(last=False)[0]
            self._processing_low_priority.add(key)
            return key
        return self._deferred.popleft()[1] if is_due or not self._ready else self._ready.popleft()

    def _done(self, key: K) -> None:
        self._processing.discard(key)
        had_low_priority = key in self._processing_low_priority
        self._processing_low_priority.discard(key)
        if key in self._low_priority_when_done:
            self._low_priority_when_done.discard(key)
            self._enqueue_low_priority(key)
        elif key in self._dirty:
            self._enqueue(key)
        if had_low_priority and self._low_priority:
            self._wake_one()

    def _call_after(self, key: K, delay: float, add: Callable[[K], None]) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + delay
        timer = self._timers.get(key)
        if self._closed or key in self._dirty or (timer is not None and timer.when() <= when):
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._fire, key, add)

    def _fire(self, key: K, add: Callable[[K], None]) -> None:
        del self._timers[key]
        add(key)

    async def _wait(self) -> None:
        """Wait for a wake-up; one that a cancelled waiter did not use wakes the next waiter."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._has_any():
                self._wake_one()
            raise

    def _enqueue(self, key: K) -> None:
        if self._can_defer(key):
            self._deferred.append((asyncio.get_running_loop().time() + MAX_DEFER_SECONDS, key))
        else:
            self._ready.append(key)
        self._wake_one()

    def _enqueue_low_priority(self, key: K) -> None:
        self._low_priority[key] = None
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
