"""
An event loop whose time stands still until it is told to pass.

:meth:`Loop.spin` runs whatever can run now; what waits for a time waits for :meth:`Loop.skip`. So a history needs no
second of real time, and the same choices give the same history.
"""

import asyncio
import selectors
from collections.abc import Callable


class _Still(selectors.SelectSelector):
    """Nothing ever comes from outside; asked to wait, it notes for how long and stops the loop instead."""

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
        """The time is 0."""
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
        """Run until everybody waits; for how many seconds at least, None: for no time."""
        self.run_forever()
        return self._still.wait

    def skip(self, seconds: float) -> None:
        """Let *seconds* pass, and everything happen that is due meanwhile."""
        until = self.seconds + seconds
        while (wait := self.spin()) is not None and self.seconds + wait <= until:
            self.seconds += wait
        self.seconds = until
        self.spin()
