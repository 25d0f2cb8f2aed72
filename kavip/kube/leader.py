"""
Work that runs while, and only while, a lease is held.

Promises that make the caller's code simple; each has a test:

* the work starts only after the lease is held;
* the work has *stopped*, not merely been told to, before the lease is given up or reported lost, and before
  :meth:`Leader.lead` returns for any reason;
* an API that fails or hangs costs the lease at a deadline two thirds into its duration, counted from the *start* of the
  last attempt that succeeded; a server that names another holder costs it at once;
* if the work ends, by returning or by raising, the lease is given up at once;
* a term is one unbroken hold: a lease that was anybody else's meanwhile, or nobody's, is lost, never "renewed".

A lease is not a fence: a write already on the wire may land late. So :meth:`Leader.check` is asked right before bytes
leave, and every write is safe under resourceVersion or a field manager besides. The work must obey cancellation.

The clock that says how long the lease lasts is CLOCK_BOOTTIME: like CLOCK_MONOTONIC it goes on while a process is
stopped and never jumps, and unlike it also while the machine is suspended.
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


class Lease(Protocol):
    """What a :class:`Leader` holds."""

    @property
    def duration(self) -> float:
        """Seconds after which another candidate may take over a lease that is not renewed."""

    async def try_hold(self) -> bool:
        """Create, take over or renew the lease. False: somebody else holds it. Raises: nobody knows."""

    async def try_renew(self) -> bool:
        """Renew the lease that :meth:`try_hold` has got. False: it is ours no longer. Raises: nobody knows."""

    async def release(self) -> None:
        """Give the lease up if it is ours, so that the next candidate need not wait it out."""


class _Outcome(StrEnum):
    HELD = "lease held"
    TAKEN = "lease held by another"
    UNKNOWN = "lease cannot be reached"


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leader:
    """One candidate for *lease*."""

    def __init__(self, lease: Lease, *, clock: Callable[[], float] = _boottime) -> None:
        """Derive the times from the lease's duration as client-go does: 15 s, renewed within 10, tried every 2."""
        self._lease, self._clock = lease, clock
        self._deadline = lease.duration * 2 / 3
        self._period = lease.duration * 2 / 15
        self._until = 0.0
        self._last: _Outcome | None = None

    def remaining(self) -> float:
        """Seconds for which writes are still ours to make; 0 when the lease is not held."""
        return max(0.0, self._until - self._clock())

    def is_held(self) -> bool:
        """Whether writes are still ours to make."""
        return self.remaining() > 0

    def check(self) -> None:
        """Raise :class:`LeaseLost` where writes are not ours to make any more."""
        if not self.is_held():
            raise LeaseLost("not written: the lease is held no more")

    async def attempt(self) -> bool:
        """Try once to get the lease; whether it is held now, for :meth:`lead` to begin with."""
        await self._attempt(self._lease.try_hold)
        return self.is_held()

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lease, then run *work* until it ends; :class:`LeaseLost` where the lease ends first."""
        while not self.is_held() and not await self.attempt():
            await asyncio.sleep(self._period * random.uniform(1.0, 1.2))  # noqa: S311 - no secret
        worker = asyncio.create_task(work(), name="leader:work")
        renewer = asyncio.create_task(self._renew(), name="leader:renew")
        lost = interrupted = False
        try:
            await asyncio.wait({worker, renewer}, return_when=asyncio.FIRST_COMPLETED)
            lost = not worker.done()
        finally:
            ending = asyncio.create_task(self._conclude(worker, renewer), name="leader:conclude")
            interrupted = await _undisturbed(ending)
        if interrupted:
            raise asyncio.CancelledError
        if lost:
            raise LeaseLost(f"the lease was not renewed within {self._deadline:g} s, or another holds it")
        if worker.cancelled():  # CancelledError would tell our caller that somebody cancelled *it*
            raise LeaseLost("the work cancelled itself; the lease was given up")
        worker.result()

    async def _renew(self) -> None:
        """Renew every period; return when the lease is lost."""
        while self.is_held():
            await asyncio.sleep(min(self._period, self.remaining()))
            if self.is_held():
                await self._attempt(self._lease.try_renew)

    async def _attempt(self, attempt: Callable[[], Awaitable[bool]]) -> _Outcome:
        """One attempt. Half the deadline at most: a connection that hangs leaves time for a second one."""
        started = self._clock()
        limit = self._deadline / 2
        if self.is_held():
            limit = min(limit, self.remaining())
        error = ""
        try:
            async with asyncio.timeout(limit):
                outcome = _Outcome.HELD if await attempt() else _Outcome.TAKEN
        except Exception as failure:  # noqa: BLE001 - network, API, proxy and timeout alike mean that nobody knows
            outcome, error = _Outcome.UNKNOWN, str(failure) or type(failure).__name__
        if outcome is _Outcome.HELD:
            self._until = started + self._deadline
        elif outcome is _Outcome.TAKEN:
            self._until = 0.0
        if outcome is not self._last:
            self._last = outcome
            log.info(outcome.value, **({"error": error} if error else {}))
        return outcome

    async def _conclude(self, worker: asyncio.Task[None], renewer: asyncio.Task[None]) -> None:
        """Stop the work, then the renewals, then give the lease up; in this order, and to the end."""
        worker.cancel()
        await asyncio.wait({worker})
        if not worker.cancelled() and (failure := worker.exception()):
            log.error("work failed", error=str(failure) or type(failure).__name__)
        renewer.cancel()
        await asyncio.wait({renewer})
        self._until = 0.0
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._lease.release()
        except Exception as failure:  # noqa: BLE001 - the lease runs out by itself
            log.info("lease not given up; it runs out", error=str(failure) or type(failure).__name__)


async def _undisturbed(task: asyncio.Task[None]) -> bool:
    """Wait until *task* is over, whoever cancels us meanwhile; tell whether somebody did."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    return cancelled
