"""Garbage collection while the caches fill."""

import asyncio
import gc

import pytest

from kavip import app

pytestmark = pytest.mark.looptime


async def test_filled_caches_are_exempt_from_garbage_collection() -> None:
    """Until they are filled, no collection starts by itself."""
    filled = asyncio.Event()

    async def wait() -> None:
        await filled.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(app.freeze_when(wait))
        await asyncio.sleep(app.COLLECTION_INTERVAL / 2)
        assert not gc.isenabled()
        cache: list[object] = [[]]
        filled.set()
    assert gc.isenabled()
    assert not any(each is cache for each in gc.get_objects())  # it lists what may be collected


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
