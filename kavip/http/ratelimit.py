"""A rate limit for each sender: token buckets, in bounded memory."""

import time
from collections.abc import Callable, Hashable
from typing import Final

MAX_SENDERS: Final = 1024


class SenderRateLimiter:
    """Each sender may act *burst* times at once, and then *per_second* times a second; *clock* returns seconds."""

    def __init__(self, *, burst: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Every bucket is full."""
        self._interval, self._slack = 1 / per_second, (burst - 1) / per_second
        self._clock = clock
        self._due: dict[Hashable, float] = {}  # when the bucket is full again; the sender that acted last is last

    def take(self, sender: Hashable) -> bool:
        """Take one from the bucket of *sender*; return whether there was one."""
        now = self._clock()
        due = max(self._due.pop(sender, now), now)
        is_allowed = due - now <= self._slack
        self._due[sender] = due + self._interval if is_allowed else due
        if len(self._due) > MAX_SENDERS:
            del self._due[next(iter(self._due))]
        return is_allowed
