"""Configurations that the daemon did not survive, or never showed: they stay away for a while, ever longer."""

import time
from dataclasses import dataclass
from typing import Final

PENALTY: Final = (60.0, 300.0, 1500.0, 7500.0)  # seconds


@dataclass(frozen=True, slots=True)
class _Failure:
    """There is at most one, that in the mount."""

    text: str
    reason: str
    count: int
    until: float


class Penalties:
    """Remembers what failed."""

    def __init__(self) -> None:
        self._failure: _Failure | None = None

    def impose(self, text: str, *, reason: str) -> None:
        """Keep *text* away, for longer each time."""
        count = self._failure.count + 1 if self._failure and self._failure.text == text else 1
        until = time.monotonic() + PENALTY[min(count, len(PENALTY)) - 1]
        self._failure = _Failure(text, reason, count, until)

    def reason(self, text: str) -> str:
        """Why *text* failed when it was last tried; "" where it did not."""
        return self._failure.reason if self._failure and self._failure.text == text else ""

    def bars(self, text: str) -> bool:
        """Whether *text* is not to be tried yet."""
        return bool(self.reason(text)) and self._failure is not None and time.monotonic() < self._failure.until

    def lift(self, text: str) -> bool:
        """Forget that *text* failed; whether it had."""
        had = bool(self.reason(text))
        self._failure = None if had else self._failure
        return had
