"""
An HTTP server for untrusted networks: short handlers, and a bounded number of connections with deadlines.

:mod:`~kavip.http.connection` has the deadlines. If every connection is in use, a new one displaces another one
(:mod:`~kavip.http.shares`), or waits: no request in flight is aborted. The senders of a port have equal shares: first
the kinds of senders, then the senders of a kind. Of one sender, connections with a successful request and those without
one have equal shares. Connections with a verified client certificate count for no sender, and are never displaced.

A connection that is displaced between two requests gets a 503 with ``Retry-After: 0``, and stays open for a moment: an
API server that has just sent a request on it retries. If every connection has a request in flight, one of them closes
with its answer for each new one that waits.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from yarl import URL

from kavip.http.connection import IDLE, BoundedConnection, Handler, Limits
from kavip.http.shares import Path, displaced, fewest, sender_of
from kavip.http.sockets import bound

_SWEEP: Final = 0.25  # seconds between two checks of the deadlines
_RETRY: Final = 0.02  # seconds between two tries to make room for those that wait
_CLOSING: Final = 1.0  # seconds for a peer's close_notify, and to close after the closing response
_LEAVING: Final = 64  # displaced connections that are still open, at most
_NOWHERE: Final = URL("/")
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""Closes a connection within two minutes if the client's machine is gone."""

# asyncio allocates 256 KiB for each TLS connection; reviews are smaller
SSLProtocol.max_size = 64 * 1024

Evicted = Callable[[], None]
"""Called for each connection that is displaced."""
Refused = Callable[[str, str], None]
"""Called with the address of a client whose certificate is not accepted, and why: asyncio sends it no TLS alert."""
KindOf = Callable[[str], Hashable]
"""The kind of the sender with an address; the kinds have equal shares of the connections."""


@dataclass(eq=False, slots=True)
class Newcomer:
    """A client that waits for a connection, in seconds of the loop's clock since *since*."""

    socket: socket.socket
    address: str
    sender: Path
    since: float

    @property
    def path(self) -> Path:
        """Its connection has not had a successful request."""
        return (*self.sender, False)


class _BoundedServer(web.Server):
    """aiohttp's server with bounded connections; it calls *freed* when one has ended."""

    def __init__(self, handler: Handler, limits: Limits, freed: Callable[[], None]) -> None:
        super().__init__(handler)  # type: ignore[arg-type]  # a Reply meets nothing but BoundedConnection.finish_response
        self._limits, self._freed = limits, freed
        self.open_connections: dict[BoundedConnection, None] = {}  # oldest first
        self.leaving: dict[BoundedConnection, None] = {}  # displaced ones with a closing response

    def open(self, sender: Path) -> BoundedConnection:
        """A new connection of *sender*."""
        connection = BoundedConnection(
            self,
            self._limits,
            sender,
            access_log=None,
            keepalive_timeout=IDLE,
            auto_decompress=False,
            lingering_time=1.0,
        )
        self.open_connections[connection] = None
        return connection

    def displace(self, connection: BoundedConnection) -> None:
        """Take the place of *connection*; if it may be about to get a request, it closes a moment later."""
        self.open_connections.pop(connection, None)
        connection.send_closing_response()
        if not connection.is_closing:
            connection.abort()
            return
        connection.deadline = asyncio.get_running_loop().time() + _CLOSING
        self.leaving[connection] = None
        while len(self.leaving) > _LEAVING:
            oldest = next(iter(self.leaving))
            del self.leaving[oldest]
            oldest.abort()

    def _make_request(self, message: RawRequestMessage, *rest: Any) -> web.BaseRequest:
        if message.url is None:  # aiohttp's parser returns None for some heads, on which its own request would fail
            message = message._replace(url=_NOWHERE)  # type: ignore[unreachable]  # aiohttp declares it present
        return super()._make_request(message, *rest)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.forget(handler)

    def forget(self, handler: web.RequestHandler) -> None:
        """Give the place of *handler*, a connection that has ended, to another one."""
        self.open_connections.pop(handler, None)  # type: ignore[call-overload]  # a BoundedConnection
        self.leaving.pop(handler, None)  # type: ignore[call-overload]  # the same
        self._freed()


class Listener:
    """Serves *handler* on a port, over TLS if *tls* is given, which is called for each connection."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        evicted: Evicted = lambda: None,
        kind_of: KindOf = lambda _: None,
        refused: Refused = lambda _client, _why: None,
    ) -> None:
        """Prepare; :meth:`start` opens the port."""
        self._handler, self._tls, self._limits, self._evicted = handler, tls, limits, evicted
        self._kind_of, self._refused = kind_of, refused
        self._server: _BoundedServer
        self._sockets: list[socket.socket] = []
        self._waiting: dict[Newcomer, None] = {}  # oldest first
        self._retry: asyncio.TimerHandle | None = None
        self._has_clients = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> int:
        """Open the port and return it; with *port* 0 the kernel chooses one. Raises OSError."""
        self._sockets = await bound(host, port)
        self._server = _BoundedServer(self._handler, self._limits, self._admit)
        self._tasks = [asyncio.create_task(self._accept(each), name="accept") for each in self._sockets]
        self._tasks.append(asyncio.create_task(self._sweep(), name="sweep"))
        chosen: int = self._sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Close the port; requests in flight are answered, and requests that arrive meanwhile get a 503."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in (*self._sockets, *(newcomer.socket for newcomer in self._waiting)):
            each.close()
        self._waiting.clear()
        if not self._tasks:
            return
        for connection in list(self._server.open_connections):
            connection.send_closing_response()
        await self._wait_until_gone(lambda connection: connection.is_closing)
        await self._server.shutdown(self._limits.exchange)
        await self._wait_until_gone(lambda _: True)
        for connection in (*self._server.open_connections, *self._server.leaving):
            connection.abort()
        await asyncio.sleep(0)

    async def _wait_until_gone(self, awaited: Callable[[BoundedConnection], bool]) -> None:
        """Return when no *awaited* connection is left, or after a second."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                while any(awaited(connection) for connection in self._server.open_connections):
                    await asyncio.sleep(0.01)

    # --- newcomers ------------------------------------------------------------------------------------------------
    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)  # other tasks run, however many connections arrive
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError:  # the client has gone, or no file descriptor is left
                await asyncio.sleep(_SWEEP)
                continue
            with suppress(OSError):
                for option, value in _KEEPALIVE:
                    accepted.setsockopt(socket.IPPROTO_TCP, option, value)  # aiohttp sets SO_KEEPALIVE
            sender = (self._kind_of(peer[0]), sender_of(peer[0]))
            self._add(Newcomer(accepted, peer[0], sender, loop.time()))
            self._admit()

    def _add(self, new: Newcomer) -> None:
        """Let *new* wait; if too many wait already, the oldest of the sender with the most leaves."""
        if len(self._waiting) >= 2 * self._limits.connections:  # each costs a file descriptor, and nothing else
            leaving = displaced(self._waiting, new, rank=lambda each: each.since)
            if leaving is None:
                new.socket.close()
                return
            self._dismiss(leaving)
        self._waiting[new] = None
        self._has_clients.set()

    def _dismiss(self, newcomer: Newcomer) -> None:
        self._waiting.pop(newcomer, None)
        newcomer.socket.close()

    def _admit(self) -> None:
        """Open connections for those that wait, as far as there is room, or room can be made."""
        while self._waiting:
            counted = [each for each in self._server.open_connections if not each.is_verified]
            new = fewest(self._waiting, counted) if len(self._waiting) > 1 else next(iter(self._waiting))
            if not self._has_room(new, counted):
                self._retry_later()
                return
            del self._waiting[new]
            connection = self._server.open(new.sender)
            connection.opening = asyncio.create_task(self._open(connection, new))

    def _has_room(self, new: Newcomer, counted: list[BoundedConnection]) -> bool:
        """Whether there is room for *new*; displace a connection if need be, or let one close with its answer."""
        if len(self._server.open_connections) < self._limits.connections:
            return True
        if (found := displaced(counted, new, rank=BoundedConnection.rank)) is not None:
            self._server.displace(found)
            self._evicted()
            return True
        retired = sum(each.is_retired for each in counted)
        if retired < len(self._waiting) and (busy := displaced(counted, new, rank=_busy)) is not None:
            busy.is_retired = True
        return False

    def _retry_later(self) -> None:
        """Try again soon: what cannot be displaced now may be so then."""
        if self._retry is None and not all(task.done() for task in self._tasks):

            def retry() -> None:
                self._retry = None
                self._admit()

            self._retry = asyncio.get_running_loop().call_later(_RETRY, retry)

    async def _open(self, connection: BoundedConnection, new: Newcomer) -> None:
        """Do the handshake."""
        limits: dict[str, Any] = {}
        if self._tls:
            limits = {"ssl_handshake_timeout": self._limits.handshake, "ssl_shutdown_timeout": _CLOSING}
        loop, context = asyncio.get_running_loop(), self._tls() if self._tls else None
        try:
            await loop.connect_accepted_socket(lambda: connection, new.socket, ssl=context, **limits)
        except ssl.SSLCertVerificationError as error:
            self._server.forget(connection)
            self._refused(new.address, error.verify_message)
        except (OSError, asyncio.CancelledError):  # no TLS, too slow, or displaced; asyncio has closed the socket
            self._server.forget(connection)
        finally:
            connection.opening = None

    async def _sweep(self) -> None:
        """
        Abort connections whose deadline has passed, and dismiss clients that have waited for too long.

        A port without clients does not wake the process.
        """
        while True:
            if not (self._server.open_connections or self._server.leaving or self._waiting):
                self._has_clients.clear()
            await self._has_clients.wait()
            await asyncio.sleep(_SWEEP)
            now = asyncio.get_running_loop().time()
            for connection in (*self._server.open_connections, *self._server.leaving):
                if connection.deadline < now:
                    connection.abort()
            for newcomer in list(self._waiting):
                if newcomer.since + self._limits.handshake < now:
                    self._dismiss(newcomer)


def _busy(connection: BoundedConnection) -> float | None:
    """The order in which connections with a request in flight close with their answers, if they do not yet."""
    return connection.since if connection.in_flight and not connection.is_retired else None
