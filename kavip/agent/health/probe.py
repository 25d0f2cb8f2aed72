"""
One probe of a health check: an HTTP GET whose status decides.

Each probe has a connection of its own and a timeout. It reads the head of the answer, at most 16 KiB, and no body.
The target says which status passes; a redirect is an answer and is not followed. No token, cookie or other credential
is sent. Certificates are always verified.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohappyeyeballs import AddrInfoType, start_connection

from kavip.api.address import read_address
from kavip.vrrp.targets import CheckTarget

LARGEST: Final = 16 << 10
"""Bytes of an answer's head, including the heads of interim answers."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])( [^\r\n]*)?\r?\n")
_INTERIM: Final = range(100, 200)
_STAGGER: Final = 0.25  # seconds between attempts to connect, as RFC 8305 recommends
_RESOLVERS: Final = 16  # threads that may block in a resolver, one for each check, apart from those for keepalived


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """
    Whether the probe succeeded, and a *message* of one line without text from the server.

    *ok* is None if the probe could not run, for a reason outside the service.
    """

    ok: bool | None
    message: str


class TrustStore:
    """A TLS context for each file of CAs, which is read again when the file changes."""

    def __init__(self) -> None:
        self._known: dict[Path | None, tuple[tuple[int, int], ssl.SSLContext]] = {}

    def context(self, path: Path | None) -> ssl.SSLContext:
        """The context for the CAs in *path*, or None for the image's CAs. Blocks; raises OSError (also SSLError)."""
        status = path.stat() if path else None
        identity = (status.st_ino, status.st_mtime_ns) if status else (0, 0)
        known = self._known.get(path)
        if known is None or known[0] != identity:
            made = ssl.create_default_context(cafile=path)
            # Python 3.13 requires extensions that the CAs of many clusters lack.
            made.verify_flags &= ~ssl.VERIFY_X509_STRICT
            known = self._known[path] = identity, made
        return known[1]


class HTTPProber:
    """Probes targets; all checks share the CAs and the resolver's threads."""

    def __init__(self) -> None:
        self._trust = TrustStore()
        self._resolvers: ThreadPoolExecutor | None = None
        self._looked_up: dict[tuple[str, int], asyncio.Future[Sequence[AddrInfoType]]] = {}

    async def probe(self, target: CheckTarget, *, ca_file: Path | None, seconds: float) -> ProbeResult:
        """Probe *target* once; every failure is a result."""
        try:
            async with asyncio.timeout(seconds):
                status = await self._status(target, ca_file)
        except TimeoutError:
            return ProbeResult(ok=False, message=f"no answer within {seconds:g} s")
        except ssl.SSLCertVerificationError as error:
            return ProbeResult(ok=False, message=f"its certificate is not valid: {error.verify_message}")
        except ssl.SSLError:
            return ProbeResult(ok=False, message="TLS failed")
        except socket.gaierror:
            return ProbeResult(ok=False, message="its name does not resolve")
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno else "none of its addresses accepts a connection"
            return ProbeResult(ok=False, message=why)
        except _NoCAError:
            return ProbeResult(None, "the CA of caFrom is not mounted, or is invalid")
        except _NoHTTPError as error:
            return ProbeResult(ok=False, message=str(error))
        return ProbeResult(ok=target.passes(status), message=f"status {status}")

    async def _status(self, target: CheckTarget, ca_file: Path | None) -> int:
        loop = asyncio.get_running_loop()
        secure = target.scheme == "https"
        context = await asyncio.to_thread(self._context, ca_file) if secure else None
        addresses = await self._addresses(target, loop)
        reader, writer = await _connected(addresses, target, context)
        try:
            writer.write(_request(target))
            return await _read_status(reader)
        finally:
            writer.transport.abort() if secure else writer.close()  # a peer may take its time to end TLS

    def _context(self, ca_file: Path | None) -> ssl.SSLContext:
        try:
            return self._trust.context(ca_file)
        except OSError:
            raise _NoCAError from None

    async def _addresses(self, target: CheckTarget, loop: asyncio.AbstractEventLoop) -> Sequence[AddrInfoType]:
        if read_address(target.host) is not None:
            return _look_up(target, flags=socket.AI_NUMERICHOST)
        # Shared by all probes, and not cancelled with one of them: each would block another thread.
        key = target.host, target.port
        if (pending := self._looked_up.get(key)) is None:
            if self._resolvers is None:
                self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolver")
            pending = self._looked_up[key] = loop.run_in_executor(self._resolvers, _look_up, target)
            pending.add_done_callback(lambda _: self._looked_up.pop(key, None))
        return await asyncio.shield(pending)


class _NoCAError(Exception):
    """There is no CA to verify a certificate with."""


class _NoHTTPError(Exception):
    """The answer is not HTTP; the text is kavip's."""


def _look_up(target: CheckTarget, flags: int = 0) -> Sequence[AddrInfoType]:
    """The addresses of *target*; blocks unless they are numbers."""
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM, flags=flags)
    return tuple(dict.fromkeys(found))


async def _connected(
    addresses: Sequence[AddrInfoType], target: CheckTarget, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """
    A connection to one of *addresses* that accepts one.

    They are tried one after the other, the next one also while one does not answer (RFC 8305).
    """
    name = target.host.rstrip(".") if context else None
    connected = await start_connection(addresses, happy_eyeballs_delay=_STAGGER, interleave=1)
    return await asyncio.open_connection(sock=connected, ssl=context, server_hostname=name, limit=LARGEST)


async def _read_status(reader: asyncio.StreamReader) -> int:
    """The status of the final answer, after interim ones (100 to 199)."""
    taken = 0
    final = True  # not within the head of an interim answer
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise _NoHTTPError("its answer is not HTTP") from None
        taken += len(line)
        if taken > LARGEST:
            raise _NoHTTPError("its answer has no end")
        if not final:
            final = line in (b"\r\n", b"\n")
            continue
        match = _STATUS.fullmatch(line)
        if match is None:
            raise _NoHTTPError("its answer is not HTTP")
        if (status := int(match[1])) not in _INTERIM:
            return status
        final = False


def _request(target: CheckTarget) -> bytes:
    return (
        f"GET {target.path} HTTP/1.1\r\n"
        f"Host: {target.authority}\r\n"
        "User-Agent: kavip\r\n"
        "Accept: */*\r\n"
        "Connection: close\r\n"
        "\r\n"
    ).encode("ascii")
