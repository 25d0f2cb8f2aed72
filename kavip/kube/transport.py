"""
Bytes to and from the API server.

One session for all calls; each has a limit on its time; each failure is one of :mod:`kavip.errors`. Bodies are never
logged, nor are redirects followed: they would carry the token elsewhere.

A write may have a *guard*. It is asked last of all, with the connection at hand: between its answer and the socket
nothing is awaited, and a call that it withholds sends not one byte, headers included. A write that may have left is
waited for even when the caller is cancelled: whoever gives up the lease next knows that nothing of his is on its way.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from kavip import __version__
from kavip.errors import LeaseLost, Unavailable
from kavip.kube.auth import Credentials
from kavip.kube.codec import error_of

TIMEOUT: Final = 10.0
"""Seconds for one call, waiting for a connection included."""
CONNECTIONS: Final = 64
_OPENING: Final = 30.0  # until a watch has its headers: the server may queue it under load
_READ_BUFFER: Final = 256 * 1024  # four times aiohttp's: fewer, larger reads of a list

Observe = Callable[[str, int], None]
"""Told of each call's method and HTTP status; 0 where there was no answer."""

Guard = Callable[[], None]
"""Asked right before the bytes of a write leave; raises :class:`LeaseLost` where they may not."""


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
        guard: Guard | None = None,
    ) -> bytes:
        """One call; its body, or an :class:`ApiError`; :class:`LeaseLost` where *guard* has withheld it."""
        url, type_ = self._url(path, query), content_type if body is not None else ""
        if guard is None:
            return await self._call(method, url, body, content_type=type_, timeout=timeout)
        guarded = _Guarded(body or b"", guard)
        return await _to_the_end(self._call(method, url, guarded, content_type=type_, timeout=timeout))

    async def _call(
        self, method: str, url: URL, body: "bytes | _Guarded | None", *, content_type: str, timeout: float
    ) -> bytes:
        headers = await self._headers(content_type)
        limit = _limit(timeout)
        with self._mapped(method), _told(body):
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
            stack.callback(_cut, answer)
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
        return URL(
            f"{self._server}{path}?{_encoded(tuple(query.items()))}" if query else self._server + path, encoded=True
        )

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


class _Guarded(aiohttp.BytesPayload):
    """
    A body that may be *withheld*.

    aiohttp writes a body when it has a connection, and keeps the headers back until then to send both in one piece.
    """

    def __init__(self, body: bytes, guard: Guard) -> None:
        super().__init__(body)
        self._guard = guard
        self.withheld: LeaseLost | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Ask, then hand over headers and body; aiohttp closes the connection when this raises."""
        try:
            self._guard()
        except LeaseLost as error:
            self.withheld = error
            raise
        await super().write_with_length(writer, content_length)


@contextmanager
def _told(body: bytes | _Guarded | None) -> Iterator[None]:
    """Of a call that was withheld, say so: to aiohttp it is a connection that failed."""
    try:
        yield
    except aiohttp.ClientError:
        if isinstance(body, _Guarded) and body.withheld is not None:
            raise body.withheld from None
        raise


def _cut(answer: aiohttp.ClientResponse) -> None:
    """End a connection that nobody reads to its end; for a polite TLS goodbye its peer may never have time."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


async def _to_the_end(call: Coroutine[Any, Any, bytes]) -> bytes:
    """The result of *call*, which is not cancelled with us: it has a limit on its time."""
    task = asyncio.create_task(call)
    interrupted = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            interrupted = True
        except Exception:  # noqa: BLE001 - raised below
            break
    if interrupted:
        task.cancelled() or task.exception()  # looked at, or asyncio complains
        raise asyncio.CancelledError
    return task.result()


@lru_cache
def _limit(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds)


@lru_cache
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query)


def _unobserved(_method: str, _code: int) -> None:
    """Count nothing."""
