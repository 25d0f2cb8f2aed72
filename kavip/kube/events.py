"""
Kubernetes Events: ``events.k8s.io/v1``, of low priority.

:meth:`Events.emit` only takes a note; one sender works through the notes, one call at a time, and never so fast that it
is in the way of a status write. What repeats (same object, reason and note) becomes one Event with a series. A full
queue drops its oldest note and counts it. A failure is logged at debug, and that is all that ever comes of it.
"""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from kavip.api.event import Note
from kavip.errors import KavipError, NotFound, Throttled, Unavailable
from kavip.kube.backoff import backoff
from kavip.kube.client import Client
from kavip.kube.resources import EVENTS

log = structlog.get_logger()

_REMEMBERED: Final = 4096  # series; a forgotten one begins anew
_NOTE_BYTES: Final = 1024  # the API's limit
_WORD_BYTES: Final = 128  # of reason, action and reporting instance


@dataclass(frozen=True, slots=True)
class _Series:
    """What the API server knows of a note: the Event's *name*, and when it was last told."""

    name: str
    count: int = 1
    told: float = 0.0


class Events:
    """A recorder; :meth:`run` is its sender."""

    def __init__(
        self,
        client: Client,
        *,
        reporter: str,
        instance: str,
        capacity: int = 1000,
        pause: float = 0.02,
        window: float = 60.0,
    ) -> None:
        """
        *reporter* (``kavip.io/controller``) and *instance* say who reports.

        *pause* is what lies between two calls, *window* between two updates of the same series, in seconds.
        """
        self._client, self._reporter, self._instance = client, reporter, _clipped(instance, _WORD_BYTES)
        self._pause, self._window = pause, window
        self._waiting: asyncio.Queue[Note] = asyncio.Queue(capacity)
        self._known: OrderedDict[Note, _Series] = OrderedDict()
        self._repeats: dict[Note, int] = {}  # seen again, not sent yet
        self.dropped = 0
        """Notes that were never sent, because the queue was full or the API server refused them."""

    def emit(self, note: Note) -> None:
        """Take *note* down; never waits, never fails."""
        if note in self._repeats:
            self._repeats[note] += 1
            return
        self._repeats[note] = 1
        known = self._known.get(note)
        loop = asyncio.get_running_loop()
        if known is not None and (due := known.told + self._window) > loop.time():
            loop.call_at(due, self._enqueue, note)
        else:
            self._enqueue(note)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            note = await self._waiting.get()
            await self._deliver(note)
            await asyncio.sleep(self._pause)

    def _enqueue(self, note: Note) -> None:
        if self._waiting.full():
            self._lose(self._waiting.get_nowait())
        self._waiting.put_nowait(note)

    def _lose(self, note: Note) -> None:
        self._repeats.pop(note, None)
        self.dropped += 1

    async def _deliver(self, note: Note) -> None:
        """Send *note*, again and again while the API server is away or asks for patience."""
        failures = 0
        while True:
            try:
                await self._send(note)
                return
            except (Throttled, Unavailable) as error:
                log.debug("event delayed", reason=note.reason, error=str(error))
                delay = backoff(failures, base=1.0, cap=60.0)
                failures += 1
                await asyncio.sleep(max(delay, error.retry_after or 0.0))
            except KavipError as error:
                log.debug("event lost", reason=note.reason, error=str(error))
                self._lose(note)
                return

    async def _send(self, note: Note) -> None:
        """Begin a series, or tell how far it has come."""
        seen = self._repeats.get(note, 1)
        known = self._known.get(note)
        if known is not None:
            known = await self._continue(note, replace(known, count=known.count + seen))
        if known is None:
            known = await self._begin(note)
        self._known[note] = replace(known, told=asyncio.get_running_loop().time())
        self._known.move_to_end(note)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        self._settle(note, seen)

    def _settle(self, note: Note, sent: int) -> None:
        """Forget what has been told of; what came while it was being told is told later."""
        if (left := self._repeats.pop(note, 0) - sent) > 0:
            self.emit(note)
            self._repeats[note] = left

    async def _begin(self, note: Note) -> _Series:
        about = note.regarding
        series = _Series(f"{about.name[:200]}.{secrets.token_hex(8)}")
        namespace = about.namespace or "default"  # where Events about cluster-scoped objects live
        await self._client.create(EVENTS, f"{namespace}/{series.name}", self._body(note))
        return series

    async def _continue(self, note: Note, series: _Series) -> _Series | None:
        """Raise the count of *series*; None where its Event has expired."""
        body = {"series": {"count": series.count, "lastObservedTime": _now()}}
        try:
            await self._client.patch(EVENTS, f"{note.regarding.namespace or 'default'}/{series.name}", body)
        except NotFound:
            return None
        return series

    def _body(self, note: Note) -> dict[str, Any]:
        return {
            "regarding": msgspec.to_builtins(note.regarding),
            "reason": _clipped(note.reason, _WORD_BYTES),
            "note": _clipped(note.text, _NOTE_BYTES),
            "action": _clipped(note.action, _WORD_BYTES),
            "type": note.severity,
            "eventTime": _now(),
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
        }


def _clipped(text: str, limit: int) -> str:
    """*text* in at most *limit* bytes, whole characters only."""
    return text.encode()[:limit].decode(errors="ignore")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
