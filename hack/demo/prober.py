"""
Ask a URL over HTTP every few milliseconds, each time on a new connection, and tell when it answered.

``python -m hack.demo.prober URL [--every 0.02]`` runs until its standard input closes, then prints one JSON list of
``[seconds since start, seconds until the answer or null]``, in the order in which the requests were sent. ``--once``
asks once, prints the body of the answer, and exits with 1 where there is none.
"""

import argparse
import asyncio
import json
import sys
from urllib.parse import urlsplit

TIMEOUT = 0.9  # seconds for one request; longer than any healthy answer, shorter than TCP's first retransmission


async def ask(url: str, *, timeout: float = TIMEOUT) -> str | None:
    """The body of what one GET on a new connection is answered with; None where that is no 2xx."""
    parts = urlsplit(url)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            writer.write(f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.hostname}\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode(errors="replace").partition("\r\n\r\n")
            return body if head.split()[1:2] and head.split()[1].startswith("2") else None
    except (OSError, TimeoutError):
        return None
    finally:
        if writer is not None:
            writer.transport.abort()


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

    0 where every request was answered.
    """
    longest, last_good, failed = 0.0, None, False
    for sent, took in answers:
        if took is None:
            failed = True
            continue
        if failed and last_good is not None:
            longest = max(longest, sent - last_good)
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
        answer = asyncio.run(ask(given.url, timeout=2))
        print(answer or "")
        sys.exit(answer is None)
    print(json.dumps(asyncio.run(probe(given.url, given.every))))


if __name__ == "__main__":
    main()
