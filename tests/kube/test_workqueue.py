"""The work queue, on virtual time."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from kavip.errors import QueueClosed
from kavip.kube.workqueue import LOW_PRIORITY_CONCURRENCY, LOW_PRIORITY_SHARE, MAX_DEFER_SECONDS, WorkQueue

pytestmark = pytest.mark.looptime


async def taken(queue: WorkQueue[str], count: int) -> list[str]:
    """Process *count* keys one by one."""
    keys = []
    for _ in range(count):
        async with asyncio.timeout(1), queue.get() as key:
            keys.append(key)
    return keys


async def is_idle(queue: WorkQueue[str], seconds: float = 60.0) -> bool:
    """Whether no key is processed for so many *seconds*."""
    try:
        async with asyncio.timeout(seconds), queue.get():
            return False
    except TimeoutError:
        return True


async def test_ten_adds_are_processed_once() -> None:
    """Adds before a key is processed are folded."""
    queue = WorkQueue[str]()
    for _ in range(10):
        queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    assert await taken(queue, 2) == ["a", "b"]
    assert len(queue) == 0


async def test_keys_are_processed_in_the_order_of_their_first_add() -> None:
    """A key that is added again keeps its place."""
    queue = WorkQueue[str]()
    for key in ("c", "a", "b", "a", "c"):
        queue.add(key)
    assert await taken(queue, 3) == ["c", "a", "b"]


async def test_a_deferred_key_lets_others_pass_for_a_while() -> None:
    """Then it is next."""
    queue = WorkQueue[str](can_defer=str.isupper)
    for key in ("A", "B", "a", "b"):
        queue.add(key)
    assert await taken(queue, 2) == ["a", "b"]
    assert await taken(queue, 1) == ["A"]
    queue.add("c")
    await asyncio.sleep(MAX_DEFER_SECONDS)
    queue.add("A")
    assert await taken(queue, 3) == ["B", "c", "A"]


async def test_low_priority_keys_get_their_share() -> None:
    """Other keys come first, but every eighth key has low priority; both keep their order."""
    queue = WorkQueue[str]()
    for number in range(4):
        queue.add_low_priority(f"behind {number}")
    new = [f"new {number}" for number in range(LOW_PRIORITY_SHARE)]
    for key in new:
        queue.add(key)
    assert len(queue) == 4 + LOW_PRIORITY_SHARE
    assert await taken(queue, LOW_PRIORITY_SHARE + 2) == [*new[:-1], "behind 0", new[-1], "behind 1"]
    queue.add("a")
    assert await taken(queue, 3) == ["a", "behind 2", "behind 3"]
    assert len(queue) == 0


async def test_an_add_raises_the_priority() -> None:
    """The key is still processed once; if it is being processed, it is processed again."""
    queue = WorkQueue[str]()
    for key in ("a", "b", "c"):
        queue.add_low_priority(key)
    queue.add("c")
    queue.add_low_priority("c")
    assert await taken(queue, 1) == ["c"]
    async with queue.get() as key:
        assert key == "a"
        queue.add_low_priority("a")
        assert await taken(queue, 1) == ["b"]
        assert await is_idle(queue)
    assert await taken(queue, 1) == ["a"]
    assert await is_idle(queue)


async def test_few_low_priority_keys_are_processed_at_once() -> None:
    """Other keys find a worker at once, and their writes do not queue behind the writes of low priority."""
    queue = WorkQueue[str]()
    for number in range(LOW_PRIORITY_CONCURRENCY + 1):
        queue.add_low_priority(f"low {number}")
    async with AsyncExitStack() as stack:
        for number in range(LOW_PRIORITY_CONCURRENCY - 1):
            assert await stack.enter_async_context(queue.get()) == f"low {number}"
        async with queue.get() as key:
            assert queue.has_low_priority(key)
            assert await is_idle(queue)
            queue.add("new")
            assert await taken(queue, 1) == ["new"]
        assert not queue.has_low_priority(key)
        assert await taken(queue, 1) == [f"low {LOW_PRIORITY_CONCURRENCY}"]


@pytest.mark.parametrize("urgent", [False, True])
async def test_a_key_may_lower_its_priority_while_it_is_processed(urgent: bool) -> None:
    """A key with low priority is taken after all others; an add raises the priority again."""
    queue = WorkQueue[str]()
    queue.add("a")
    async with queue.get() as key:
        queue.add_low_priority(key)
        if urgent:
            queue.add(key)
        assert len(queue) == 1
    queue.add("b")
    assert await taken(queue, 2) == (["a", "b"] if urgent else ["b", "a"])
    assert await is_idle(queue)


async def test_a_key_may_be_added_with_low_priority_later() -> None:
    """After the delay it is taken after all others; an add cancels the timer, as for any other key."""
    queue = WorkQueue[str]()
    queue.add_low_priority_after("a", 5.0)
    assert await is_idle(queue, 4.9)
    queue.add("b")
    await asyncio.sleep(1.0)
    assert await taken(queue, 2) == ["b", "a"]
    queue.add_low_priority_after("a", 5.0)
    queue.add("a")
    assert await taken(queue, 1) == ["a"]
    assert await is_idle(queue)
    queue.add_low_priority_after("a", 1.0)
    await asyncio.sleep(2.0)
    assert await taken(queue, 1) == ["a"]


async def test_deferred_keys_come_before_low_priority_after_a_while() -> None:
    """Once their time is over they are next."""
    queue = WorkQueue[str](can_defer=str.isupper)
    queue.add("A")
    for key in ("a", "b"):
        queue.add_low_priority(key)
    assert await taken(queue, 1) == ["a"]
    await asyncio.sleep(MAX_DEFER_SECONDS)
    assert await taken(queue, 2) == ["A", "b"]


async def test_a_key_added_while_processed_is_processed_again_afterwards() -> None:
    """No key is processed twice at the same time, and no add is lost."""
    queue = WorkQueue[str]()
    queue.add("a")
    async with queue.get():
        queue.add("a")
        queue.add("a")
        assert await is_idle(queue)
    assert await taken(queue, 1) == ["a"]
    assert await is_idle(queue)


async def test_of_two_times_the_earlier_counts() -> None:
    """Two timers for one key never process it twice."""
    queue, clock = WorkQueue[str](), asyncio.get_running_loop().time
    began = clock()
    for delay in (3600, 600, 7200):
        queue.add_after("a", delay)
    async with queue.get() as key:
        assert (key, clock() - began) == ("a", 600)
    async with asyncio.timeout(7200):
        assert await is_idle(queue)


async def test_an_add_cancels_the_timer() -> None:
    """The worker that processes the key sets the next time."""
    queue = WorkQueue[str]()
    queue.add_after("a", 30)
    queue.add("a")
    assert await taken(queue, 1) == ["a"]
    assert await is_idle(queue)


async def test_back_off_doubles_up_to_the_cap_and_is_forgotten() -> None:
    """Each delay is between half of the back-off and all of it."""
    queue, clock = WorkQueue[str](base=1, cap=10), asyncio.get_running_loop().time
    for failures, full in enumerate((1, 2, 4, 8, 10, 10)):
        assert queue.failures("a") == failures
        began = clock()
        delay = queue.add_rate_limited("a")
        assert full / 2 <= delay <= full
        async with queue.get() as key:
            assert key == "a"
            assert clock() - began == pytest.approx(delay, abs=0.01)
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.add_rate_limited("a") <= 1


async def test_a_cancelled_waiter_loses_nothing() -> None:
    """A key that woke a waiter which was cancelled goes to the next waiter."""
    queue, got = WorkQueue[str](), []

    async def work() -> None:
        async with queue.get() as key:
            got.append(key)

    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    await asyncio.wait({first})
    async with asyncio.timeout(1):
        await second
    assert got == ["a"]


async def test_an_exception_in_the_block_marks_the_key_as_done() -> None:
    """A worker that raises does not keep its key."""
    queue = WorkQueue[str]()
    queue.add("a")
    with pytest.raises(ZeroDivisionError):
        async with queue.get():
            raise ZeroDivisionError
    assert await is_idle(queue)
    queue.add("a")
    assert await taken(queue, 1) == ["a"]


@pytest.mark.slow
async def test_many_workers_process_each_key_once() -> None:
    """32 workers process a thousand keys, added more than once, a thousand times."""
    queue, done = WorkQueue[int](), []

    async def work() -> None:
        while True:
            async with queue.get() as key:
                await asyncio.sleep(key % 7 / 10)
                done.append(key)

    workers = [asyncio.create_task(work()) for _ in range(32)]
    for key in [*range(1000), *range(1000)]:
        queue.add(key)
    await asyncio.sleep(600)
    assert sorted(done) == list(range(1000))
    queue.close()
    outcomes = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(outcome, QueueClosed) for outcome in outcomes)


async def test_a_closed_queue_processes_nothing() -> None:
    """Waiting workers get an exception, a key in process is finished, and timers are cancelled."""
    queue = WorkQueue[str]()
    queue.add("lent")
    async with queue.get():
        queue.add("lent")
        queue.add_after("later", 5)
        queue.add_rate_limited("failed")
        waiting = asyncio.create_task(queue.get().__aenter__())
        await asyncio.sleep(0)
        queue.close()
        with pytest.raises(QueueClosed):
            await waiting
    queue.add("late")
    queue.add_after("later", 0)
    await asyncio.sleep(600)
    assert len(queue) == 0
    with pytest.raises(QueueClosed):
        async with queue.get():
            pass
