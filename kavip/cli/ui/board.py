"""The latest picture, for streams that wait for the next one. There are no queues: a slow stream skips pictures."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.picture import Picture


@dataclass(frozen=True, slots=True)
class Moment:
    """
    The *picture* of *listing*, which was current *at* a time.

    *error*: why it may be outdated, "" if it is current.
    """

    number: int
    at: datetime
    picture: Picture
    listing: Listing = field(default_factory=Listing)
    error: str = ""


class Board:
    """Holds the latest :class:`Moment`."""

    def __init__(self, first: Moment) -> None:
        self.latest = first
        self.readers = 0
        """How many streams show it."""
        self.is_closed = False
        self._changed = asyncio.Event()  # replaced with each moment

    def publish(self, moment: Moment) -> None:
        """Make *moment* the latest one."""
        self.latest = moment
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """End all waits for a moment, those that begin later too."""
        self.is_closed = True
        self._changed.set()

    async def after(self, number: int, *, timeout: float) -> Moment:
        """The first moment after *number*; the latest one after *timeout* seconds, or when the board is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.latest.number <= number and not self.is_closed:
                    await self._changed.wait()
        return self.latest
