"""
Open a connection to ADDRESS:80 every 10 ms until standard input closes; prints "ready", and at the end a JSON list.

A row is ``[outcome, answer, seconds]``: ``refused`` if no connection was established within 5 s,
``cut`` if it was established but there was no answer, else ``answered``; seconds from connection to answer.
``--udp`` sends one datagram instead, and prints the answer.
"""

import asyncio
import json
import socket
import sys
import time
from typing import NamedTuple

EVERY = 0.01
PATIENCE = 5.0  # seconds: long enough for TCP to retransmit lost packets


class Row(NamedTuple):
    """The result of one connection."""

    outcome: str
    body: str = ""
    seconds: float = 0.0


async def call(address: str) -> Row:
    """One connection and one request."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address, 80)
    except (OSError, TimeoutError):
        return Row("refused")
    connected = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            body = (await reader.read()).partition(b"\r\n\r\n")[2].decode()
            return Row("answered" if body else "cut", body, time.monotonic() - connected)
    except (OSError, TimeoutError):
        return Row("cut")
    finally:
        writer.transport.abort()


async def calls(address: str) -> list[Row]:
    """The rows, in the order in which the connections began."""
    loop = asyncio.get_running_loop()
    stopped = loop.run_in_executor(None, sys.stdin.read)
    running = []
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not stopped.done():
        running.append(asyncio.create_task(call(address)))
        await asyncio.sleep(EVERY)
    return await asyncio.gather(*running)


def datagram(address: str) -> str:
    """The answer to one datagram; "" without an answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1.0)
        client.sendto(b"?", (address, 80))
        try:
            return client.recv(100).decode()
        except TimeoutError:
            return ""


if __name__ == "__main__":
    if "--udp" in sys.argv:
        sys.stdout.write(datagram(sys.argv[1]))
    else:
        sys.stdout.write(json.dumps(asyncio.run(calls(sys.argv[1]))))
