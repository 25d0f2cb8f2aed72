"""
Many connections to one port: ``python -m tests.http.crowd HOST PORT COUNT``.

They are silent, send half requests or half handshakes, send bytes slowly, send complete requests without pause, or do
not read the answers. Each is replaced when it is closed. A line is printed for every hundred connections. It runs until
it is killed.
"""

import asyncio
import itertools
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hack.testbed import process
from hack.testbed.process import Process

ASK = b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n"
DRIP, READ = b"drip", b"read"
MANNERS = (b"", b"GET /metr", DRIP, b"\x16\x03\x01\x02\x00\x01", ASK, READ)
PAUSE = 0.02  # seconds until a closed connection is replaced: 500 of them do not occupy a core


async def bother(host: str, port: int, manner: bytes) -> None:
    """Open one connection, and keep it until the server closes it."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.setblocking(False)
        await loop.sock_connect(client, (host, port))
        if manner == DRIP:
            for byte in itertools.cycle(b"X: y\r\n"):
                await loop.sock_sendall(client, bytes([byte]))
                await asyncio.sleep(0.2)
        await loop.sock_sendall(client, ASK if manner == READ else manner)
        while manner == READ and await loop.sock_recv(client, 65536):
            pass
        if manner == ASK:
            await asyncio.sleep(10)  # read nothing, not even EOF
        await loop.sock_recv(client, 1)


async def main(host: str, port: int, count: int) -> None:
    """Run for ever."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
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


@contextmanager
def crowd(
    host: str, port: int, count: int, *, log: Path, spawn: Callable[..., Process] = process.spawn
) -> Iterator[Callable[[], int]]:
    """Open these connections in a process; when each was opened once, yield a function that counts all opened ones."""

    def opened() -> int:
        return int(process.tail(log, 1) or 0)

    running = spawn((sys.executable, "-m", "tests.http.crowd", host, str(port), str(count)), log=log)
    try:
        process.wait_for("each connection was opened once", lambda: opened() >= count, timeout=60)
        yield opened
        assert running.alive, process.tail(log)
    finally:
        process.kill([running])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
