"""
What puts pictures on the board: the watches of a cluster and the answers of its agents, or files, once.

Changes that come together make one picture. A large cluster gets fewer pictures: making them takes a fifth of the time.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Final

import msgspec

from kavip import names
from kavip.api.event import Event
from kavip.api.group import KeepalivedGroup
from kavip.api.instant import instant_text
from kavip.cli.sources.agents import ask_once
from kavip.cli.sources.watch import watch_decisions
from kavip.cli.ui.board import Board, Moment
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture import timeline
from kavip.cli.views.picture.picture import NOT_ASKED, AgentAnswers, Picture, picture_of
from kavip.cli.views.picture.rows import TimelineRow
from kavip.errors import ApiError, Forbidden
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.codec import Malformed

_SHARE: Final = 4  # times as long as it took to make a picture, until the next one
_BETWEEN: Final = 5.0  # seconds between two questions to agents
_EACH: Final = 0.05  # seconds more for each agent
_REPORTED: Final = f"reportingController={names.KAVIP_GROUP}/controller"
_EVENTS: Final = "you may not list events: the timeline begins now"


def of_files(listing: Listing, *, now: datetime) -> Moment:
    """The only moment of *listing*, which was read from files."""
    return Moment(1, now, picture_of(listing, now=now), listing)


async def past_events(client: Client, namespace: str) -> tuple[Sequence[Event], str]:
    """The Events of all namespaces, else of *namespace*; and a note if the user may read none."""
    for where in ("", namespace):
        with suppress(Forbidden):
            found, _ = await client.list(resources.EVENTS, namespace=where, fields=_REPORTED, on_malformed=_skip)
            return found, ""
    return (), _EVENTS


@dataclass(slots=True)
class ClusterFeed:
    """Puts the pictures of the cluster of *client* on a board; objects of *namespace* if the user may not list all."""

    client: Client
    namespace: str
    board: Board = field(default_factory=lambda: Board(Moment(0, datetime.now(UTC), Picture())))
    _agents: AgentAnswers = NOT_ASKED
    _listing: Listing = field(default_factory=Listing)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _listed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Follow the cluster until cancelled. Raises ApiError if it does not answer at the beginning."""
        events, note = await past_events(self.client, self.namespace)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(note))
                tasks.create_task(self._ask_agents())
                tasks.create_task(self._publish(timeline.from_events(events)))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None

    async def _watch(self, note: str) -> None:
        async for listing in watch_decisions(self.client, self.namespace):
            notes = (*listing.notes, note) if note else listing.notes
            self._listing = Listing(
                listing.objects, absent=listing.absent, notes=notes, watch_error=listing.watch_error
            )
            self._listed.set()
            self._changed.set()

    async def _ask_agents(self) -> None:
        """Ask the agents again and again, while somebody looks."""
        await self._listed.wait()
        while True:
            groups = [each for each in self._listing.objects if isinstance(each, KeepalivedGroup)]
            try:
                agents = await ask_once(self.client, groups)
            except ApiError as error:
                agents = replace(self._agents, late=str(error))
            if agents != self._agents:
                self._agents = agents
                self._changed.set()
            await asyncio.sleep(_BETWEEN + _EACH * len(agents.answers))
            while not self.board.readers:
                await asyncio.sleep(1.0)

    async def _publish(self, past: tuple[TimelineRow, ...]) -> None:
        """Publish a picture after each change; the first one has the timeline of the *past*."""
        await self._listed.wait()
        while True:
            await self._changed.wait()
            self._changed.clear()
            started, before = monotonic(), self.board.latest
            moment = await asyncio.to_thread(next_moment, before, self._listing, self._agents, past)
            self.board.publish(moment)
            await asyncio.sleep(_SHARE * (monotonic() - started))


def next_moment(before: Moment, listing: Listing, agents: AgentAnswers, past: tuple[TimelineRow, ...]) -> Moment:
    """The moment after *before*; the first one has the timeline of the *past*."""
    now, error = datetime.now(UTC), listing.watch_error or agents.late
    picture = picture_of(listing, agents, now=now)
    rows = timeline.continued(before.picture, picture, at=instant_text(now)) if before.number else past
    return Moment(
        number=before.number + 1,
        at=before.at if error and before.error else now,  # it was current until the watch broke
        picture=msgspec.structs.replace(picture, timeline=rows),
        listing=listing,
        error=error,
    )


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _skip(_: Malformed) -> None:
    """Skip an Event that cannot be read."""
