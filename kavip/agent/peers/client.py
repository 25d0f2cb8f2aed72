"""
One GET with HTTP/1.0, whose answer ends with the connection: there is no chunk and no second answer to parse.

The answer is bounded in size and time, and redirects are not followed.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kavip.errors import NoAnswer

_HEAD: Final = 16 << 10
_CHUNK: Final = 64 << 10
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")


@dataclass(frozen=True, slots=True)
class Server:
    """Where to connect; with *context* by TLS, verified for *name*. *headers* go with each request."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    name: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def authority(self) -> str:
        """Host and port for the ``Host`` header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def get(server: Server, path: str, *, largest: int, seconds: float) -> bytes:
    """The body of *path*, which has status 200 and at most *largest* bytes; raises :class:`NoAnswer`."""
    try:
        async with asyncio.timeout(seconds):
            return await _get(server, path, largest)
    except TimeoutError:
        raise NoAnswer(f"no answer within {seconds:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise NoAnswer(f"its certificate is not valid: {error.verify_message}") from None
    except ssl.SSLError:
        raise NoAnswer("TLS failed") from None
    except socket.gaierror:
        raise NoAnswer("its name does not resolve") from None
    except OSError as error:
        raise NoAnswer(os.strerror(error.errno).lower() if error.errno else "no connection") from None
    except ValueError:  # a line that is too long
        raise NoAnswer("it does not speak HTTP") from None


async def _get(server: Server, path: str, largest: int) -> bytes:
    name = (server.name or server.host) if server.context else None
    reader, writer = await asyncio.open_connection(
        server.host, server.port, ssl=server.context, server_hostname=name, limit=_HEAD
    )
    try:
        lines = [f"GET {path} HTTP/1.0", f"Host: {server.authority}", "User-Agent: kavip", "Accept: application/json"]
        lines += [f"{key}: {value}" for key, value in server.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        match = _STATUS.match(await reader.readline())
        if match is None:
            raise NoAnswer("it does not speak HTTP")
        if int(match[1]) != 200:
            raise NoAnswer(f"status {int(match[1])}")
        taken = 0
        while (line := await reader.readline()) not in (b"\r\n", b"\n"):
            taken += len(line)
            if not line or taken > _HEAD:
                raise NoAnswer("it does not speak HTTP")
        return await _body(reader, largest)
    finally:
        writer.transport.abort()


async def _body(reader: asyncio.StreamReader, largest: int) -> bytes:
    body = bytearray()
    while chunk := await reader.read(_CHUNK):
        body += chunk
        if len(body) > largest:
            raise NoAnswer(f"its answer has more than {largest:,} bytes")
    return bytes(body)
