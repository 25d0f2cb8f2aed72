"""
Reads request bodies within limits of size, time and memory.

A small body is always read. Larger bodies share a budget (:mod:`kavip.webhook.budget`), charged as their bytes arrive:
an announced length costs nothing. A body holds its share until its review is answered, also while the review waits for
a missing reference. One that finds no room, or that is displaced, gets a 503, and its connection is closed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import aiohttp
from aiohttp import hdrs, web

from kavip.errors import KavipError
from kavip.http.shares import Path
from kavip.webhook.budget import BodyBudget, BudgetExceeded, HeldBody

if TYPE_CHECKING:
    from kavip.http.connection import BoundedConnection

# The API server accepts objects of at most 3 MiB; a review has two of them as JSON (controller-runtime's derivation).
LIMIT: Final = 7 * 1024 * 1024
SMALL: Final = 64 * 1024
BUDGET: Final = 4 * LIMIT
DEADLINE: Final = 1.8  # seconds for a body; the shortest timeoutSeconds is 2

_JSON: Final = "application/json"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class UnreadableBody(KavipError):
    """A request whose body is not read: the HTTP *status* of the response, and the cause."""

    def __init__(self, status: int, cause: str) -> None:
        """Keep both."""
        super().__init__(cause)
        self.status = status


class BodyReader:
    """Reads bodies; the large ones together hold at most *budget* bytes."""

    def __init__(self, budget: int = BUDGET) -> None:
        """Start with the whole budget."""
        self.budget = BodyBudget(budget)

    def take_small(self, request: web.BaseRequest) -> bytes | None:
        """
        The body of *request* if it is small and has arrived; None: :meth:`read` it.

        Raises :class:`UnreadableBody` for a request that no API server sends.
        """
        _check_headers(request)
        content = request.content
        has_arrived = content.is_eof() and content.total_bytes <= SMALL
        return content.read_nowait() if has_arrived and hdrs.EXPECT not in request.headers else None

    @asynccontextmanager
    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """
        The body of *request*, which is held until the context ends.

        Raises :class:`UnreadableBody` if it does not arrive within the limits, and at any ``await`` in the context if
        the body is displaced.
        """
        if (request.content_length or 0) > LIMIT:
            raise _too_large()
        if hdrs.EXPECT in request.headers:
            await _send_continue(request)
        content = request.content
        limit = asyncio.timeout(DEADLINE)
        held = self.budget.body(_sender(request), lambda: _expire(limit))
        try:
            async with limit:
                with held:
                    body = await _gather(content, held)
                    if held.is_displaced:
                        raise BudgetExceeded
                    limit.reschedule(None)
                    yield body
        except BudgetExceeded:
            raise _no_room() from None
        except TimeoutError:
            if not limit.expired():
                raise
            if held.is_displaced:
                raise _no_room() from None
            raise UnreadableBody(408, f"the body did not arrive within {DEADLINE} seconds") from None


def _check_headers(request: web.BaseRequest) -> None:
    headers = request.headers
    kind = headers.get(hdrs.CONTENT_TYPE, "")
    if kind != _JSON and kind.partition(";")[0].strip().lower() != _JSON:
        raise UnreadableBody(415, f"Content-Type: want {_JSON}")
    if hdrs.CONTENT_ENCODING in headers:
        raise UnreadableBody(415, "Content-Encoding: want none")


def _sender(request: web.BaseRequest) -> Path | None:
    """The sender of *request* in the tree of shares; None if its client certificate was verified."""
    connection = cast("BoundedConnection", request.protocol)
    return None if connection.is_verified else connection.sender


async def _gather(content: aiohttp.StreamReader, held: HeldBody) -> bytes:
    body = bytearray()
    try:
        while piece := await content.readany():
            body += piece
            if len(body) > LIMIT:
                raise _too_large()
            if len(body) > SMALL:
                held.grow(len(body))
    except (aiohttp.ClientError, web.RequestPayloadError, ValueError):
        raise UnreadableBody(400, "the body does not match its headers") from None
    return bytes(body)


def _expire(limit: asyncio.Timeout) -> None:
    """Let *limit* end what it encloses at its next ``await``."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


def _no_room() -> UnreadableBody:
    return UnreadableBody(503, "too many large reviews at once; retry")


def _too_large() -> UnreadableBody:
    return UnreadableBody(413, f"a review has at most {LIMIT} bytes")


async def _send_continue(request: web.BaseRequest) -> None:
    if request.headers[hdrs.EXPECT].lower() != "100-continue":
        raise UnreadableBody(417, "Expect: want 100-continue")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0
