"""
HTTP to the API server.

All calls share one session. Watches have another one: with many of them, and there is one for each kind and namespace,
no call waits for a connection. Each call has a timeout, and fails with one of :mod:`kavip.errors`. Bodies are never
logged. Redirects are not followed, because they would send the token to another server.

A write may have a *guard*. It is called last, when the connection is ready: nothing is awaited between the guard and
the socket, and a withheld call sends no byte, not even headers. A write that may have been sent is awaited even if the
caller is cancelled: when a leader releases its lease, none of its writes is in flight.
"""

import asyncio
import os
import socket
import ssl
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
from kavip.errors import LeaseLost, SettingsError, Unavailable
from kavip.kube.auth import Credentials
from kavip.kube.codec import error_of

JSON: Final = "application/json"
TIMEOUT: Final = 10.0
"""Seconds for one call, including the wait for a connection."""
TOO_LARGE: Final = "TooLarge"
"""The reason of an answer that is longer than its reader accepts."""
CONNECTIONS: Final = 64
"""For calls; each watch has one of its own."""
_OPEN_TIMEOUT: Final = 30.0  # for the headers of a watch: the server may queue the request under load
_READ_BUFFER: Final = 256 * 1024  # four times the default: a list needs fewer reads

Observe = Callable[[str, int], None]
"""Called with the method and the HTTP status of each call; 0 without an answer."""

Guard = Callable[[], None]
"""Called right before a write is sent; raises :class:`LeaseLost` to withhold it."""


class Transport:
    """An HTTP session with the API server; use it as an async context manager."""

    def __init__(self, credentials: Credentials, *, observe: Observe | None = None) -> None:
        """Entering the context opens the session."""
        self._credentials, self._observe = credentials, observe or _ignore
        self._server = ""
        self._session: aiohttp.ClientSession
        self._streams: aiohttp.ClientSession
        self._fixed: dict[str, Any] = {"allow_redirects": False}  # of each request
        self._refresher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Load the credentials and open the session. Raises :class:`SettingsError` for a server that is no URL."""
        await self._credentials.load()
        self._server = _url_of(self._credentials.server)
        if self._credentials.proxy:
            self._fixed["proxy"] = self._credentials.proxy
        if self._credentials.server_hostname:
            self._fixed["server_hostname"] = self._credentials.server_hostname
        self._session, self._streams = self._new_session(CONNECTIONS), self._new_session(0)
        self._refresher = asyncio.create_task(self._credentials.keep_fresh(), name="kube:credentials")
        return self

    def _new_session(self, connections: int) -> aiohttp.ClientSession:
        """A session with at most so many *connections*; 0: any number."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            headers={
                "User-Agent": f"kavip/{__version__}",
                "Accept-Encoding": "identity",  # decompressing a list blocks the loop for longer than sending it takes
            },
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        if self._refresher is not None:
            self._refresher.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresher
        await self._session.close()
        await self._streams.close()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._credentials.server

    @property
    def _options(self) -> dict[str, Any]:
        """The options of each request. With other certificates it does not use a connection that is open."""
        return {**self._fixed, "ssl": self._credentials.tls}

    @property
    def _name(self) -> str:
        """The API server in messages, which hold no password."""
        return f"the API server {_without_user(self._server)}"

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float = TIMEOUT,
        guard: Guard | None = None,
    ) -> bytes:
        """One call; returns the body. Raises :class:`ApiError`, or :class:`LeaseLost` if *guard* withheld it."""
        url, type_ = self._url(path, query), content_type if body is not None else ""
        if guard is None:
            return await self._call(method, url, body, content_type=type_, accept=accept, timeout=timeout)
        guarded = _Guarded(body or b"", guard)
        return await _uncancelled(self._call(method, url, guarded, content_type=type_, accept=accept, timeout=timeout))

    async def _call(
        self, method: str, url: URL, body: "bytes | _Guarded | None", *, content_type: str, accept: str, timeout: float
    ) -> bytes:
        headers = await self._headers(accept, content_type=content_type)
        limit = _limit(timeout)
        with self._map_errors(method), _raise_withheld(body):
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=limit, **self._options
            ) as answer:
                payload = await answer.read()
        self._check_status(method, answer, payload)
        return payload

    async def read(
        self, path: str, *, most: int, query: Mapping[str, str] | None = None, timeout: float = TIMEOUT
    ) -> bytes:
        """GET *path* from an untrusted server behind the API server; raises also if the body is longer than *most*."""
        headers = await self._headers(JSON)
        with self._map_errors("GET"):
            async with self._session.get(
                self._url(path, query), headers=headers, timeout=_limit(timeout), **self._options
            ) as answer:
                payload = b""
                while len(payload) <= most and (chunk := await answer.content.readany()):
                    payload += chunk
                if len(payload) > most:
                    _abort(answer)
        if len(payload) > most:
            raise Unavailable(answer.status, TOO_LARGE, f"the answer has more than {most:,} bytes")
        self._check_status("GET", answer, payload)
        return payload

    @asynccontextmanager
    async def stream_lines(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """
        Read a stream by line, until the server ends it or sends nothing for *silence* seconds.

        Silence is no error: a server sends no bookmarks for a kind without a change since its start (for two minutes
        and more, measured with 1.35). The next connection shows whether this one was half-open.
        """
        headers = await self._headers(accept)
        limit = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=silence)
        async with AsyncExitStack() as stack:
            with self._map_errors("WATCH"):
                async with asyncio.timeout(min(_OPEN_TIMEOUT, silence)):
                    answer = await stack.enter_async_context(
                        self._streams.get(self._url(path, query), headers=headers, timeout=limit, **self._options)
                    )
                    payload = b"" if answer.status < 300 else await answer.read()
            self._check_status("WATCH", answer, payload)
            stack.callback(_abort, answer)
            yield await stack.enter_async_context(aclosing(self._split_lines(answer.content)))

    async def _split_lines(self, content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
        """Complete lines only; bytes after the last newline are incomplete."""
        rest = b""
        with self._map_errors("WATCH"), suppress(aiohttp.SocketTimeoutError):
            while chunk := await content.readany():
                *complete, rest = (rest + chunk).split(b"\n")
                for line in complete:
                    if line:
                        yield line

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        return URL(
            f"{self._server}{path}?{_encoded(tuple(query.items()))}" if query else self._server + path, encoded=True
        )

    async def _headers(self, accept: str, *, content_type: str = "") -> dict[str, str]:
        headers = {"Accept": accept} | ({"Content-Type": content_type} if content_type else {})
        if authorization := await self._credentials.authorization():
            headers["Authorization"] = authorization
        return headers

    def _check_status(self, method: str, answer: aiohttp.ClientResponse, payload: bytes) -> None:
        self._observe(method, answer.status)
        if answer.status >= 300:
            retry_after = answer.headers.get("Retry-After", "")
            raise error_of(answer.status, payload, phrase=answer.reason or "", retry_after=retry_after)

    @contextmanager
    def _map_errors(self, method: str) -> Iterator[None]:
        """Raise every connection error as :class:`Unavailable`, which names the server."""
        try:
            yield
        except TimeoutError as error:
            self._observe(method, 0)
            raise Unavailable(0, "Timeout", f"{self._name} does not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            self._observe(method, 0)
            raise Unavailable(0, "NoConnection", f"{self._name} does not answer: {_cause(error)}") from error


class _Guarded(aiohttp.BytesPayload):
    """
    A body with a guard.

    aiohttp writes the body when it has a connection, and sends the headers together with it, not before.
    """

    def __init__(self, body: bytes, guard: Guard) -> None:
        super().__init__(body)
        self._guard = guard
        self.withheld: LeaseLost | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Call the guard, then send headers and body; aiohttp closes the connection if this raises."""
        try:
            self._guard()
        except LeaseLost as error:
            self.withheld = error
            raise
        await super().write_with_length(writer, content_length)


@contextmanager
def _raise_withheld(body: bytes | _Guarded | None) -> Iterator[None]:
    """Raise the guard's error for a withheld call: aiohttp raises a connection error."""
    try:
        yield
    except aiohttp.ClientError:
        if isinstance(body, _Guarded) and body.withheld is not None:
            raise body.withheld from None
        raise


def _url_of(server: str) -> str:
    try:
        url = URL(server)
        is_valid = url.scheme in ("http", "https") and bool(url.host)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise SettingsError(f"kubeconfig: server {_without_user(server)!r}: want a URL such as https://192.0.2.1:6443")
    return server


def _without_user(server: str) -> str:
    scheme, slashes, rest = server.rpartition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


def _cause(error: aiohttp.ClientError | OSError) -> str:
    """Why there is no connection, in one line, without the password of a proxy."""
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return "the URL of the proxy is not valid"
    if isinstance(error, aiohttp.ClientResponseError):  # its own text has the URL of the proxy
        return " ".join((str(error.status), *error.message.split()))
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if cause is None or isinstance(cause, ssl.SSLError) or not (cause.errno or 0):
        return " ".join(str(error).split()) or type(error).__name__
    reason = str(cause.strerror) if isinstance(cause, socket.gaierror) else os.strerror(cause.errno)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"proxy {error.host}:{error.port}: {reason}"
    return reason  # aiohttp's own text has Python's notation of the address


def _abort(answer: aiohttp.ClientResponse) -> None:
    """Abort a connection that is not read to the end: its peer may never answer a TLS close_notify."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


async def _uncancelled(call: Coroutine[Any, Any, bytes]) -> bytes:
    """Await *call* even if this task is cancelled; *call* has its own timeout."""
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
        task.cancelled() or task.exception()  # retrieve it, otherwise asyncio logs a warning
        raise asyncio.CancelledError
    return task.result()


@lru_cache
def _limit(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds)


@lru_cache
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query)


def _ignore(_method: str, _code: int) -> None:
    """Ignore the call."""
