"""
An HTTP server for untrusted networks: short handlers, and connections with deadlines.

The handshake, and every exchange from the first byte of the request to the last byte of the answer, have a few seconds
each; a slower connection is aborted. Between exchanges a connection may be idle, because a client loses a call if the
server closes the connection at that moment. After a successful request the client decides for how long. Before the
first request it is longer than Go keeps an unused connection: Go dials more connections than it needs, and if another
one comes free first, the new one waits for a later request. A client whose first answer is an error gets the connection
closed with it. The number of connections is bounded. A new connection evicts the oldest one that has never had a
successful request, and never one with a request in flight.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http_parser import RawRequestMessage
from yarl import URL

from kavip.http.sockets import bound

_SWEEP: Final = 0.25  # seconds between two checks of the deadlines
_IDLE: Final = 3600.0
_UNREAD: Final = 32 * 1024  # bytes of answers that are buffered for a slow reader
_ASSUMED_GONE: Final = 120.0  # Go's transport, and so every API server, closes a connection that is idle for 90 s
_CLOSING: Final = 1.0  # seconds for a peer's close_notify, and to close after the closing response
_NOWHERE: Final = URL("/")

# asyncio allocates 256 KiB for each TLS connection; reviews are smaller
SSLProtocol.max_size = 64 * 1024

CLOSING_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

_HEAD: Final = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\nDate: {}\r\n{}\r\n"
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
        ending = "" if self.keep_alive else _CLOSE_HEADER
        return _HEAD.format(self.content_type, len(self.body), rfc822_formatted_time(), ending).encode() + self.body


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse | Reply]]
Evicted = Callable[[], None]
"""Called for each connection that is evicted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    The limits of a port: the number of connections, and seconds for each phase.

    A TLS connection costs up to 300 KiB, partly in pieces that malloc does not return at once, so *connections* bounds
    the memory.
    """

    connections: int = 384
    handshake: float = 3.0
    exchange: float = 5.0
    unused: float = _ASSUMED_GONE


class BoundedConnection(web.RequestHandler):
    """One connection with its deadline."""

    __slots__ = ("_limits", "deadline", "idle_since", "is_closing", "opening", "was_useful")

    def __init__(self, server: web.Server, limits: Limits, **settings: Any) -> None:
        """Start with the handshake."""
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._limits = limits
        self.idle_since = self._loop.time()
        self.deadline = inf  # the handshake has its own timeout
        self.was_useful = False
        self.is_closing = False
        self.opening: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a request is complete, and its answer is not."""
        current = self._current_request
        return bool(self._messages) or (current is not None and current.content.is_eof())

    @property
    def is_idle(self) -> bool:
        """Whether the last exchange is complete, and a request has succeeded."""
        return self.deadline == inf and self.was_useful

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is complete; set the deadline for the first request."""
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(_UNREAD)
        self.deadline = self._loop.time() + self._limits.unused

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request; the first one starts the deadline of the exchange."""
        if self.is_closing:
            return
        self.deadline = min(self.deadline, self._loop.time() + self._limits.exchange)
        super().data_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse | Reply, start_time: float | None
    ) -> tuple[Any, bool]:
        """Send the answer, which ends the exchange."""
        self.was_useful = self.was_useful or resp.status < 400
        if not self.was_useful and not self._messages:
            resp.force_close()
        finished: tuple[Any, bool]
        if isinstance(resp, Reply):
            finished = resp, await self._is_lost(request, resp)
        else:
            finished = await super().finish_response(request, resp, start_time)
        now = self._loop.time()
        self.idle_since = now
        self.deadline = now + self._limits.exchange if self._messages or not self.was_useful else inf
        return finished

    async def _is_lost(self, request: web.BaseRequest, reply: Reply) -> bool:
        """Send *reply*; return whether the client has closed the connection before."""
        if self._upgraded or not request.keep_alive:
            reply.force_close()
        try:
            if self.transport is not None:
                self.transport.write(reply.whole)
            await self._drain_helper()
        except ConnectionError:
            return True
        return False

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002
        message: str | None = None,  # noqa: ARG002
    ) -> web.Response:
        """Answer a malformed request; nothing is logged, because any client can send one."""
        why = "internal error" if status >= 500 else "this is not HTTP/1.1"
        reply = web.Response(status=status, text=f"{why}\n")
        reply.force_close()
        return reply

    def send_closing_response(self) -> None:
        """Send a 503 unless a request is being answered; it answers a request that arrives from now on."""
        if self.transport is not None and self._current_request is None and not self._messages:
            self.is_closing = True
            self.transport.write(CLOSING_RESPONSE)

    def abort(self) -> None:
        """Close at once, even during an exchange."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()


class _BoundedServer(web.Server):
    """aiohttp's server with bounded connections."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(handler)  # type: ignore[arg-type]  # a Reply meets nothing but BoundedConnection.finish_response
        self._limits = limits
        self.open_connections: dict[BoundedConnection, None] = {}  # oldest first

    def __call__(self) -> BoundedConnection:
        connection = BoundedConnection(
            self, self._limits, access_log=None, keepalive_timeout=_IDLE, auto_decompress=False, lingering_time=1.0
        )
        self.open_connections[connection] = None
        return connection

    def _make_request(self, message: RawRequestMessage, *rest: Any) -> web.BaseRequest:
        if message.url is None:  # aiohttp's parser returns None for some heads, on which its own request would fail
            message = message._replace(url=_NOWHERE)  # type: ignore[unreachable]
        return super()._make_request(message, *rest)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.forget(handler)

    def forget(self, handler: web.RequestHandler) -> None:
        self.open_connections.pop(handler, None)  # type: ignore[call-overload]  # a BoundedConnection


class Listener:
    """Serves *handler* on a port, over TLS if *tls* is given, which is called for each connection."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        limits: Limits = Limits(),
        evicted: Evicted = lambda: None,
    ) -> None:
        """Prepare; :meth:`start` opens the port."""
        self._handler, self._tls, self._limits, self._evicted = handler, tls, limits, evicted
        self._server: _BoundedServer
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> int:
        """Open the port and return it; with *port* 0 the kernel chooses one. Raises OSError."""
        self._sockets = await bound(host, port)
        self._server = _BoundedServer(self._handler, self._limits)
        self._tasks = [asyncio.create_task(self._accept(each), name="accept") for each in self._sockets]
        self._tasks.append(asyncio.create_task(self._sweep(), name="sweep"))
        chosen: int = self._sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Close the port; requests in flight are answered, and requests that arrive meanwhile get a 503."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._sockets:
            each.close()
        if not self._tasks:
            return
        for connection in list(self._server.open_connections):
            connection.send_closing_response()
        await self._wait_until_gone(lambda connection: connection.is_closing)
        await self._server.shutdown(self._limits.exchange)
        await self._wait_until_gone(lambda _: True)
        for connection in list(self._server.open_connections):
            connection.abort()
        await asyncio.sleep(0)

    async def _wait_until_gone(self, awaited: Callable[[BoundedConnection], bool]) -> None:
        """Return when no *awaited* connection is left, or after a second."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                while any(awaited(connection) for connection in self._server.open_connections):
                    await asyncio.sleep(0.01)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # other tasks run, however many connections arrive
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:  # the client has gone, or no file descriptor is left
                await asyncio.sleep(_SWEEP)
                continue
            try:
                await self._make_room()
            except asyncio.CancelledError:
                accepted.close()
                raise
            connection = self._server()
            connection.opening = asyncio.create_task(self._open(connection, accepted))

    async def _open(self, connection: BoundedConnection, accepted: socket.socket) -> None:
        """Do the handshake."""
        limits: dict[str, Any] = {}
        if self._tls:
            limits = {"ssl_handshake_timeout": self._limits.handshake, "ssl_shutdown_timeout": _CLOSING}
        loop, context = asyncio.get_running_loop(), self._tls() if self._tls else None
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **limits)
        except (OSError, asyncio.CancelledError):  # no TLS, too slow, or evicted; asyncio has closed the socket
            self._server.forget(connection)
        finally:
            connection.opening = None

    async def _make_room(self) -> None:
        """Return when one more connection is allowed; evict one if necessary."""
        connections = self._server.open_connections
        while len(connections) >= self._limits.connections:
            if (evictee := self._evictee()) is None:
                await asyncio.sleep(_SWEEP)
            else:
                self._server.forget(evictee)
                evictee.send_closing_response()
                evictee.abort()
                self._evicted()

    def _evictee(self) -> BoundedConnection | None:
        idle = [each for each in self._server.open_connections if not each.in_flight]
        useless = next((each for each in idle if not each.was_useful), None)
        gone = asyncio.get_running_loop().time() - _ASSUMED_GONE
        return useless or next((each for each in idle if each.is_idle and each.idle_since < gone), None)

    async def _sweep(self) -> None:
        """Abort connections whose deadline has passed."""
        while True:
            await asyncio.sleep(_SWEEP)
            now = asyncio.get_running_loop().time()
            for connection in list(self._server.open_connections):
                if connection.deadline < now:
                    connection.abort()
