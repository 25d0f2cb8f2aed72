"""A clock that a test advances."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """Seconds; it stands still until the test advances it."""

    now: float = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now
