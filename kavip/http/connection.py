"""
One connection of a :mod:`~kavip.http.listener`: its deadlines, and whether a new connection may displace it.

The handshake, and every exchange from the first byte of the request to the last byte of the answer, have a few seconds
each. Between exchanges a connection may be idle, because a client loses a call if the server closes the connection at
that moment. After a successful request the client decides for how long. Before the first request it is longer than Go
keeps an unused connection: Go dials more connections than it needs, and if another one comes free first, the new one
waits for a later request. A client whose first answer is an error gets the connection closed with it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time

from kavip.http.shares import Path

IDLE: Final = 3600.0
_UNREAD: Final = 32 * 1024  # bytes of answers that are buffered for a slow reader
_ASSUMED_GONE: Final = 120.0  # Go's transport, and so every API server, closes a connection that is idle for 90 s

CLOSING_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

_CLOSE_HEADER: Final = "Connection: close\r\n"


@dataclass(slots=True)
class Reply:
    """A 200 that is written at once, without aiohttp's work for other kinds of responses (``make bench``)."""

    body: bytes
    content_type: str
    status: int = 200
    keep_alive: bool = True

    def force_close(self) -> None:
        """Close the connection after this response."""
        self.keep_alive = False

    @property
    def whole(self) -> bytes:
        """Head and body, as they are sent."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\n"
        ending = "" if self.keep_alive else _CLOSE_HEADER
        return f"{head}Date: {rfc822_formatted_time()}\r\n{ending}\r\n".encode() + self.body


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse | Reply]]


@dataclass(frozen=True, slots=True)
class Limits:
    """
    The limits of a port: the number of connections, and seconds for each phase.

    A TLS connection costs up to 300 KiB, partly in pieces that malloc does not return at once, so *connections* bounds
    the memory. A handshake, a request or an answer that is not complete is displaced after *grace*; until then a new
    connection waits. Without *keep_alive* each answer closes its connection.
    """

    connections: int = 384
    handshake: float = 3.0
    exchange: float = 5.0
    unused: float = _ASSUMED_GONE
    grace: float = 0.5
    keep_alive: bool = True


class BoundedConnection(web.RequestHandler):
    """One connection of *sender*, a path in the tree of :mod:`~kavip.http.shares`."""

    __slots__ = (
        "_answered",
        "_is_over",
        "_is_reading",
        "_is_sending",
        "_limits",
        "_wire",
        "deadline",
        "is_closing",
        "is_retired",
        "is_verified",
        "opening",
        "path",
        "sender",
        "since",
        "was_useful",
    )

    def __init__(self, server: web.Server, limits: Limits, sender: Path, **settings: Any) -> None:
        """Start with the handshake."""
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._limits = limits
        self.since = self._loop.time()
        """When the present phase began: the handshake, a request, an answer, or the time without any of them."""
        self.deadline = inf  # the handshake has its own timeout
        self.sender, self.path = sender, (*sender, False)
        """Connections with a successful request, and the others, have equal shares of their sender's connections."""
        self.was_useful = self.is_verified = self.is_closing = self.is_retired = False
        self._answered = 0
        self._is_reading = self._is_sending = self._is_over = False
        self._wire: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None

    @property
    def has_request(self) -> bool:
        """Whether the head of a request was received that will be answered, and its answer is not sent."""
        return self._request_count > self._answered and not self._is_over

    @property
    def in_flight(self) -> bool:
        """Whether a request is complete, and its answer is not."""
        current = self._current_request
        return self.has_request and not self._is_sending and (current is None or current.content.is_eof())

    @property
    def is_idle(self) -> bool:
        """Whether the last exchange is complete, and a request has succeeded."""
        return self.deadline == inf and self.was_useful and not self.has_request

    def rank(self) -> float | None:
        """The order in which connections are displaced, lowest first; None: this one is not displaced now."""
        if self.in_flight:
            return None
        is_due = self.is_idle or self._loop.time() - self.since >= self._limits.grace
        return self.since if is_due else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is complete; set the deadline for the first request."""
        super().connection_made(transport)
        self._wire = self.transport
        if self.transport is not None:
            self.transport.set_write_buffer_limits(_UNREAD)
            self.is_verified = bool(self.transport.get_extra_info("peercert"))  # None, or {}, without a verified one
        self.deadline = self._loop.time() + self._limits.unused

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request; the first one starts the deadline of the exchange."""
        if self.is_closing:
            return
        now = self._loop.time()
        if not self._is_reading:
            self._is_reading, self.since = True, now
        self.deadline = min(self.deadline, now + self._limits.exchange)
        super().data_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse | Reply, start_time: float | None
    ) -> tuple[Any, bool]:
        """Send the answer, which ends the exchange."""
        self._is_sending, self.since = True, self._loop.time()
        if not self.was_useful and resp.status < 400:
            self.was_useful, self.path = True, (*self.sender, True)
        if self.is_retired or not self._limits.keep_alive or not (self.was_useful or self._messages):
            resp.force_close()
        finished: tuple[Any, bool]
        if isinstance(resp, Reply):
            finished = resp, not self._write(request, resp) or (self.writing_paused and await self._is_lost())
        else:
            finished = await super().finish_response(request, resp, start_time)
        self._end_exchange(is_last=not resp.keep_alive)
        return finished

    def _end_exchange(self, *, is_last: bool) -> None:
        now = self._loop.time()
        self._answered += 1
        self._is_sending, self._is_reading, self.since = False, bool(self._messages), now
        self._is_over = is_last
        rests = self.was_useful and not is_last and not self._messages
        self.deadline = inf if rests else now + self._limits.exchange

    def _write(self, request: web.BaseRequest, reply: Reply) -> bool:
        """Send *reply*, as far as the client reads; return whether it is still connected."""
        if self._upgraded or not request.keep_alive:
            reply.force_close()
        if self.transport is None:
            return False
        self.transport.write(reply.whole)
        return True

    async def _is_lost(self) -> bool:
        """Wait until a slow client has read the answer; return whether it has closed the connection before."""
        try:
            await self._drain_helper()
        except ConnectionError:
            return True
        return False

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 - the same
        message: str | None = None,  # noqa: ARG002 - the same
    ) -> web.Response:
        """Answer a malformed request; nothing is logged, because any client can send one."""
        why = "internal error" if status >= 500 else "this is not HTTP/1.1"
        reply = web.Response(status=status, text=f"{why}\n")
        reply.force_close()
        return reply

    def send_closing_response(self) -> None:
        """Send a 503 unless a request is being answered; it answers a request that arrives from now on."""
        if self.transport is not None and not self.has_request:
            self.is_closing = True
            self.transport.write(CLOSING_RESPONSE)

    def abort(self) -> None:
        """Close at once, even during an exchange, or while the last bytes are sent."""
        if self._wire is not None:
            self._wire.abort()
        elif self.opening is not None:
            self.opening.cancel()
