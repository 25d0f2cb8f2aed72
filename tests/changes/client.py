"""
Ask VIPs over HTTP every 10 ms, each time on a new connection, until standard input closes.

Prints "ready" when it has asked each once, and at the end one JSON object: for each VIP a list of
``[when it was sent, seconds until the answer or null, who answered, or why nobody]``, in the order of sending. A
connection that stood may be reset (:data:`RESET`) where its VIP moves: it stays behind. Moments are seconds of the
monotonic clock, which all machines of a segment share.

Each tick of the clock has a port of its own, which comes again after five minutes. A node that has lost its VIP keeps
the connections that stood; it answers whoever begins a new one from the port of such a one as if that still stood, and
TCP asks again.

A request is :data:`LOST` where TCP had to ask for its connection again: the kernel's clock says so, and no program on a
busy machine has a part in it. One that is answered late is answered.
"""

import asyncio
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator

from tests.changes.server import PORT

EVERY = 0.01
RESET, LOST, UNANSWERED = "reset", "lost", "unanswered"
TIMEOUT = 5.0
"""Seconds for an answer on a connection that stands, or that keeps the kernel waiting: much for a busy machine."""

_PORTS = range(1024, 32768)  # none that the kernel gives to others
_AGAIN = 1  # times that a SYN is sent once more, after a second; two seconds later nobody is there
_TOTAL_RETRANS = 100  # where tcp_info has it

Row = tuple[float, float | None, str]


class Asking(asyncio.Protocol):
    """One request; *body* is done when the server has said all."""

    def __init__(self) -> None:
        self.body: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._said = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET / HTTP/1.0\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        self._said += data

    def connection_lost(self, error: Exception | None) -> None:
        """Keep the answer, if it is one."""
        answer = self._said.partition(b"\r\n\r\n")[2].decode()
        if answer and not self.body.done():
            self.body.set_result(answer)
        elif not self.body.done():
            self.body.set_exception(error or ConnectionError("no answer"))


def ticks() -> Iterator[int]:
    """Numbers that grow with the clock that all machines and all clients share, and no number twice."""
    last = 0
    while True:
        yield (last := max(last + 1, int(time.monotonic() / EVERY)))


def port(tick: int) -> int:
    """The port from which is asked at that time."""
    return _PORTS[tick % len(_PORTS)]


async def ask(vip: str, tick: int) -> Row:
    """One request to *vip*."""
    loop = asyncio.get_running_loop()
    transport, asking = None, None
    with socket.socket(socket.AF_INET6 if ":" in vip else socket.AF_INET, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # each VIP is asked from the same one
        client.bind(("", port(tick)))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _AGAIN)
        client.connect_ex((vip, PORT))
        sent = time.monotonic()  # it has left
        try:
            async with asyncio.timeout(TIMEOUT):
                await loop.sock_connect(client, (vip, PORT))
                if _sent_again(client):
                    return sent, None, LOST
                transport, asking = await loop.create_connection(Asking, sock=client)
                body = await asking.body
                return sent, time.monotonic() - sent, body
        except ConnectionResetError:
            return sent, None, RESET
        except OSError as error:
            return sent, None, os.strerror(error.errno) if error.errno else UNANSWERED
        finally:
            if transport:
                transport.abort()
            if asking:
                asking.body.cancel()  # nobody waits for what it still hears


def _sent_again(client: socket.socket) -> bool:
    """Whether the first packet of a connection was lost, or the answer to it."""
    told = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANS + 4)
    return bool(struct.unpack_from("I", told, _TOTAL_RETRANS)[0])


async def main() -> None:
    """Ask in steps of an absolute clock, so that a late one does not put off those after it."""
    stopped = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    clock = ticks()
    rows: dict[str, list[Row]] = {vip: [await ask(vip, next(clock))] for vip in sys.argv[1:]}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    asked: set[asyncio.Task[None]] = set()

    async def once(vip: str, tick: int) -> None:
        rows[vip].append(await ask(vip, tick))

    due = time.monotonic()
    while not stopped.done():
        tick = next(clock)
        for vip in rows:
            task = asyncio.create_task(once(vip, tick))
            asked.add(task)
            task.add_done_callback(asked.discard)
        due = max(due + EVERY, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
    await asyncio.gather(*asked)
    json.dump({vip: sorted(found, key=lambda row: row[0]) for vip, found in rows.items()}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
