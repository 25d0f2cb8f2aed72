"""The work queue, on virtual time."""

import asyncio

import pytest

from kavip.errors import QueueClosed
from kavip.kube.workqueue import PATIENCE, SHARE, WorkQueue

pytestmark = pytest.mark.looptime


async def taken(queue: WorkQueue[str], count: int) -> list[str]:
    """Lend *count* keys, one after the other."""
    keys = []
    for _ in range(count):
        async with asyncio.timeout(1), queue.lend() as key:
            keys.append(key)
    return keys


async def nothing_is_lent(queue: WorkQueue[str]) -> bool:
    """Whether the queue has nothing to lend for a minute."""
    try:
        async with asyncio.timeout(60), queue.lend():
            return False
    except TimeoutError:
        return True


async def test_ten_adds_are_one_piece_of_work() -> None:
    """Adds before the key is picked up are folded."""
    queue = WorkQueue[str]()
    for _ in range(10):
        queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    assert await taken(queue, 2) == ["a", "b"]
    assert len(queue) == 0


async def test_keys_come_in_the_order_in_which_they_became_dirty() -> None:
    """A key that is added again keeps its place."""
    queue = WorkQueue[str]()
    for key in ("c", "a", "b", "a", "c"):
        queue.add(key)
    assert await taken(queue, 3) == ["c", "a", "b"]


async def test_a_key_that_may_wait_lets_others_pass_but_not_for_ever() -> None:
    """Whoever comes first goes last, until its patience ends; then it is next."""
    queue = WorkQueue[str](may_wait=str.isupper)
    for key in ("A", "B", "a", "b"):
        queue.add(key)
    assert await taken(queue, 2) == ["a", "b"]
    assert await taken(queue, 1) == ["A"]
    queue.add("c")
    await asyncio.sleep(PATIENCE)
    queue.add("A")
    assert await taken(queue, 3) == ["B", "c", "A"]


async def test_keys_behind_let_others_pass_but_one_of_so_many() -> None:
    """What is new goes first, in its order, and those behind keep theirs and come on all the same."""
    queue = WorkQueue[str]()
    for number in range(4):
        queue.add_behind(f"behind {number}")
    new = [f"new {number}" for number in range(SHARE)]
    for key in new:
        queue.add(key)
    assert len(queue) == 4 + SHARE
    assert await taken(queue, SHARE + 2) == [*new[:-1], "behind 0", new[-1], "behind 1"]
    queue.add("a")
    assert await taken(queue, 3) == ["a", "behind 2", "behind 3"]
    assert len(queue) == 0


async def test_a_key_behind_comes_to_the_others_with_news() -> None:
    """It is still one piece of work, and what was lent out meanwhile is lent once more."""
    queue = WorkQueue[str]()
    for key in ("a", "b", "c"):
        queue.add_behind(key)
    queue.add("c")
    queue.add_behind("c")
    assert await taken(queue, 1) == ["c"]
    async with queue.lend() as key:
        assert key == "a"
        queue.add_behind("a")
        assert await taken(queue, 1) == ["b"]
        assert await nothing_is_lent(queue)
    assert await taken(queue, 1) == ["a"]
    assert await nothing_is_lent(queue)


async def test_keys_that_may_wait_wait_for_those_behind_until_their_patience_ends() -> None:
    """Then they are next."""
    queue = WorkQueue[str](may_wait=str.isupper)
    queue.add("A")
    for key in ("a", "b"):
        queue.add_behind(key)
    assert await taken(queue, 1) == ["a"]
    await asyncio.sleep(PATIENCE)
    assert await taken(queue, 2) == ["A", "b"]


async def test_a_key_added_while_lent_is_lent_once_more_and_only_afterwards() -> None:
    """No key is in two hands, and nothing added is lost."""
    queue = WorkQueue[str]()
    queue.add("a")
    async with queue.lend():
        queue.add("a")
        queue.add("a")
        assert await nothing_is_lent(queue)
    assert await taken(queue, 1) == ["a"]
    assert await nothing_is_lent(queue)


async def test_of_two_times_the_earlier_counts() -> None:
    """A later or an earlier timer for the same key never makes two pieces of work."""
    queue, clock = WorkQueue[str](), asyncio.get_running_loop().time
    began = clock()
    for delay in (3600, 600, 7200):
        queue.add_after("a", delay)
    async with queue.lend() as key:
        assert (key, clock() - began) == ("a", 600)
    async with asyncio.timeout(7200):
        assert await nothing_is_lent(queue)


async def test_an_add_makes_a_pending_time_moot() -> None:
    """Whoever works on the key now sets the next time."""
    queue = WorkQueue[str]()
    queue.add_after("a", 30)
    queue.add("a")
    assert await taken(queue, 1) == ["a"]
    assert await nothing_is_lent(queue)


async def test_back_off_doubles_up_to_the_cap_and_is_forgotten() -> None:
    """Each delay lies between half of the back-off and all of it."""
    queue, clock = WorkQueue[str](base=1, cap=10), asyncio.get_running_loop().time
    for failures, full in enumerate((1, 2, 4, 8, 10, 10)):
        assert queue.failures("a") == failures
        began = clock()
        delay = queue.retry("a")
        assert full / 2 <= delay <= full
        async with queue.lend() as key:
            assert key == "a"
            assert clock() - began == pytest.approx(delay, abs=0.01)
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.retry("a") <= 1


async def test_a_cancelled_waiter_loses_nothing() -> None:
    """A key that woke a waiter who was cancelled at the same moment goes to the next one."""
    queue, got = WorkQueue[str](), []

    async def work() -> None:
        async with queue.lend() as key:
            got.append(key)

    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    await asyncio.wait({first})
    async with asyncio.timeout(1):
        await second
    assert got == ["a"]


async def test_a_failure_in_the_block_gives_the_key_back() -> None:
    """A worker that raises does not keep its key."""
    queue = WorkQueue[str]()
    queue.add("a")
    with pytest.raises(ZeroDivisionError):
        async with queue.lend():
            raise ZeroDivisionError
    assert await nothing_is_lent(queue)
    queue.add("a")
    assert await taken(queue, 1) == ["a"]


@pytest.mark.slow
async def test_many_workers_share_the_keys_without_doing_one_twice() -> None:
    """A thousand keys, added more than once, are lent one thousand times to 32 workers."""
    queue, done = WorkQueue[int](), []

    async def work() -> None:
        while True:
            async with queue.lend() as key:
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


async def test_a_closed_queue_lends_nothing_and_takes_nothing() -> None:
    """Whoever waits is told at once; what is lent is finished; timers are gone."""
    queue = WorkQueue[str]()
    queue.add("lent")
    async with queue.lend():
        queue.add("lent")
        queue.add_after("later", 5)
        queue.retry("failed")
        waiting = asyncio.create_task(queue.lend().__aenter__())
        await asyncio.sleep(0)
        queue.close()
        with pytest.raises(QueueClosed):
            await waiting
    queue.add("late")
    queue.add_after("later", 0)
    await asyncio.sleep(600)
    assert len(queue) == 0
    with pytest.raises(QueueClosed):
        async with queue.lend():
            pass
