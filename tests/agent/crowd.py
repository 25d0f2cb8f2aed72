"""
A crowd at a port: ``python -m tests.agent.crowd HOST PORT COUNT``.

So many connections at once, each replaced as soon as it is cut: silent ones, half requests, requests that drip, and
sound ones whose answer nobody reads. A line tells of every hundred that were opened; it goes on until it is killed.
"""

import asyncio
import itertools
import socket
import sys
from contextlib import suppress

ASK = b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n"
MANNERS = (b"", b"GET /metr", b"drip", b"\x16\x03\x01\x02\x00\x01", ASK)
PAUSE = 0.02  # seconds before one that was cut comes again: 500 of them take no core for themselves


async def bother(host: str, port: int, manner: bytes) -> None:
    """Open one connection, and hold it as long as the server lets us."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.setblocking(False)
        await loop.sock_connect(client, (host, port))
        if manner == b"drip":
            for byte in itertools.cycle(b"X: y\r\n"):
                await loop.sock_sendall(client, bytes([byte]))
                await asyncio.sleep(0.2)
        await loop.sock_sendall(client, manner)
        if manner == ASK:
            await asyncio.sleep(10)  # nothing is read, not even the end
        await loop.sock_recv(client, 1)


async def main(host: str, port: int, count: int) -> None:
    """Bother for ever."""
    opened = itertools.count(1)

    async def one(manner: bytes) -> None:
        while True:
            if (number := next(opened)) % 100 == 0:
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()
            with suppress(OSError):
                await bother(host, port, manner)
            await asyncio.sleep(PAUSE)

    await asyncio.gather(*(one(MANNERS[number % len(MANNERS)]) for number in range(count)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
