"""A plain HTTP client for one connection: from any loopback address, over TLS if requested."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

HOST = "127.0.0.1"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def unverifying() -> ssl.SSLContext:
    """A TLS client that verifies nothing, as Prometheus with insecureSkipVerify."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@dataclass(eq=False)
class Client:
    """One connection; *is_last*: the last answer closes it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_last: bool = False

    @classmethod
    async def connected(cls, port: int, *, source: str = HOST, tls: ssl.SSLContext | None = None) -> Self:
        """Connect to *port* of loopback from the address *source*."""
        return cls(*await asyncio.open_connection(HOST, port, local_addr=(source, 0), ssl=tls))

    async def ask(self, request: bytes = GET) -> int:
        """Send *request*; the status of the answer, after its body was read."""
        self.writer.write(request)
        return await self.status()

    async def status(self) -> int:
        """The status of the next answer, after its body was read."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        self.is_last = b"\r\nconnection: close\r\n" in head
        await self.reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
        return int(head.split(maxsplit=2)[1])

    async def rest(self) -> bytes:
        """What still comes until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def close(self) -> None:
        """Close at once."""
        self.writer.transport.abort()


@contextmanager
def closed(clients: list[Client]) -> Iterator[None]:
    """Close *clients* at the end."""
    try:
        yield
    finally:
        for client in clients:
            client.close()
