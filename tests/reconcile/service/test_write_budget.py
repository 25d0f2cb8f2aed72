"""The write budget of a Service: few status writes after reports of agents, and none before Retry-After."""

import asyncio

from kavip.errors import Throttled
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.service import throttle
from tests.controller.workerfixture import running_worker, web
from tests.support import build

WEB = Key(KeyKind.SERVICE, "shop/web")


async def test_status_writes_after_reports_of_agents_are_limited() -> None:
    """Reports of a flapping or lying node cause one burst of writes of a Service. A user's edit is written at once."""
    async with running_worker(web(), web("shop/other"), build.group(), build.pool()) as fixture:

        def written(key: str = "shop/web") -> int:
            return sum(write.key == key for plan in fixture.writer.sent for write in plan.writes)

        for number in range(1, throttle.BURST + 1):  # the watch delivers nothing: each plan has the write
            fixture.queue.add(WEB)
            await fixture.until(lambda: written() == number)  # noqa: B023 - awaited in the same turn
        fixture.queue.add(WEB)
        fixture.queue.add(Key(KeyKind.SERVICE, "shop/other"))
        await fixture.until(lambda: written("shop/other"))
        assert written() == throttle.BURST
        fixture.snapshot.put(web(labels={"edited": "yes"}))
        fixture.queue.add(WEB)
        await fixture.until(lambda: written() == throttle.BURST + 1)


def test_the_burst_comes_back_with_time() -> None:
    """One write in 15 s is always allowed; after a while without writes a full burst is allowed again."""
    found, service = throttle.WriteBudget(), web()
    for _ in range(throttle.BURST):
        assert found.delay(service, now=0.0) == 0.0
        found.spend(service, now=0.0)
    assert found.delay(service, now=5.0) == throttle.INTERVAL - 5.0
    found.spend(service, now=throttle.INTERVAL)
    assert found.delay(service, now=throttle.INTERVAL) == throttle.INTERVAL
    later = throttle.INTERVAL * (throttle.BURST + 1)
    for _ in range(throttle.BURST):
        assert found.delay(service, now=later) == 0.0
        found.spend(service, now=later)
    found.forget(service.key)
    assert found.delay(service, now=later) == 0.0


def test_services_without_recent_writes_are_forgotten() -> None:
    """The budget remembers only the Services of the last minutes, because a leader may run for months."""
    found = throttle.WriteBudget()
    for number in range(10_000):
        found.spend(web(f"shop/s{number}"), now=float(number))
    assert len(found) < 2_000


async def test_retry_after_is_obeyed() -> None:
    """A throttled write is sent again after the delay that the API server requested, not sooner."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        times: list[float] = []

        def answer() -> bool:
            times.append(asyncio.get_running_loop().time())
            if len(times) == 1:
                raise Throttled(429, "TooManyRequests", "slow down", retry_after=0.3)
            return True

        fixture.writer.answers = [answer, answer]
        fixture.queue.add(WEB)
        await fixture.until(lambda: len(times) == 2)
        assert times[1] - times[0] >= 0.29  # the loop's clock is coarse
