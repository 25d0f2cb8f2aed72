"""
The body of a request: whole, in time, and not too many large ones at once.

A small body is always read. Larger ones share a budget, counted as their bytes come: what an attacker merely announces
takes nothing from anybody, and what he sends beyond the budget is answered 503 and let go.
"""

import asyncio
from typing import Final

import aiohttp
from aiohttp import hdrs, web

from kavip.errors import KavipError

# The API server takes objects of 3 MiB at most; a review carries two of them as JSON (controller-runtime's derivation).
LIMIT: Final = 7 * 1024 * 1024
SMALL: Final = 64 * 1024
BUDGET: Final = 4 * LIMIT
DEADLINE: Final = 1.8  # seconds for a whole body; the shorter timeoutSeconds is 2

_JSON: Final = "application/json"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Unreadable(KavipError):
    """A request whose body is not read: the *status* to answer, and why."""

    def __init__(self, status: int, why: str) -> None:
        """Say so."""
        super().__init__(why)
        self.status = status


class Reader:
    """Reads bodies; all together they hold at most *budget* bytes beyond the small ones."""

    def __init__(self, budget: int = BUDGET) -> None:
        """Nothing is held yet."""
        self._left = budget

    async def read(self, request: web.BaseRequest) -> bytes:
        """The body of *request*; :class:`Unreadable` where it is none that the API server sends."""
        headers = request.headers
        kind = headers.get(hdrs.CONTENT_TYPE, "")
        if kind != _JSON and kind.partition(";")[0].strip().lower() != _JSON:
            raise Unreadable(415, f"Content-Type: want {_JSON}")
        if hdrs.CONTENT_ENCODING in headers:
            raise Unreadable(415, "Content-Encoding: want none")
        if (request.content_length or 0) > LIMIT:
            raise _too_long()
        if hdrs.EXPECT in headers:
            await _expected(request)
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        try:
            async with asyncio.timeout(DEADLINE):
                return await self._gather(content)
        except TimeoutError:
            raise Unreadable(408, f"no whole body within {DEADLINE} seconds") from None
        except (aiohttp.ClientError, web.RequestPayloadError, ValueError):
            raise Unreadable(400, "the body is not what its headers say") from None

    def free(self, body: bytes) -> None:
        """Give back what *body*, which was read here, has taken: it has been answered."""
        if len(body) > SMALL:
            self._left += len(body)

    async def _gather(self, content: aiohttp.StreamReader) -> bytes:
        body = bytearray()
        taken = 0
        try:
            while piece := await content.readany():
                body += piece
                if len(body) > LIMIT:
                    raise _too_long()
                if len(body) > SMALL:
                    self._take(len(body) - taken)
                    taken = len(body)
        except BaseException:
            self._left += taken
            raise
        return bytes(body)

    def _take(self, count: int) -> None:
        if count > self._left:
            raise Unreadable(503, "too many large reviews at once; ask again")
        self._left -= count


def _too_long() -> Unreadable:
    return Unreadable(413, f"a review has at most {LIMIT} bytes")


async def _expected(request: web.BaseRequest) -> None:
    if request.headers[hdrs.EXPECT].lower() != "100-continue":
        raise Unreadable(417, "Expect: want 100-continue")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0
