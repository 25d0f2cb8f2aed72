"""
Bytes to and from the API server.

One session for all calls; each has a limit on its time; each failure is one of :mod:`kavip.errors`. Bodies are never
logged, nor are redirects followed: they would carry the token elsewhere.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from kavip import __version__
from kavip.errors import Unavailable
from kavip.kube.auth import Credentials
from kavip.kube.codec import error_of

TIMEOUT: Final = 10.0
"""Seconds for one call, waiting for a connection included."""
CONNECTIONS: Final = 64
_OPENING: Final = 30.0  # until a watch has its headers: the server may queue it under load
_READ_BUFFER: Final = 256 * 1024  # four times aiohttp's: fewer, larger reads of a list

Observe = Callable[[str, int], None]
"""Told of each call's method and HTTP status; 0 where there was no answer."""


class Transport:
    """An HTTP session with the API server; use it as an async context manager."""

    def __init__(self, credentials: Credentials, *, observe: Observe | None = None) -> None:
        """Nothing is opened before the context is entered."""
        self._credentials, self._observe = credentials, observe or _unobserved
        self._server = ""
        self._session: aiohttp.ClientSession
        self._fixed: dict[str, Any] = {"allow_redirects": False}
        self._refresher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Load the credentials and open the session."""
        await self._credentials.load()
        self._server = self._credentials.server
        if self._credentials.proxy:
            self._fixed["proxy"] = self._credentials.proxy
        if self._credentials.server_hostname:
            self._fixed["server_hostname"] = self._credentials.server_hostname
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._credentials.tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            headers={
                "User-Agent": f"kavip/{__version__}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # inflating a list would block the loop for longer than it takes to send
            },
        )
        self._refresher = asyncio.create_task(self._credentials.keep_fresh(), name="kube:credentials")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        if self._refresher is not None:
            self._refresher.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresher
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = TIMEOUT,
    ) -> bytes:
        """One call; its body, or an :class:`ApiError`."""
        headers = await self._headers(content_type if body is not None else "")
        limit = aiohttp.ClientTimeout(total=timeout)
        url = self._url(path, query)
        with self._mapped(method):
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=limit, **self._fixed
            ) as answer:
                payload = await answer.read()
        self._judge(method, answer, payload)
        return payload

    @asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """
        Read an endless answer by line, until the server ends it or no byte has come for *silence* seconds.

        Silence is no error: a server sends no bookmarks for a kind that nobody has changed since it started (two
        minutes and more, measured on 1.35). Whether the connection is half-open shows when the next one is opened.
        """
        headers = await self._headers("")
        limit = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=silence)
        async with AsyncExitStack() as stack:
            with self._mapped("WATCH"):
                async with asyncio.timeout(min(_OPENING, silence)):
                    answer = await stack.enter_async_context(
                        self._session.get(self._url(path, query), headers=headers, timeout=limit, **self._fixed)
                    )
                    payload = b"" if answer.status < 300 else await answer.read()
            self._judge("WATCH", answer, payload)
            yield await stack.enter_async_context(aclosing(self._split(answer.content)))

    async def _split(self, content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
        """Whole lines only: what stands after the last newline when the connection ends was torn."""
        rest = b""
        with self._mapped("WATCH"), suppress(aiohttp.SocketTimeoutError):
            while chunk := await content.readany():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    if line:
                        yield line

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        return URL(f"{self._server}{path}?{urlencode(query)}" if query else self._server + path, encoded=True)

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Content-Type": content_type} if content_type else {}
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        return headers

    def _judge(self, method: str, answer: aiohttp.ClientResponse, payload: bytes) -> None:
        self._observe(method, answer.status)
        if answer.status >= 300:
            retry_after = answer.headers.get("Retry-After", "")
            raise error_of(answer.status, payload, phrase=answer.reason or "", retry_after=retry_after)

    @contextmanager
    def _mapped(self, method: str) -> Iterator[None]:
        """Whatever goes wrong with a connection is :class:`Unavailable`."""
        try:
            yield
        except TimeoutError as error:
            self._observe(method, 0)
            raise Unavailable(0, "Timeout", "the API server does not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            self._observe(method, 0)
            raise Unavailable(0, "NoConnection", " ".join(str(error).split()) or type(error).__name__) from error


def _unobserved(_method: str, _code: int) -> None:
    """Count nothing."""
