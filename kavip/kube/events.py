"""
The Event recorder: ``events.k8s.io/v1``, with low priority.

:meth:`Events.emit` only queues a note. One sender works through the queue, one call at a time, and slowly enough not to
delay status writes. Repeated notes (same object, reason and text) become one Event with a series. A full queue drops
its oldest note. What is dropped is counted, and logged once a minute at most.
"""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from kavip import telemetry
from kavip.api.event import Note
from kavip.errors import KavipError, NotFound, Throttled, Unavailable
from kavip.kube.backoff import backoff
from kavip.kube.client import Client
from kavip.kube.resources import EVENTS

log = structlog.get_logger()

_MAX_SERIES: Final = 4096  # a note of a forgotten series starts a new one
_MAX_NOTE: Final = 1024  # bytes; the limit of the API
_MAX_WORD: Final = 128  # bytes of reason, action and reporting instance
_PAUSE_FACTOR: Final = 4  # the pause after a call, in durations of that call: a slow API server is busy with others
_LONGEST_PAUSE: Final = 1.0  # seconds
_LOG_INTERVAL: Final = 60.0  # seconds between two lines about dropped notes
_QUEUE_FULL: Final = "the queue is full"


@dataclass(frozen=True, slots=True)
class _Series:
    """The Event of a note in the API server: its *name*, its count, and the time of the last update."""

    name: str
    count: int = 1
    sent_at: float = 0.0


@dataclass(slots=True)
class _Unsent:
    """The occurrences of a note that are not sent yet, and the times of the *first* and the *last* one."""

    count: int
    first: str
    last: str


class Events:
    """An Event recorder; :meth:`run` is its sender."""

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
        *reporter* (``kavip.io/controller``) and *instance* identify the reporting controller.

        *pause*: seconds between two calls, at least. *window*: seconds between two updates of the same series.
        """
        self._client, self._reporter, self._instance = client, reporter, _clipped(instance, _MAX_WORD)
        self._pause, self._window = pause, window
        self._queue: asyncio.Queue[Note] = asyncio.Queue(capacity)
        self._series: OrderedDict[Note, _Series] = OrderedDict()
        self._unsent: dict[Note, _Unsent] = {}
        self.dropped = 0
        """Notes that were never sent: the queue was full, or the API server refused them."""
        self._logged = 0  # of these
        self._last_drop: dict[str, str] = {}
        self._next_line: asyncio.TimerHandle | None = None

    def emit(self, note: Note) -> None:
        """Queue *note*; never blocks, never fails."""
        now = _now()
        if (unsent := self._unsent.get(note)) is not None:
            unsent.count, unsent.last = unsent.count + 1, now
            return
        self._unsent[note] = _Unsent(1, now, now)
        series = self._series.get(note)
        loop = asyncio.get_running_loop()
        if series is not None and (due := series.sent_at + self._window) > loop.time():
            loop.call_at(due, self._enqueue, note)
        else:
            self._enqueue(note)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            took = await self._deliver(await self._queue.get())
            await asyncio.sleep(max(self._pause, min(_PAUSE_FACTOR * took, _LONGEST_PAUSE)))

    def _enqueue(self, note: Note) -> None:
        if self._queue.full():
            self._drop(self._queue.get_nowait(), _QUEUE_FULL)
        self._queue.put_nowait(note)

    def _drop(self, note: Note, error: str) -> None:
        self._unsent.pop(note, None)
        self.dropped += 1
        telemetry.EVENTS_DROPPED.inc()
        about = note.regarding
        self._last_drop = {
            "kind": about.kind,
            "object": "/".join(filter(None, (about.namespace, about.name))),
            "reason": note.reason,
            "error": error,
        }
        if self._next_line is None:
            self._log_drops()

    def _log_drops(self) -> None:
        """Log how many notes were dropped since the last line, and again after a while if there are more."""
        self._next_line = None
        if self.dropped > self._logged:
            log.warning("events dropped", dropped=self.dropped - self._logged, **self._last_drop)
            self._logged = self.dropped
            self._next_line = asyncio.get_running_loop().call_later(_LOG_INTERVAL, self._log_drops)

    async def _deliver(self, note: Note) -> float:
        """Send *note*, and retry while the API server is unavailable or throttles; the seconds of the last call."""
        failures, loop = 0, asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._send(note)
                return loop.time() - started
            except (Throttled, Unavailable) as error:
                log.debug("event delayed", reason=note.reason, error=str(error))
                delay = backoff(failures, base=1.0, cap=60.0)
                failures += 1
                await asyncio.sleep(max(delay, error.retry_after or 0.0))
            except KavipError as error:
                self._drop(note, str(error))
                return loop.time() - started

    async def _send(self, note: Note) -> None:
        """Create an Event, or update its series."""
        sent, series = replace(self._unsent[note]), self._series.get(note)  # more may come during a call
        if series is not None:
            series = await self._update(note, replace(series, count=series.count + sent.count), at=sent.last)
        if series is None:
            series = await self._create(note, sent)
        self._series[note] = replace(series, sent_at=asyncio.get_running_loop().time())
        self._series.move_to_end(note)
        if len(self._series) > _MAX_SERIES:
            self._series.popitem(last=False)
        self._mark_sent(note, sent.count)

    def _mark_sent(self, note: Note, count: int) -> None:
        """Forget *count* occurrences; queue those that were emitted during the call."""
        unsent = self._unsent.pop(note)
        if (left := unsent.count - count) > 0:
            self.emit(note)
            self._unsent[note] = replace(unsent, count=left, first=unsent.last)

    async def _create(self, note: Note, unsent: _Unsent) -> _Series:
        series = _Series(f"{note.regarding.name[:200]}.{secrets.token_hex(8)}", unsent.count)
        body = self._body(note, at=unsent.first)
        if series.count > 1:  # the API refuses a series of one
            body["series"] = _series_body(series, at=unsent.last)
        await self._client.create(EVENTS, f"{_namespace(note)}/{series.name}", body)
        return series

    async def _update(self, note: Note, series: _Series, *, at: str) -> _Series | None:
        """Write the count of *series*; return None if its Event has expired."""
        body = {"series": _series_body(series, at=at)}
        try:
            await self._client.patch(EVENTS, f"{_namespace(note)}/{series.name}", body)
        except NotFound:
            return None
        return series

    def _body(self, note: Note, *, at: str) -> dict[str, Any]:
        return {
            "regarding": msgspec.to_builtins(note.regarding),
            "reason": _clipped(note.reason, _MAX_WORD),
            "note": _clipped(note.text, _MAX_NOTE),
            "action": _clipped(note.action, _MAX_WORD),
            "type": note.severity,
            "eventTime": at,
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
        }


def _series_body(series: _Series, *, at: str) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": at}


def _namespace(note: Note) -> str:
    """The namespace of the Event; that of a cluster-scoped object is ``default``."""
    return note.regarding.namespace or "default"


def _clipped(text: str, limit: int) -> str:
    """*text* in at most *limit* bytes; no character is split."""
    return text.encode()[:limit].decode(errors="ignore")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
