"""
A port that anybody may reach: HTTP for handlers that are short, and connections that have to get on.

The handshake, and every exchange from its first byte to the last of the answer, have a few seconds each; what takes
longer is cut. Between exchanges a connection may rest, because closing it under a client that is about to use it loses
a call: for as long as its client likes once it has been of use, and before the first request for longer than Go keeps
what it does not use. Go dials more than it needs: where another connection comes free first, the new one waits for a
request of later. Who gets an error as his first answer is told the end with it. At most so many connections stand: a
newcomer takes the place of the oldest one that has never asked for anything sensible, and never that of a request in
flight.
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

_SWEEP: Final = 0.25  # seconds between two looks at the deadlines
_IDLE: Final = 3600.0
_UNREAD: Final = 32 * 1024  # bytes of answers that wait for a slow reader, before the next one does
_ASSUMED_GONE: Final = 120.0  # Go's transport, and with it every API server, closes what it has not used for 90 s
_PARTING: Final = 1.0  # seconds for a peer's close_notify, and to go after the farewell
_NOWHERE: Final = URL("/")

# asyncio gives each TLS connection a buffer of 256 KiB at once; reviews are smaller, and strangers have no use for it
SSLProtocol.max_size = 64 * 1024

FAREWELL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

_HEAD: Final = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\nDate: {}\r\n{}\r\n"
_CLOSE: Final = "Connection: close\r\n"


@dataclass(slots=True)
class Reply:
    """A 200 that leaves in one piece, without what aiohttp does for responses of other kinds (``make bench``)."""

    body: bytes
    content_type: str
    status: int = 200
    keep_alive: bool = True

    def force_close(self) -> None:
        """Have it be the last one on its connection."""
        self.keep_alive = False

    @property
    def whole(self) -> bytes:
        """Head and body."""
        ending = "" if self.keep_alive else _CLOSE
        return _HEAD.format(self.content_type, len(self.body), rfc822_formatted_time(), ending).encode() + self.body


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse | Reply]]
Counted = Callable[[], None]
"""Called for each connection that gives its place to a newcomer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What strangers may take.

    A TLS connection costs up to 300 KiB, a part of it in pieces that malloc does not give back at once: *connections*
    decides the memory.
    """

    connections: int = 384
    handshake: float = 3.0
    exchange: float = 5.0
    unused: float = _ASSUMED_GONE


class Connection(web.RequestHandler):
    """One connection, and until when it must have got on."""

    __slots__ = ("_limits", "deadline", "opening", "parted", "rests_since", "useful")

    def __init__(self, server: web.Server, limits: Limits, **settings: Any) -> None:
        """Begin with the handshake."""
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._limits = limits
        self.rests_since = self._loop.time()
        self.deadline = inf  # the handshake has a limit of its own
        self.useful = False
        self.parted = False
        self.opening: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a whole request has come, and its answer is being made."""
        current = self._current_request
        return bool(self._messages) or (current is not None and current.content.is_eof())

    @property
    def resting(self) -> bool:
        """Whether it has been of use, and nothing is under way."""
        return self.deadline == inf and self.useful

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over; a request may come now, or later."""
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(_UNREAD)
        self.deadline = self._loop.time() + self._limits.unused

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: from the first of them on the exchange has a deadline."""
        if self.parted:
            return
        self.deadline = min(self.deadline, self._loop.time() + self._limits.exchange)
        super().data_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse | Reply, start_time: float | None
    ) -> tuple[Any, bool]:
        """Send the answer; with the last byte of it the exchange is over."""
        self.useful = self.useful or resp.status < 400
        if not self.useful and not self._messages:
            resp.force_close()
        finished: tuple[Any, bool]
        if isinstance(resp, Reply):
            finished = resp, await self._is_lost(request, resp)
        else:
            finished = await super().finish_response(request, resp, start_time)
        now = self._loop.time()
        self.rests_since = now
        self.deadline = now + self._limits.exchange if self._messages or not self.useful else inf
        return finished

    async def _is_lost(self, request: web.BaseRequest, reply: Reply) -> bool:
        """Send *reply*; whether the client has gone before that."""
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
        """Answer what is no HTTP; it is a stranger's, and fills no log."""
        why = "an error of kavip's own" if status >= 500 else "this is not HTTP/1.1"
        reply = web.Response(status=status, text=f"{why}\n")
        reply.force_close()
        return reply

    def part(self) -> None:
        """Say farewell, unless a request is being answered; what comes from now on has its answer already."""
        if self.transport is not None and self._current_request is None and not self._messages:
            self.parted = True
            self.transport.write(FAREWELL)

    def cut(self) -> None:
        """End at once, whatever is under way."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()


class _Server(web.Server):
    """aiohttp's server, of our connections."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(handler)  # type: ignore[arg-type]  # a Reply meets nothing but Connection.finish_response
        self._limits = limits
        self.standing: dict[Connection, None] = {}  # oldest first

    def __call__(self) -> Connection:
        connection = Connection(
            self, self._limits, access_log=None, keepalive_timeout=_IDLE, auto_decompress=False, lingering_time=1.0
        )
        self.standing[connection] = None
        return connection

    def _make_request(self, message: RawRequestMessage, *rest: Any) -> web.BaseRequest:
        if message.url is None:  # so aiohttp's parser leaves some heads; its own request would not survive that
            message = message._replace(url=_NOWHERE)  # type: ignore[unreachable]
        return super()._make_request(message, *rest)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.forget(handler)

    def forget(self, handler: web.RequestHandler) -> None:
        self.standing.pop(handler, None)  # type: ignore[call-overload]  # a Connection


class Listener:
    """Serves *handler* on a port; with *tls*, which is asked at each connection, over TLS."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        limits: Limits = Limits(),
        evicted: Counted = lambda: None,
    ) -> None:
        """Nothing is opened before :meth:`start`."""
        self._handler, self._tls, self._limits, self._evicted = handler, tls, limits, evicted
        self._server: _Server
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> int:
        """Open the port, and return it: with *port* 0 the kernel has chosen. OSError where it cannot be had."""
        self._sockets = await bound(host, port)
        self._server = _Server(self._handler, self._limits)
        self._tasks = [asyncio.create_task(self._accept(each), name="accept") for each in self._sockets]
        self._tasks.append(asyncio.create_task(self._sweep(), name="sweep"))
        chosen: int = self._sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Close the port; what is in flight is answered first, and nobody who asks just now is left without a word."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._sockets:
            each.close()
        if not self._tasks:
            return
        for connection in list(self._server.standing):
            connection.part()
        await self._gone(lambda connection: connection.parted)
        await self._server.shutdown(self._limits.exchange)
        await self._gone(lambda _: True)
        for connection in list(self._server.standing):
            connection.cut()
        await asyncio.sleep(0)

    async def _gone(self, awaited: Callable[[Connection], bool]) -> None:
        """Return when none of those *awaited* stands, or after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING):
                while any(awaited(connection) for connection in self._server.standing):
                    await asyncio.sleep(0.01)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # others have their turn, however many knock
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:  # gone again already, or no file descriptor is left
                await asyncio.sleep(_SWEEP)
                continue
            try:
                await self._room()
            except asyncio.CancelledError:
                accepted.close()
                raise
            connection = self._server()
            connection.opening = asyncio.create_task(self._open(connection, accepted))

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        """Shake hands."""
        limits: dict[str, Any] = {}
        if self._tls:
            limits = {"ssl_handshake_timeout": self._limits.handshake, "ssl_shutdown_timeout": _PARTING}
        loop, context = asyncio.get_running_loop(), self._tls() if self._tls else None
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **limits)
        except (OSError, asyncio.CancelledError):  # no TLS, too slow, or out of place; asyncio has closed the socket
            self._server.forget(connection)
        finally:
            connection.opening = None

    async def _room(self) -> None:
        """Return as soon as there is a place."""
        standing = self._server.standing
        while len(standing) >= self._limits.connections:
            if (least := self._least_missed()) is None:
                await asyncio.sleep(_SWEEP)
            else:
                self._server.forget(least)
                least.part()
                least.cut()
                self._evicted()

    def _least_missed(self) -> Connection | None:
        idle = [each for each in self._server.standing if not each.in_flight]
        stranger = next((each for each in idle if not each.useful), None)
        gone = asyncio.get_running_loop().time() - _ASSUMED_GONE
        return stranger or next((each for each in idle if each.resting and each.rests_since < gone), None)

    async def _sweep(self) -> None:
        """Cut what does not get on."""
        while True:
            await asyncio.sleep(_SWEEP)
            now = asyncio.get_running_loop().time()
            for connection in list(self._server.standing):
                if connection.deadline < now:
                    connection.cut()
