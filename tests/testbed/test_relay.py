"""The relay passes both directions on, and the end of each."""

import asyncio
import socket
from contextlib import suppress

from hack.testbed.relay import relay


async def test_both_directions_are_passed_on() -> None:
    """A request that ends, and the answer to it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"answer to " + await reader.read())
        writer.close()

    inner = await asyncio.start_server(answer, "127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = asyncio.create_task(relay(listening, inner.sockets[0].getsockname()[1]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"a request")
        writer.write_eof()
        assert await reader.read() == b"answer to a request"
        writer.close()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    inner.close()
