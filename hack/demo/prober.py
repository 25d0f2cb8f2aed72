"""
Ask a URL over HTTP every few milliseconds, each time on a new connection, and tell when it answered.

``python -m hack.demo.prober URL [--every 0.02]`` runs until its standard input closes, then prints one JSON list of
``[seconds since start, seconds until the answer or null]``, in the order in which the requests were sent. ``--once``
asks once, prints the body of the answer, and exits with 1 where there is none.
"""

import argparse
import asyncio
import json
import socket
import sys
from urllib.parse import urlsplit

TIMEOUT = 10.0  # seconds for one request: an answer that takes long on a busy machine is one
_RETRANSMITTED = slice(100, 104)  # tcpi_total_retrans in struct tcp_info


async def ask(url: str, *, timeout: float = TIMEOUT) -> str | None:
    """
    The body of what one GET on a new connection is answered with; None where that is no 2xx.

    None also if TCP had to repeat its first packet: then no host had the address, which is not a slow answer.
    """
    parts = urlsplit(url)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            if _was_lost(writer):
                return None
            writer.write(f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.hostname}\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode(errors="replace").partition("\r\n\r\n")
            return body if head.split()[1:2] and head.split()[1].startswith("2") else None
    except (OSError, TimeoutError):
        return None
    finally:
        if writer is not None:
            writer.transport.abort()


def _was_lost(writer: asyncio.StreamWriter) -> bool:
    info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RETRANSMITTED.stop)
    return any(info[_RETRANSMITTED])


async def probe(url: str, every: float) -> list[tuple[float, float | None]]:
    """Probe *url* until standard input closes."""
    loop = asyncio.get_running_loop()
    stopped = loop.run_in_executor(None, sys.stdin.read)
    began = loop.time()
    found: dict[float, float | None] = {}
    running: set[asyncio.Task[None]] = set()

    async def once(sent: float) -> None:
        found[sent - began] = loop.time() - sent if await ask(url) is not None else None

    while not stopped.done():
        task = asyncio.create_task(once(loop.time()))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(every)
    await asyncio.gather(*running)
    return sorted(found.items())


def longest_silence(answers: list[tuple[float, float | None]]) -> float:
    """
    Seconds between the last answered request before the longest row of unanswered ones and the first one after it.

    0 where every request was answered; a row that has no end lasts until the last request.
    """
    longest, last_good, failed = 0.0, None, False
    for sent, took in answers:
        failed = failed or took is None
        if failed and last_good is not None:
            longest = max(longest, sent - last_good)
        if took is not None:
            last_good, failed = sent, False
    return longest


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--every", type=float, default=0.02)
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    if given.once:
        answer = asyncio.run(ask(given.url))
        print(answer or "")
        sys.exit(answer is None)
    print(json.dumps(asyncio.run(probe(given.url, given.every))))


if __name__ == "__main__":
    main()
