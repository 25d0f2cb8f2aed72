"""
Passes connections to a port of this machine on to the same port of a network namespace, both on loopback.

``python -m hack.testbed.relay FD PORT`` runs in that namespace, with the descriptor of a socket that listens outside.
"""

import asyncio
import socket
import sys
from contextlib import suppress

_CHUNK = 1 << 16


async def relay(listening: socket.socket, port: int) -> None:
    """Serve *listening* until cancelled."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
            inner_writer.close()
        writer.close()

    server = await asyncio.start_server(accept, sock=listening)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until *reader* ends, and say so to *writer*."""
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(relay(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
