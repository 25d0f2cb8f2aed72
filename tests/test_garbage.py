"""Garbage collection while the caches fill."""

import asyncio
import gc
import weakref

import pytest

from kavip import app

pytestmark = pytest.mark.looptime


async def test_filled_caches_are_exempt_from_garbage_collection() -> None:
    """Until they are filled, no collection of all objects starts by itself. Afterwards all is as before."""
    filled, usual = asyncio.Event(), gc.get_threshold()

    async def wait() -> None:
        await filled.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(app.freeze_when(wait))
        await asyncio.sleep(app.COLLECTION_INTERVAL / 2)
        assert gc.get_threshold()[2] > 1000 * usual[2]
        cache: list[object] = [[]]
        filled.set()
    assert gc.get_threshold() == usual
    assert not any(each is cache for each in gc.get_objects())  # it lists what may be collected


async def test_clients_cannot_fill_the_memory_with_garbage_meanwhile() -> None:
    """What failed connections leave is collected while the caches fill, and nothing of it is kept for ever."""

    class Connection:
        """It refers to itself, as one that failed."""

        def __init__(self) -> None:
            self.itself = self
            self.others: list[list[int]] = [[] for _ in range(45)]

    freed = 0

    def leave() -> None:
        nonlocal freed
        weakref.finalize(Connection(), count)

    def count() -> None:
        nonlocal freed
        freed += 1

    async def fill() -> None:
        await asyncio.sleep(1)
        for _ in range(2_000):
            leave()
        assert freed > 1_000

    await app.freeze_when(fill)
    assert freed == 2_000


async def test_garbage_is_collected_while_the_caches_do_not_fill() -> None:
    """An API server may be away for hours, and each failed call leaves garbage."""
    found = list[str]()
    gc.callbacks.append(lambda phase, _: found.append(phase))
    try:
        filling = asyncio.create_task(app.freeze_when(asyncio.Event().wait))  # type: ignore[arg-type]  # never done
        await asyncio.sleep(2.5 * app.COLLECTION_INTERVAL)
        assert found == ["start", "stop"] * 2
        filling.cancel()
        await asyncio.gather(filling, return_exceptions=True)
    finally:
        gc.callbacks.pop()
    assert gc.isenabled()
