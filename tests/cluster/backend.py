"""
The backend of a test's Services: answers over HTTP and UDP with its pod's name and the client's address.

``python backend.py PORT``; pods get its text unchanged, so it needs only Python.
"""

import asyncio
import signal
import socket
import sys


def answer_to(client: str) -> bytes:
    """The answer to *client*."""
    return f"{socket.gethostname()} {client.removeprefix('::ffff:')}".encode()


class Datagrams(asyncio.DatagramProtocol):
    """Answers every datagram."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Answer."""
        self._transport.sendto(answer_to(address[0]), address)  # type: ignore[attr-defined]  # it is a DatagramTransport


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request."""
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + answer_to(writer.get_extra_info("peername")[0]))
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve until SIGTERM."""
    loop, port = asyncio.get_running_loop(), int(sys.argv[1])
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await asyncio.start_server(answer, None, port, backlog=1024)
    await loop.create_datagram_endpoint(Datagrams, local_addr=("0.0.0.0", port))
    await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main())
