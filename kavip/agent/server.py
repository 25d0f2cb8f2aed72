"""
The agent's port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``, over plain HTTP on the node's address.

It stands on the node's network, so it takes little from anybody: GET and HEAD, one request for each connection, 1 KiB,
5 seconds, 32 connections. That is less than a web framework can be told, and costs none of its 16 MB.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

import structlog

MOST_CONNECTIONS: Final = 32
LARGEST_REQUEST: Final = 1024
SECONDS: Final = 5.0
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
        self._connections = 0

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Start to listen; raises OSError where *host* is not here yet or *port* is taken."""
        return await asyncio.start_server(
            self._serve, host or None, port, limit=LARGEST_REQUEST, backlog=MOST_CONNECTIONS
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            async with asyncio.timeout(SECONDS):
                method, answer = await self._answer(reader, str(writer.get_extra_info("peername")[0]))
                writer.write(_response(answer, with_body=method != "HEAD"))
                await writer.drain()
        except (TimeoutError, OSError):
            pass  # too slow, or gone
        finally:
            self._connections -= 1
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader, client: str) -> tuple[str, Answer]:
        """The method asked with, and what to answer."""
        if self._connections > MOST_CONNECTIONS:
            return "", _plain(HTTPStatus.SERVICE_UNAVAILABLE)
        if not self._admits(client):
            return "", _plain(HTTPStatus.FORBIDDEN)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "", _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except asyncio.IncompleteReadError:
            return "", _plain(HTTPStatus.BAD_REQUEST)
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
