"""
An event loop with virtual time.

:meth:`Loop.spin` runs all callbacks that are due; :meth:`Loop.skip` advances the time. So a history needs no real time,
and the same choices give the same history.
"""

import asyncio
import selectors
from collections.abc import Callable


class _Still(selectors.SelectSelector):
    """A selector without file descriptors: instead of waiting, it records the timeout and stops the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.stop: Callable[[], None] = lambda: None
        self.wait: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self.wait = timeout
            self.stop()
        return []


class Loop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        """Start at second 0."""
        self._still = _Still()
        super().__init__(self._still)
        self._still.stop = self.stop
        self.seconds = 0.0
        self.faults: list[dict[str, object]] = []
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    def time(self) -> float:
        """The seconds that have passed."""
        return self.seconds

    def spin(self) -> float | None:
        """Run until all tasks wait; the seconds until the next timer, None without a timer."""
        self.run_forever()
        return self._still.wait

    def skip(self, seconds: float) -> None:
        """Advance the time by *seconds*, and run everything that becomes due."""
        until = self.seconds + seconds
        while (wait := self.spin()) is not None and self.seconds + wait <= until:
            self.seconds += wait
        self.seconds = until
        self.spin()
