"""
A server of a test on loopback that leaves no connection open.

A connection that is open when its loop ends is a ResourceWarning, and that fails a later test. ``Server.close`` of
asyncio closes none, and a task that is cancelled before it has begun does not run its ``finally``.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_ROUNDS: Final = 5
"""Rounds of the loop in which a connection that was accepted is known."""
_PAUSE: Final = 0.002


class _Connection(asyncio.StreamReaderProtocol):
    """One connection of the server."""

    def __init__(self, serve: Serve) -> None:
        async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except (OSError, asyncio.IncompleteReadError):  # the client has gone
                pass
            finally:
                writer.close()

        super().__init__(asyncio.StreamReader(), serve_and_close)
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        self.transport = transport
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self.transport = None
        super().connection_lost(error)


@asynccontextmanager
async def stream_server(
    serve: Serve, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Let *serve* serve each connection, which it need not close; yields the port. At the end, abort them all."""
    made: list[_Connection] = []

    def connect() -> _Connection:
        made.append(_Connection(serve))
        return made[-1]

    server = await asyncio.get_running_loop().create_server(connect, host, port, ssl=tls)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        rounds = 0
        while rounds < _ROUNDS or any(each.transport for each in made):
            for each in made:
                if each.transport:
                    each.transport.abort()
            await asyncio.sleep(_PAUSE)
            rounds += 1
