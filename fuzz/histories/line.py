"""
The line between one replica and the API server: nothing passes but when the history says so.

It has of :class:`kavip.kube.client.Client` what caches and writers use. Watches lag, each kind for itself; they break,
expire, and repeat what they have told already. Writes are done, refused, or never heard of again.
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


class Fate(StrEnum):
    """What becomes of a write."""

    DONE = "done and answered"
    SLOW = "done; the answer comes later"
    LOST = "done, and no answer"
    LATE = "no answer; done later, perhaps"
    NEVER = "no answer, and never done"
    REFUSED = "refused"
    THROTTLED = "told to come again"


@dataclass(slots=True, eq=False)
class Request:
    """A status patch on its way; *answer* once the server has seen it."""

    by: str
    kind: str
    key: str
    body: Mapping[str, Any]
    future: "asyncio.Future[Object]"
    answer: Object | ApiError | None = None


class Line:
    """One replica's client."""

    def __init__(self, server: Server, name: str) -> None:
        """Everything has been delivered; nothing is under way."""
        self.name = name
        self.requests: list[Request] = []
        self.adrift: list[Request] = []  # nobody waits for these any more, but the server may still get them
        self._server = server
        self._granted: defaultdict[str, int] = defaultdict(int)
        self._rewind: defaultdict[str, int] = defaultdict(int)
        self._faults: dict[str, ApiError] = {}
        self._news: dict[str, asyncio.Future[None]] = {}

    # --- what the history decides -----------------------------------------------------------------------------------
    def backlog(self) -> list[str]:
        """The kinds of which something is not delivered yet."""
        return [kind for kind, changes in self._server.changes.items() if self._granted[kind] < len(changes)]

    def deliver(self, kind: str, count: int) -> None:
        """Let the next *count* changes of *kind* pass."""
        self._granted[kind] = min(self._granted[kind] + count, len(self._server.changes[kind]))
        self._nudge(kind)

    def deliver_all(self) -> None:
        """Let everything pass."""
        for kind in self.backlog():
            self.deliver(kind, len(self._server.changes[kind]))

    def disturb(self, kind: str, error: ApiError, *, rewind: int = 0) -> None:
        """End the watch of *kind*; the next one tells the last *rewind* changes again."""
        self._faults[kind], self._rewind[kind] = error, rewind
        self._nudge(kind)

    def settle(self, request: Request, fate: Fate) -> None:
        """Let *request* have its fate."""
        if fate in (Fate.DONE, Fate.SLOW, Fate.LOST) and request.answer is None:
            self.perform(request)
        if fate is Fate.SLOW:
            return
        self.requests.remove(request)
        if fate is Fate.LATE and request.answer is None:
            self.adrift.append(request)
        answer: Object | ApiError | None = request.answer
        if fate is not Fate.DONE:
            answer = _FAILURES[fate]
        if request.future.done():
            return
        if isinstance(answer, ApiError):
            request.future.set_exception(type(answer)(answer.status, answer.reason, answer.message))
        elif answer is not None:
            request.future.set_result(answer)

    def perform(self, request: Request) -> None:
        """The server gets *request*."""
        try:
            request.answer = self._server.patch_status(request.by, request.kind, request.key, request.body)
        except ApiError as error:
            request.answer = error

    def cut(self) -> list[Request]:
        """The replica is gone; what it has sent and the server has not got."""
        left = [*self.adrift, *(request for request in self.requests if request.answer is None)]
        self.requests, self.adrift = [], []
        return left

    # --- what the replica calls -------------------------------------------------------------------------------------
    async def list(self, resource: Any, **_: Any) -> tuple[Sequence[Object], str]:
        """Everything, as it is now."""
        kind = resource.kind
        return list(self._server.objects[kind].values()), str(self._server.version)

    @asynccontextmanager
    async def watch(self, resource: Any, version: str, **_: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """What happens after *version*, as far as it may pass."""
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
        """Send a status patch, and wait for its fate."""
        future: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        self.requests.append(Request(self.name, resource.kind, key, body, future))
        return await future

    def _nudge(self, kind: str) -> None:
        if (news := self._news.get(kind)) and not news.done():
            news.set_result(None)


_NO_ANSWER = Unavailable(0, "Timeout", "no answer")
_FAILURES: Mapping[Fate, ApiError] = {
    Fate.LOST: _NO_ANSWER,
    Fate.LATE: _NO_ANSWER,
    Fate.NEVER: _NO_ANSWER,
    Fate.REFUSED: Rejected(422, "Invalid", "refused"),
    Fate.THROTTLED: Throttled(429, "TooManyRequests", "later"),
}
BROKEN = Unavailable(0, "Reset", "connection reset")
EXPIRED = Gone(410, "Expired", "too old")
