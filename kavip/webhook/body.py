"""
Reads request bodies within limits of size, time and memory.

A small body is always read. Larger bodies share a budget, charged as their bytes arrive: an announced length costs
nothing. A client that exceeds the budget gets a 503, and its connection is closed.
"""

import asyncio
from typing import Final

import aiohttp
from aiohttp import hdrs, web

from kavip.errors import KavipError

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
        self._left = budget

    async def read(self, request: web.BaseRequest) -> bytes:
        """The body of *request*; raises :class:`UnreadableBody` for a request that no API server sends."""
        headers = request.headers
        kind = headers.get(hdrs.CONTENT_TYPE, "")
        if kind != _JSON and kind.partition(";")[0].strip().lower() != _JSON:
            raise UnreadableBody(415, f"Content-Type: want {_JSON}")
        if hdrs.CONTENT_ENCODING in headers:
            raise UnreadableBody(415, "Content-Encoding: want none")
        if (request.content_length or 0) > LIMIT:
            raise _too_large()
        if hdrs.EXPECT in headers:
            await _send_continue(request)
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        try:
            async with asyncio.timeout(DEADLINE):
                return await self._gather(content)
        except TimeoutError:
            raise UnreadableBody(408, f"the body did not arrive within {DEADLINE} seconds") from None
        except (aiohttp.ClientError, web.RequestPayloadError, ValueError):
            raise UnreadableBody(400, "the body does not match its headers") from None

    def release(self, body: bytes) -> None:
        """Return the budget of *body*, which was read here and has been answered."""
        if len(body) > SMALL:
            self._left += len(body)

    async def _gather(self, content: aiohttp.StreamReader) -> bytes:
        body = bytearray()
        charged = 0
        try:
            while piece := await content.readany():
                body += piece
                if len(body) > LIMIT:
                    raise _too_large()
                if len(body) > SMALL:
                    self._charge(len(body) - charged)
                    charged = len(body)
        except BaseException:
            self._left += charged
            raise
        return bytes(body)

    def _charge(self, count: int) -> None:
        if count > self._left:
            raise UnreadableBody(503, "too many large reviews at once; retry")
        self._left -= count


def _too_large() -> UnreadableBody:
    return UnreadableBody(413, f"a review has at most {LIMIT} bytes")


async def _send_continue(request: web.BaseRequest) -> None:
    if request.headers[hdrs.EXPECT].lower() != "100-continue":
        raise UnreadableBody(417, "Expect: want 100-continue")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0
