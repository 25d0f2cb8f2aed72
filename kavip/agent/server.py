"""
The agent's port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``, over plain HTTP on the node's address.

It stands on the node's network, so it takes little from anybody: GET and HEAD, one request for each connection, 1 KiB,
5 seconds, 32 connections. That is less than a web framework can be told, and costs none of its 16 MB.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

import structlog

MOST_CONNECTIONS: Final = 32
LARGEST_REQUEST: Final = 1024
SECONDS: Final = 5.0
_MOST_DRAINED: Final = 64 << 10
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

Network = IPv4Network | IPv6Network
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page answers."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Page = Callable[[], Awaitable[Answer]]


class Server:
    """Serves *pages*, a function for each path, to clients within *allowed*; no networks allow everybody."""

    def __init__(self, pages: Mapping[str, Page], *, allowed: tuple[Network, ...] = ()) -> None:
        self._pages, self._allowed = pages, allowed
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """
        Serve as long as the context lasts; gives the port.

        Raises OSError where *host* is not here yet or *port* is taken.
        """
        accept, most = self._accept, MOST_CONNECTIONS
        listener = await asyncio.start_server(accept, host or None, port, limit=LARGEST_REQUEST, backlog=most)
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
            for task in tuple(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await listener.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                method, answer = await self._answer(reader, str(writer.get_extra_info("peername")[0]))
                writer.write(_response(answer, with_body=method != "HEAD"))
                writer.write_eof()
                writer.transport.set_write_buffer_limits(high=0)
                await writer.drain()
                await _drain(reader)
        except (TimeoutError, OSError):
            pass  # too slow, or gone
        finally:
            writer.transport.abort()  # all was said, or would not be heard

    async def _answer(self, reader: asyncio.StreamReader, client: str) -> tuple[str, Answer]:
        """The method asked with, and what to answer."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "", _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except asyncio.IncompleteReadError:
            return "", _plain(HTTPStatus.BAD_REQUEST)
        if not self._admits(client):
            return "", _plain(HTTPStatus.FORBIDDEN)
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return "", _plain(HTTPStatus.BAD_REQUEST)
        if method not in ("GET", "HEAD"):
            return "", _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return method, _plain(HTTPStatus.NOT_FOUND)
        try:
            return method, await page()
        except TimeoutError:
            raise
        except Exception:  # the edge: one bad answer must not take the agent down
            log.exception("page failed", path=target.partition("?")[0])
            return method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _admits(self, client: str) -> bool:
        if not self._allowed:
            return True
        address = ip_address(client.partition("%")[0])
        return any(address in network for network in self._allowed)


async def _drain(reader: asyncio.StreamReader) -> None:
    """Take what the client still sends until it closes: to close before it does would take the answer from it."""
    taken = 0
    while taken < _MOST_DRAINED and (chunk := await reader.read(LARGEST_REQUEST)):
        taken += len(chunk)


def _plain(status: HTTPStatus) -> Answer:
    return Answer(f"{status.phrase}\n".encode(), status=status)


def _response(answer: Answer, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
