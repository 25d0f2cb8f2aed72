"""The promises of leader election, on virtual time."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from inspect import signature
from typing import Any

import pytest

from kavip.errors import Conflict, LeaseLost
from kavip.kube.leader import Leader

pytestmark = pytest.mark.looptime

FOREVER = 1e6


class FakeLock:
    """A lock that a test controls. *mode*: ok, taken, hang, conflict, or raise."""

    duration = 15.0

    def __init__(self, mode: str = "ok", *, latency: float = 0.0) -> None:
        self.mode, self.latency = mode, latency
        self.log: list[str] = []
        self.held: list[float] = []  # the time of the write on the server

    async def try_acquire(self) -> bool:
        """The outcome of the mode; True after the latency, counted from the write on the server."""
        match self.mode:
            case "hang":
                await asyncio.sleep(FOREVER)
            case "raise":
                raise OSError("connection refused")
            case "conflict":
                raise Conflict(409, "Conflict", "the object has been modified")
            case "taken":
                return False
        self.held.append(now())
        await asyncio.sleep(self.latency)
        return True

    async def try_renew(self) -> bool:
        """The same as acquiring."""
        return await self.try_acquire()

    async def release(self) -> None:
        """Record the release; hang in mode hang."""
        self.log.append("release")
        if self.mode == "hang":
            await asyncio.sleep(FOREVER)


def now() -> float:
    """The time of the loop."""
    return asyncio.get_running_loop().time()


def candidate(lease: FakeLock) -> Leader:
    """A leader on the time of the loop."""
    return Leader(lease, clock=now)


def endless(lease: FakeLock, *, stopping: float = 0.0) -> Callable[[], Coroutine[Any, Any, None]]:
    """Work that runs until it is cancelled, and takes *stopping* seconds to stop."""

    async def work() -> None:
        lease.log.append("begin")
        try:
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(stopping)
            lease.log.append("end")

    return work


async def test_the_work_starts_only_after_the_lease_is_held() -> None:
    """The candidate waits through an outage and another holder."""
    lease = FakeLock("raise")
    leader = candidate(lease)

    async def work() -> None:
        assert leader.is_held()
        lease.log.append("begin")

    leading = asyncio.create_task(leader.lead(work))
    for mode in ("raise", "taken", "hang", "conflict"):
        lease.mode = mode
        await asyncio.sleep(60)
        assert not lease.log
        assert not leader.is_held()
    lease.mode = "ok"
    await leading
    assert lease.log == ["begin", "release"]
    assert leader.remaining() == 0


async def test_crashed_work_releases_the_lease_at_once() -> None:
    """The caller gets the exception, and there is no further renewal."""
    lease = FakeLock()

    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await candidate(lease).lead(work)
    assert (lease.log, len(lease.held)) == (["release"], 1)
    await asyncio.sleep(60)
    assert len(lease.held) == 1


async def test_cancellation_stops_the_work_first_and_renews_until_it_has_stopped() -> None:
    """Work that stops slowly keeps the lease meanwhile; a second cancellation changes nothing."""
    lease = FakeLock()
    leader = candidate(lease)
    leading = asyncio.create_task(leader.lead(endless(lease, stopping=40)))
    await asyncio.sleep(5)
    leading.cancel()
    await asyncio.sleep(30)
    leading.cancel()
    assert leader.is_held()
    assert lease.log == ["begin"]
    with pytest.raises(asyncio.CancelledError):
        await leading
    assert lease.log == ["begin", "end", "release"]
    assert not leader.is_held()


async def test_a_cancellation_during_the_stop_is_not_lost() -> None:
    """A leader that is cancelled while its work ends raises the cancellation."""
    lease = FakeLock()

    async def work() -> None:
        await asyncio.sleep(1)
        lease.mode = "hang"  # so that the release takes a while

    leading = asyncio.create_task(candidate(lease).lead(work))
    await asyncio.sleep(2)
    assert lease.log == ["release"]
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading


@pytest.mark.parametrize("mode", ["hang", "raise", "conflict"])
async def test_a_lease_that_cannot_be_renewed_is_lost_at_the_deadline(mode: str) -> None:
    """The work has stopped before another candidate can acquire the lease."""
    lease = FakeLock()
    leader = candidate(lease)
    leading = asyncio.create_task(leader.lead(endless(lease)))
    await asyncio.sleep(4.5)
    lease.mode = mode
    with pytest.raises(LeaseLost):
        await leading
    assert lease.log == ["begin", "end", "release"]
    assert now() - lease.held[-1] < lease.duration + (5 if mode == "hang" else 0)  # the release may hang too
    assert not leader.is_held()


async def test_a_lease_that_another_holds_is_lost_at_once() -> None:
    """There is no wait for the deadline when the server names another holder."""
    lease = FakeLock()
    leading = asyncio.create_task(candidate(lease).lead(endless(lease)))
    await asyncio.sleep(10)
    lease.mode, changed = "taken", now()
    with pytest.raises(LeaseLost):
        await leading
    assert now() - changed <= 2
    assert lease.log == ["begin", "end", "release"]


async def test_the_time_is_counted_from_the_start_of_the_attempt() -> None:
    """A slow response does not extend the lease."""
    lease = FakeLock(latency=4.0)
    leader = candidate(lease)
    leading = asyncio.create_task(leader.lead(endless(lease)))
    while not leader.is_held():
        await asyncio.sleep(0.01)
    assert now() - lease.held[0] + leader.remaining() <= 10.01
    lease.mode = "raise"
    with pytest.raises(LeaseLost):
        await leading
    assert now() - lease.held[-1] <= 10.01


async def test_one_hanging_attempt_does_not_cost_the_lease() -> None:
    """An attempt ends early enough for another one on a new connection."""
    lease = FakeLock()
    leader = candidate(lease)
    leading = asyncio.create_task(leader.lead(endless(lease)))
    await asyncio.sleep(3)
    lease.mode = "hang"
    await asyncio.sleep(3)
    lease.mode = "ok"
    await asyncio.sleep(60)
    assert leader.is_held()
    leading.cancel()
    await asyncio.wait({leading})


async def test_the_remaining_time_ends_before_the_lease_expires() -> None:
    """Without renewals it decreases to zero well before another candidate can acquire the lease."""
    lease = FakeLock()
    leader = candidate(lease)
    leading = asyncio.create_task(leader.lead(endless(lease, stopping=8)))
    await asyncio.sleep(1)
    lease.mode = "raise"
    before = leader.remaining()
    await asyncio.sleep(3)
    assert leader.remaining() == pytest.approx(before - 3, abs=0.01)
    await asyncio.sleep(before)
    assert leader.remaining() == 0
    assert now() - lease.held[-1] < lease.duration
    assert lease.log == ["begin"]  # it is still stopping but may not write
    with pytest.raises(LeaseLost):
        await leading


async def test_a_lost_lease_is_reported_although_the_work_returns() -> None:
    """Work that returns on cancellation has not ended by itself."""
    lease = FakeLock()

    async def work() -> None:
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            return

    leading = asyncio.create_task(candidate(lease).lead(work))
    await asyncio.sleep(3)
    lease.mode = "raise"
    with pytest.raises(LeaseLost):
        await leading


async def test_work_that_cancels_itself_is_a_lost_lease() -> None:
    """A task group would treat CancelledError as its own and continue without a leader."""
    lease = FakeLock()

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(LeaseLost, match="cancelled itself"):
        await candidate(lease).lead(work)
    assert lease.log == ["release"]


async def test_the_release_has_a_timeout() -> None:
    """A hanging API server does not keep the process from ending."""
    lease = FakeLock()

    async def work() -> None:
        lease.mode = "hang"

    began = now()
    await candidate(lease).lead(work)
    assert now() - began <= 5.1


async def test_a_lease_that_was_lost_meanwhile_is_not_renewed() -> None:
    """A lease that another candidate held meanwhile needs a new term."""
    lease = FakeLock()

    async def fail_to_renew() -> bool:
        return False

    leading = asyncio.create_task(candidate(lease).lead(endless(lease)))
    await asyncio.sleep(5)
    lease.try_renew = fail_to_renew  # type: ignore[method-assign]  # of this one alone
    with pytest.raises(LeaseLost):
        await leading
    assert lease.log == ["begin", "end", "release"]


async def test_ensure_held_raises_from_the_moment_the_lease_is_lost() -> None:
    """This holds even if the leader detects the loss later."""
    lease, offset = FakeLock(), [0.0]
    leader = Leader(lease, clock=lambda: now() + offset[0])
    with pytest.raises(LeaseLost):
        leader.ensure_held()
    leading = asyncio.create_task(leader.lead(endless(lease)))
    await asyncio.sleep(1)
    leader.ensure_held()
    offset[0] = 10.0  # the process was stopped or the machine suspended: no timer has fired
    with pytest.raises(LeaseLost, match="not written"):
        leader.ensure_held()
    with pytest.raises(LeaseLost):
        await leading


def test_the_clock_continues_while_the_machine_is_suspended() -> None:
    """The default is CLOCK_BOOTTIME, which is never behind the monotonic clock."""
    clock = signature(Leader.__init__).parameters["clock"].default
    before, notified, after = time.clock_gettime(time.CLOCK_BOOTTIME), clock(), time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= notified <= after
