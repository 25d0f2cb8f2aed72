"""An event loop beside the test."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

PATIENCE = 60.0  # seconds for what takes a moment

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, so that tests may wait for kubectl while it serves."""

    def __init__(self) -> None:
        """Start it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do *work* there and wait for it."""
        return self.submit(work).result(PATIENCE)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Do *work* there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
