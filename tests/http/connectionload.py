"""
Many connections to one port: ``python -m tests.http.connectionload HOST PORT COUNT``.

Some are silent, some send half a request or half a handshake, some send bytes slowly, some send complete requests
without a pause, some do not read the answers. Each is replaced when it is closed. The program prints a line for every
hundred connections, and runs until it is killed.
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

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n"
SLOW, READING = b"drip", b"read"
BEHAVIOURS = (b"", b"GET /metr", SLOW, b"\x16\x03\x01\x02\x00\x01", REQUEST, READING)
PAUSE = 0.02  # seconds until a closed connection is replaced: 500 of them do not occupy a core


async def hold_connection(host: str, port: int, behaviour: bytes) -> None:
    """Open one connection, and keep it until the server closes it."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.setblocking(False)
        await loop.sock_connect(client, (host, port))
        if behaviour == SLOW:
            for byte in itertools.cycle(b"X: y\r\n"):
                await loop.sock_sendall(client, bytes([byte]))
                await asyncio.sleep(0.2)
        await loop.sock_sendall(client, REQUEST if behaviour == READING else behaviour)
        while behaviour == READING and await loop.sock_recv(client, 65536):
            pass
        if behaviour == REQUEST:
            await asyncio.sleep(10)  # read nothing, not even EOF
        await loop.sock_recv(client, 1)


async def main(host: str, port: int, count: int) -> None:
    """Keep *count* connections open until the process is killed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    opened = itertools.count(1)

    async def one(behaviour: bytes) -> None:
        while True:
            if (number := next(opened)) % 100 == 0:
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()
            with suppress(OSError):
                await hold_connection(host, port, behaviour)
            await asyncio.sleep(PAUSE)

    await asyncio.gather(*(one(BEHAVIOURS[number % len(BEHAVIOURS)]) for number in range(count)))


@contextmanager
def connection_load(
    host: str, port: int, count: int, *, log: Path, spawn: Callable[..., Process] = process.spawn
) -> Iterator[Callable[[], int]]:
    """Open the connections in a process; when each was opened once, yield a function that counts all opened ones."""

    def opened() -> int:
        return int(process.tail(log, 1) or 0)

    running = spawn((sys.executable, "-m", "tests.http.connectionload", host, str(port), str(count)), log=log)
    try:
        process.wait_for("each connection was opened once", lambda: opened() >= count, timeout=300)
        yield opened
        assert running.alive, process.tail(log)
    finally:
        process.kill([running])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
