"""
Requests VIPs over HTTP every 10 ms, each time on a new connection, until standard input closes.

It prints "ready" after the first request to each VIP. At the end it prints a JSON object: for each VIP a list of
``[moment of sending, seconds until the answer or null, node that answered or reason]``, in the order of sending.
Moments are seconds of the monotonic clock, which all hosts of a segment share. An established connection may be reset
(:data:`RESET`) where its VIP moves, because the connection does not move.

Each tick of the clock has its own port, which comes again after five minutes. A node that has lost its VIP keeps its
established connections. It answers a new connection from such a port as if the old one still existed, and TCP repeats
the SYN.

A request is :data:`LOST` where TCP had to repeat the SYN. The kernel's timer decides that, so a busy machine does not
matter. A late answer is an answer.
"""

import asyncio
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator

from tests.transitions.vipserver import PORT

EVERY = 0.01
RESET, LOST, UNANSWERED = "reset", "lost", "unanswered"
TIMEOUT = 5.0
"""Seconds to wait for an answer on an established connection, or for the kernel: long enough for a busy machine."""

_PORTS = range(1024, 32768)  # outside the kernel's range for other programs
_AGAIN = 1  # repeats of a SYN, after a second; two seconds later connect fails
_TOTAL_RETRANS = 100  # its offset in tcp_info

Row = tuple[float, float | None, str]


class RequestProtocol(asyncio.Protocol):
    """One request; *body* is the answer, complete when the server closes."""

    def __init__(self) -> None:
        self.body: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._said = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET / HTTP/1.0\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        """Store a part of the answer."""
        self._said += data

    def connection_lost(self, error: Exception | None) -> None:
        """Complete *body*, or fail it where there was no answer."""
        answer = self._said.partition(b"\r\n\r\n")[2].decode()
        if answer and not self.body.done():
            self.body.set_result(answer)
        elif not self.body.done():
            self.body.set_exception(error or ConnectionError("no answer"))


def ticks() -> Iterator[int]:
    """Increasing numbers of the clock that all hosts and clients share; no number comes twice."""
    last = 0
    while True:
        yield (last := max(last + 1, int(time.monotonic() / EVERY)))


def port(tick: int) -> int:
    """The source port for that tick."""
    return _PORTS[tick % len(_PORTS)]


async def ask(vip: str, tick: int) -> Row:
    """Send one request to *vip* and wait for its result."""
    loop = asyncio.get_running_loop()
    transport, asking = None, None
    with socket.socket(socket.AF_INET6 if ":" in vip else socket.AF_INET, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the requests to all VIPs share the port
        client.bind(("", port(tick)))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _AGAIN)
        client.connect_ex((vip, PORT))
        sent = time.monotonic()  # the SYN has left
        try:
            async with asyncio.timeout(TIMEOUT):
                await loop.sock_connect(client, (vip, PORT))
                if _sent_again(client):
                    return sent, None, LOST
                transport, asking = await loop.create_connection(RequestProtocol, sock=client)
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
                asking.body.cancel()  # its result is not needed any more


def _sent_again(client: socket.socket) -> bool:
    """Whether TCP repeated the SYN or its acknowledgement."""
    info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANS + 4)
    return bool(struct.unpack_from("I", info, _TOTAL_RETRANS)[0])


async def main() -> None:
    """Send requests on an absolute clock, so that a late one does not delay the next ones."""
    stopped = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    clock = ticks()
    rows: dict[str, list[Row]] = {vip: [await ask(vip, next(clock))] for vip in sys.argv[1:]}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    pending: set[asyncio.Task[None]] = set()

    async def once(vip: str, tick: int) -> None:
        rows[vip].append(await ask(vip, tick))

    due = time.monotonic()
    while not stopped.done():
        tick = next(clock)
        for vip in rows:
            task = asyncio.create_task(once(vip, tick))
            pending.add(task)
            task.add_done_callback(pending.discard)
        due = max(due + EVERY, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
    await asyncio.gather(*pending, *(once(vip, next(clock)) for vip in rows))  # of the end, too
    json.dump({vip: sorted(found, key=lambda row: row[0]) for vip, found in rows.items()}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
