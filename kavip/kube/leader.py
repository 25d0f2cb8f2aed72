"""
Leader election: work that runs only while a lock is held.

Promises, each proved by a test:

* the work starts only after the lock is held;
* the work has *stopped* (not only been cancelled) before the lock is released or reported as lost, and before
  :meth:`Leader.lead` returns for any reason;
* if the API fails or hangs, the lock counts as lost after two thirds of its duration, counted from the *start* of the
  last successful attempt; if the server names another holder, it is lost at once;
* if the work ends, by returning or by raising, the lock is released at once;
* a term is one uninterrupted hold: a lock that another candidate held meanwhile, or none, is lost, never "renewed".

A lease is not a fence: a write that is already sent may arrive late. So :mod:`kavip.kube.transport` calls
:meth:`Leader.ensure_held` right before it sends a write, and every write is safe under resourceVersion or a field
manager. The work must stop when it is cancelled.

The clock is CLOCK_BOOTTIME. Like CLOCK_MONOTONIC it continues while a process is stopped, and never jumps; unlike it,
it also continues while the machine is suspended.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from typing import Any, Final, Protocol

import structlog

from kavip.errors import LeaseLost

log = structlog.get_logger()

_RELEASE_SECONDS: Final = 5.0


class ResourceLock(Protocol):
    """The lock that a :class:`Leader` holds."""

    @property
    def duration(self) -> float:
        """Seconds after which another candidate may acquire a lock that is not renewed."""

    async def try_acquire(self) -> bool:
        """Create, acquire or renew the lock. False: another candidate holds it. An exception: unknown."""

    async def try_renew(self) -> bool:
        """Renew the lock in the current term. False: the term is over. An exception: unknown."""

    async def release(self) -> None:
        """Release the lock if this candidate holds it, so that the next one need not wait until it expires."""


class _Outcome(StrEnum):
    HELD = "lease held"
    TAKEN = "lease held by another"
    UNKNOWN = "lease cannot be reached"


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leader:
    """One candidate for *lock*."""

    def __init__(self, lock: ResourceLock, *, clock: Callable[[], float] = _boottime) -> None:
        """The times follow from the duration as in client-go: 15 s, renewed within 10 s, retried every 2 s."""
        self._lock, self._clock = lock, clock
        self._deadline = lock.duration * 2 / 3
        self._period = lock.duration * 2 / 15
        self._until = 0.0
        self._last: _Outcome | None = None

    def remaining(self) -> float:
        """Seconds for which this candidate may still write; 0 if the lock is not held."""
        return max(0.0, self._until - self._clock())

    def is_held(self) -> bool:
        """Whether this candidate may write."""
        return self.remaining() > 0

    def ensure_held(self) -> None:
        """Raise :class:`LeaseLost` if this candidate may not write."""
        if not self.is_held():
            raise LeaseLost("not written: the lease is no longer held")

    async def try_acquire(self) -> bool:
        """Try once to acquire the lock; return whether it is held, so that :meth:`lead` can start at once."""
        await self._attempt(self._lock.try_acquire)
        return self.is_held()

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lock, then run *work* to its end; raises :class:`LeaseLost` if the lock is lost before."""
        while not self.is_held() and not await self.try_acquire():
            await asyncio.sleep(self._period * random.uniform(1.0, 1.2))  # noqa: S311 - no secret
        worker = asyncio.create_task(work(), name="leader:work")
        renewer = asyncio.create_task(self._renew(), name="leader:renew")
        lost = cancelled = False
        try:
            await asyncio.wait({worker, renewer}, return_when=asyncio.FIRST_COMPLETED)
            lost = not worker.done()
        finally:
            ending = asyncio.create_task(self._stop(worker, renewer), name="leader:stop")
            cancelled = await _wait_uncancelled(ending)
        if cancelled:
            raise asyncio.CancelledError
        if lost:
            raise LeaseLost(f"the lease was not renewed within {self._deadline:g} s, or another candidate holds it")
        if worker.cancelled():  # CancelledError would mean that the caller was cancelled
            raise LeaseLost("the work cancelled itself; the lease was released")
        worker.result()

    async def _renew(self) -> None:
        """Renew every period; return when the lock is lost."""
        while self.is_held():
            await asyncio.sleep(min(self._period, self.remaining()))
            if self.is_held():
                await self._attempt(self._lock.try_renew)

    async def _attempt(self, attempt: Callable[[], Awaitable[bool]]) -> _Outcome:
        """One attempt, of at most half the deadline: after a connection that hangs there is time for a second one."""
        started = self._clock()
        limit = self._deadline / 2
        if self.is_held():
            limit = min(limit, self.remaining())
        error = ""
        try:
            async with asyncio.timeout(limit):
                outcome = _Outcome.HELD if await attempt() else _Outcome.TAKEN
        except Exception as failure:  # noqa: BLE001 - after any error of network, API or proxy the holder is unknown
            outcome, error = _Outcome.UNKNOWN, str(failure) or type(failure).__name__
        if outcome is _Outcome.HELD:
            self._until = started + self._deadline
        elif outcome is _Outcome.TAKEN:
            self._until = 0.0
        if outcome is not self._last:
            self._last = outcome
            log.info(outcome.value, **({"error": error} if error else {}))
        return outcome

    async def _stop(self, worker: asyncio.Task[None], renewer: asyncio.Task[None]) -> None:
        """Stop the work, then the renewals, then release the lock, in this order."""
        worker.cancel()
        await asyncio.wait({worker})
        if not worker.cancelled() and (failure := worker.exception()):
            log.error("work failed", error=str(failure) or type(failure).__name__)
        renewer.cancel()
        await asyncio.wait({renewer})
        self._until = 0.0
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._lock.release()
        except Exception as failure:  # noqa: BLE001 - the lease expires by itself
            log.info("lease not released; it expires", error=str(failure) or type(failure).__name__)


async def _wait_uncancelled(task: asyncio.Task[None]) -> bool:
    """Wait until *task* is done, although this task may be cancelled meanwhile; return whether it was."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    return cancelled
