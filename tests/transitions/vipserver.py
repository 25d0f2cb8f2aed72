"""An HTTP server that answers every request, on every address of its node, with the node's name."""

import asyncio
import sys

PORT = 80


class Answering(asyncio.Protocol):
    """One connection."""

    body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport for the answer."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer any request."""
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(b"HTTP/1.0 200 OK\r\n\r\n" + self.body)
        self._transport.close()


async def main() -> None:
    """Serve until the process is killed."""
    Answering.body = sys.argv[1].encode()
    server = await asyncio.get_running_loop().create_server(Answering, None, PORT, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
