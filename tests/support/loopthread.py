"""An event loop in a thread beside the test."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

PATIENCE = 60.0  # seconds; normally a moment is enough

T = TypeVar("T")


class LoopThread:
    """An event loop in its own thread, so that a test can wait for kubectl while the loop serves."""

    def __init__(self) -> None:
        """Start it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the loop and wait for its result."""
        return self.submit(work).result(PATIENCE)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run *work* on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Stop the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
