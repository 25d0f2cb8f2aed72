"""
The server of ``kavip ui``: it listens on loopback only.

Everything is bounded: connections, streams, the size of requests, and the rate of pictures. Each stream remembers the
picture that it has sent, and sends the difference to the latest one. So a slow reader costs no memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from math import inf
from typing import Any, Final

import msgspec
from aiohttp import web

from kavip.api.instant import instant_text
from kavip.cli.ui.access import LOOPBACK, Access
from kavip.cli.ui.board import Board, Moment
from kavip.cli.ui.files import PageFile
from kavip.cli.views.picture.changes import changes
from kavip.errors import BadInput
from kavip.http.connection import BoundedConnection, Limits
from kavip.http.listener import Listener

MOST_STREAMS: Final = 8
LIMITS: Final = Limits(connections=32, exchange=10.0)
_LONGEST_TOKEN: Final = 256  # bytes
_LONGEST_PATH: Final = 2048  # characters
_HEARTBEAT: Final = 5.0  # seconds
_PAUSE: Final = 0.25  # seconds between two messages of a stream
_PATIENCE: Final = 30.0  # seconds for a reader that takes nothing

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}

ServicePage = Callable[[Moment, str], dict[str, Any]]
"""The page of the Service with a key, in a moment; raises :class:`BadInput` if there is none."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where pictures come from: its *name* for the reader; *is_live*: it changes. *service_page* explains a Service."""

    name: str
    is_live: bool
    service_page: ServicePage


class UIServer:
    """Serves the page, and the pictures of *board*."""

    def __init__(
        self, board: Board, source: Source, *, files: Mapping[str, PageFile], announce: Callable[[str], None]
    ) -> None:
        """*announce* is called with each link that opens the page; each works once."""
        self._board, self._source, self._files, self._announce = board, source, files, announce
        self._access: Access
        self._explaining = asyncio.Semaphore(2)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[int]:
        """Serve on *port* of loopback; 0: the kernel chooses it. Raises OSError if it is in use."""
        listener = Listener(self._handle, limits=LIMITS)
        chosen = await listener.start(LOOPBACK, port)
        self._access = Access(chosen)
        self._announce(self._access.link)
        try:
            yield chosen
        finally:
            self._board.close()  # ends the streams
            await listener.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if len(request.path_qs) > _LONGEST_PATH:
            return _text(HTTPStatus.REQUEST_URI_TOO_LONG, "the path is too long")
        if why := self._access.why_foreign(request):
            return _text(HTTPStatus.FORBIDDEN, why)
        method, path = request.method, request.path
        if method == "POST" and path == "/session":
            return await self._open_session(request)
        if method != "GET":
            return _text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed")
        if file := self._files.get(path):
            return web.Response(body=file.body, content_type=file.content_type, charset="utf-8", headers=_HEADERS)
        if path not in ("/events", "/service"):
            return _text(HTTPStatus.NOT_FOUND, "there is no such page")
        if not self._access.has_session(request):
            return _text(HTTPStatus.FORBIDDEN, "this needs a session: open the link that kavip ui printed last")
        return await (self._stream(request) if path == "/events" else self._service(request))

    async def _open_session(self, request: web.BaseRequest) -> web.StreamResponse:
        given = await request.content.read(_LONGEST_TOKEN + 1)
        session = self._access.open_session(given.decode("ascii", errors="replace").strip())
        if session is None:
            why = "this link was used before, or is not the last one: open the one that kavip ui printed last"
            return _text(HTTPStatus.FORBIDDEN, why)
        self._announce(self._access.link)
        answer = web.json_response({"key": session.key}, headers=_HEADERS)
        answer.set_cookie(self._access.cookie_name, session.cookie, httponly=True, samesite="Strict", path="/")
        return answer

    # --- the page of a Service ------------------------------------------------------------------------------------
    async def _service(self, request: web.BaseRequest) -> web.StreamResponse:
        moment, key = self._board.latest, request.query.get("name", "")
        async with self._explaining:
            try:
                found = await asyncio.to_thread(self._source.service_page, moment, key)
            except BadInput as error:
                return _text(HTTPStatus.NOT_FOUND, str(error))
        return web.Response(body=msgspec.json.encode(found), content_type="application/json", headers=_HEADERS)

    # --- pictures -------------------------------------------------------------------------------------------------
    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._board.readers >= MOST_STREAMS:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} pages are open: close one")
        answer = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        self._board.readers += 1
        try:
            await answer.prepare(request)
            if isinstance(request.protocol, BoundedConnection):
                request.protocol.deadline = inf  # of the exchange: this one has no end
            await self._send_moments(answer)
        except (ConnectionError, TimeoutError):
            pass  # the reader has gone
        finally:
            self._board.readers -= 1
        return answer

    async def _send_moments(self, answer: web.StreamResponse) -> None:
        """Send the latest picture whole, then what changes; between, that the server lives."""
        moment, sent = self._board.latest, None
        while not self._board.is_closed:
            if moment.picture is not sent:
                body = await asyncio.to_thread(changes, sent, moment.picture)
                if body or sent is None:
                    await _send(answer, "change" if sent is not None else "picture", body or b"{}")
                sent = moment.picture
            await _send(answer, "state", msgspec.json.encode(self._state(moment)))
            await asyncio.sleep(_PAUSE)
            moment = await self._board.after(moment.number, timeout=_HEARTBEAT)

    def _state(self, moment: Moment) -> dict[str, Any]:
        now = datetime.now(UTC)
        return {
            "source": self._source.name,
            "isLive": self._source.is_live,
            "error": moment.error,
            "age": max(0, round((now - moment.at).total_seconds())) if moment.error or not self._source.is_live else 0,
            "at": instant_text(moment.at if moment.error or not self._source.is_live else now),
        }


async def _send(answer: web.StreamResponse, event: str, body: bytes) -> None:
    async with asyncio.timeout(_PATIENCE):
        await answer.write(b"event: " + event.encode() + b"\ndata: " + body + b"\n\n")


def _text(status: HTTPStatus, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=_HEADERS)
