"""
The fake API client of one replica: events and writes pass only when the history decides.

It has those methods of :class:`kavip.kube.client.Client` that caches and writers use. The watch of each kind lags by
itself. Watches break, expire and repeat events. Writes succeed, fail, or get no response.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fuzz.histories.server import Server
from kavip.errors import ApiError, Gone, Rejected, Throttled, Unavailable
from kavip.kube.codec import Changed, Deleted
from kavip.snapshot import Object


class WriteResult(StrEnum):
    """The result of a write."""

    DONE = "done and answered"
    SLOW = "done; the answer comes later"
    LOST = "done, and no answer"
    LATE = "no answer; perhaps done later"
    NEVER = "no answer, and never done"
    REFUSED = "refused"
    THROTTLED = "throttled"


@dataclass(slots=True, eq=False)
class Request:
    """A status patch that was sent; *answer* is set once the server has processed it."""

    by: str
    kind: str
    key: str
    body: Mapping[str, Any]
    future: "asyncio.Future[Object]"
    answer: Object | ApiError | None = None


class FakeClient:
    """One replica's client."""

    def __init__(self, server: Server, name: str) -> None:
        """Start with all events delivered and no open request."""
        self.name = name
        self.requests: list[Request] = []
        self.adrift: list[Request] = []  # the replica has given these up, but the server may still process them
        self._server = server
        self._granted: defaultdict[str, int] = defaultdict(int)
        self._rewind: defaultdict[str, int] = defaultdict(int)
        self._faults: dict[str, ApiError] = {}
        self._news: dict[str, asyncio.Future[None]] = {}

    # --- called by the history --------------------------------------------------------------------------------------
    def backlog(self) -> list[str]:
        """The kinds with undelivered events."""
        return [kind for kind, changes in self._server.changes.items() if self._granted[kind] < len(changes)]

    def deliver(self, kind: str, count: int) -> None:
        """Deliver the next *count* events of *kind*."""
        self._granted[kind] = min(self._granted[kind] + count, len(self._server.changes[kind]))
        self._nudge(kind)

    def deliver_all(self) -> None:
        """Deliver all events."""
        for kind in self.backlog():
            self.deliver(kind, len(self._server.changes[kind]))

    def disturb(self, kind: str, error: ApiError, *, rewind: int = 0) -> None:
        """End the watch of *kind* with *error*; the next watch repeats the last *rewind* events."""
        self._faults[kind], self._rewind[kind] = error, rewind
        self._nudge(kind)

    def finish(self, request: Request, result: WriteResult) -> None:
        """End *request* with *result*."""
        if result in (WriteResult.DONE, WriteResult.SLOW, WriteResult.LOST) and request.answer is None:
            self.process(request)
        if result is WriteResult.SLOW:
            return
        self.requests.remove(request)
        if result is WriteResult.LATE and request.answer is None:
            self.adrift.append(request)
        answer: Object | ApiError | None = request.answer
        if result is not WriteResult.DONE:
            answer = _ERRORS[result]
        if request.future.done():
            return
        if isinstance(answer, ApiError):
            request.future.set_exception(type(answer)(answer.status, answer.reason, answer.message))
        elif answer is not None:
            request.future.set_result(answer)

    def process(self, request: Request) -> None:
        """Let the server process *request*."""
        try:
            request.answer = self._server.patch_status(request.by, request.kind, request.key, request.body)
        except ApiError as error:
            request.answer = error

    def disconnect(self) -> list[Request]:
        """Disconnect the replica; its requests that the server has not processed."""
        left = [*self.adrift, *(request for request in self.requests if request.answer is None)]
        self.requests, self.adrift = [], []
        return left

    # --- called by the replica --------------------------------------------------------------------------------------
    async def list(self, resource: Any, **_: Any) -> tuple[Sequence[Object], str]:
        """All objects, and the version of the list."""
        kind = resource.kind
        return list(self._server.objects[kind].values()), str(self._server.version)

    @asynccontextmanager
    async def watch(self, resource: Any, version: str, **_: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """The events after *version*, each when it is delivered."""
        kind, rewind = resource.kind, self._rewind.pop(resource.kind, 0)
        start = max(self._server.after(kind, int(version)) - rewind, 0)
        if rewind:
            self._granted[kind] = start
        yield self._events(kind, start)

    async def _events(self, kind: str, at: int) -> AsyncIterator[Any]:
        while True:
            if fault := self._faults.pop(kind, None):
                raise fault
            if at >= self._granted[kind]:
                self._news[kind] = asyncio.get_running_loop().create_future()
                await self._news[kind]
                continue
            change = self._server.changes[kind][at]
            at += 1
            yield Changed(change.new) if change.new is not None else Deleted(change.key, str(change.version))

    async def patch(self, resource: Any, key: str, body: Mapping[str, Any], **_: Any) -> Object:
        """Send a status patch, and wait for its result."""
        future: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        self.requests.append(Request(self.name, resource.kind, key, body, future))
        return await future

    def _nudge(self, kind: str) -> None:
        if (news := self._news.get(kind)) and not news.done():
            news.set_result(None)


_NO_ANSWER = Unavailable(0, "Timeout", "no answer")
_ERRORS: Mapping[WriteResult, ApiError] = {
    WriteResult.LOST: _NO_ANSWER,
    WriteResult.LATE: _NO_ANSWER,
    WriteResult.NEVER: _NO_ANSWER,
    WriteResult.REFUSED: Rejected(422, "Invalid", "refused"),
    WriteResult.THROTTLED: Throttled(429, "TooManyRequests", "later"),
}
BROKEN = Unavailable(0, "Reset", "connection reset")
EXPIRED = Gone(410, "Expired", "too old")
