"""The promises of the leader, on virtual time."""

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


class FakeLease:
    """A lease that obeys its test. *mode*: ok, taken, hang, conflict, or raise."""

    duration = 15.0

    def __init__(self, mode: str = "ok", *, latency: float = 0.0) -> None:
        self.mode, self.latency = mode, latency
        self.log: list[str] = []
        self.held: list[float] = []  # when the server wrote it

    async def try_hold(self) -> bool:
        """As the mode says; true after the latency, counted from when the server wrote it."""
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
        """The same."""
        return await self.try_hold()

    async def release(self) -> None:
        """Write it down; hang in mode hang."""
        self.log.append("release")
        if self.mode == "hang":
            await asyncio.sleep(FOREVER)


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


def candidate(lease: FakeLease) -> Leader:
    """One on the loop's time."""
    return Leader(lease, clock=now)


def endless(lease: FakeLease, *, stopping: float = 0.0) -> Callable[[], Coroutine[Any, Any, None]]:
    """Work that goes on until it is cancelled, and takes *stopping* seconds to stop."""

    async def work() -> None:
        lease.log.append("begin")
        try:
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(stopping)
            lease.log.append("end")

    return work


async def test_the_work_starts_only_after_the_lease_is_held() -> None:
    """Through an outage and another holder's time the candidate waits."""
    lease = FakeLease("raise")
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


async def test_work_that_crashes_gives_the_lease_up_at_once() -> None:
    """Its exception is the caller's, and no renewal follows."""
    lease = FakeLease()

    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await candidate(lease).lead(work)
    assert (lease.log, len(lease.held)) == (["release"], 1)
    await asyncio.sleep(60)
    assert len(lease.held) == 1


async def test_cancellation_stops_the_work_first_and_renews_until_it_has_stopped() -> None:
    """Work that takes long to stop keeps the lease meanwhile; a second cancellation changes nothing."""
    lease = FakeLease()
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


async def test_a_cancellation_while_the_work_is_put_away_is_not_swallowed() -> None:
    """Whoever cancels the leader as its work ends still gets the cancellation."""
    lease = FakeLease()

    async def work() -> None:
        await asyncio.sleep(1)
        lease.mode = "hang"  # so that giving the lease up takes a while

    leading = asyncio.create_task(candidate(lease).lead(work))
    await asyncio.sleep(2)
    assert lease.log == ["release"]
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading


@pytest.mark.parametrize("mode", ["hang", "raise", "conflict"])
async def test_a_lease_that_cannot_be_renewed_is_lost_at_the_deadline(mode: str) -> None:
    """The work has stopped before another candidate may take over, counted from the last write."""
    lease = FakeLease()
    leader = candidate(lease)
    leading = asyncio.create_task(leader.lead(endless(lease)))
    await asyncio.sleep(4.5)
    lease.mode = mode
    with pytest.raises(LeaseLost):
        await leading
    assert lease.log == ["begin", "end", "release"]
    assert now() - lease.held[-1] < lease.duration + (5 if mode == "hang" else 0)  # giving up may hang, too
    assert not leader.is_held()


async def test_a_lease_that_another_holds_is_lost_at_once() -> None:
    """Nobody waits for a deadline when the server has named another holder."""
    lease = FakeLease()
    leading = asyncio.create_task(candidate(lease).lead(endless(lease)))
    await asyncio.sleep(10)
    lease.mode, changed = "taken", now()
    with pytest.raises(LeaseLost):
        await leading
    assert now() - changed <= 2
    assert lease.log == ["begin", "end", "release"]


async def test_the_time_is_counted_from_the_start_of_the_attempt() -> None:
    """A slow answer does not make the lease last longer than the server thinks."""
    lease = FakeLease(latency=4.0)
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
    """An attempt ends in time for another one: the next connection may work."""
    lease = FakeLease()
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


async def test_the_fence_falls_before_the_lease_does() -> None:
    """What remains shrinks while nothing is renewed, and is nothing well before another may take over."""
    lease = FakeLease()
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
    assert lease.log == ["begin"]  # it is still stopping, but must not write
    with pytest.raises(LeaseLost):
        await leading


async def test_a_lost_lease_is_reported_though_the_work_ends_well() -> None:
    """Work that answers its cancellation by returning has not simply come to its end."""
    lease = FakeLease()

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


async def test_work_that_cancels_itself_is_no_cancellation_of_ours() -> None:
    """A task group would take CancelledError for its own doing and go on without a leader."""
    lease = FakeLease()

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(LeaseLost, match="cancelled itself"):
        await candidate(lease).lead(work)
    assert lease.log == ["release"]


async def test_giving_up_has_a_limit() -> None:
    """An API server that hangs does not keep the process from ending."""
    lease = FakeLease()

    async def work() -> None:
        lease.mode = "hang"

    began = now()
    await candidate(lease).lead(work)
    assert now() - began <= 5.1


async def test_a_lease_that_was_lost_meanwhile_is_not_renewed() -> None:
    """Whoever got it again after somebody else has had it begins a new term."""
    lease = FakeLease()

    async def gone() -> bool:
        return False

    leading = asyncio.create_task(candidate(lease).lead(endless(lease)))
    await asyncio.sleep(5)
    lease.try_renew = gone  # type: ignore[method-assign]  # of this one alone
    with pytest.raises(LeaseLost):
        await leading
    assert lease.log == ["begin", "end", "release"]


async def test_the_check_withholds_what_the_lease_no_longer_covers() -> None:
    """It says so by raising, from the moment at which the lease is not held, however late the leader notices."""
    lease, leaps = FakeLease(), [0.0]
    leader = Leader(lease, clock=lambda: now() + leaps[0])
    with pytest.raises(LeaseLost):
        leader.check()
    leading = asyncio.create_task(leader.lead(endless(lease)))
    await asyncio.sleep(1)
    leader.check()
    leaps[0] = 10.0  # the process was stopped, or the machine suspended: no timer has fired yet
    with pytest.raises(LeaseLost, match="not written"):
        leader.check()
    with pytest.raises(LeaseLost):
        await leading


def test_the_clock_goes_on_while_the_machine_sleeps() -> None:
    """By default it is CLOCK_BOOTTIME, which is never behind the monotonic one."""
    clock = signature(Leader.__init__).parameters["clock"].default
    before, told, after = time.clock_gettime(time.CLOCK_BOOTTIME), clock(), time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= told <= after
