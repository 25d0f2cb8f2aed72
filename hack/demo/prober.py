"""
Send an HTTP request to a URL every few milliseconds, each on a new connection, and print when it was answered.

``python -m hack.demo.prober URL [--every 0.02]`` runs until its standard input closes, then prints one JSON list of
``[seconds since start, seconds until the answer or null, problem]``, in the order in which the requests were sent.
``--once`` sends one request, prints the body of the answer, and exits with 1 if there is none.
"""

import argparse
import asyncio
import errno
import json
import socket
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT = 30.0  # seconds for one request: a slow answer of a busy machine counts as an answer
_RETRANSMITTED = slice(100, 104)  # tcpi_total_retrans in struct tcp_info


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request got: the *body*, or None and the *problem* ("ECONNREFUSED", "no answer", "status 503", ...)."""

    body: str | None
    problem: str = ""


async def ask(url: str, *, timeout: float = TIMEOUT) -> Answer:
    """
    Send one GET on a new connection. A status that is not 2xx is no answer.

    It is no answer either if TCP had to repeat its first packet: then no host had the address.
    """
    parts = urlsplit(url)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            if _was_lost(writer):
                return Answer(None, "first packet repeated")
            writer.write(f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.hostname}\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode(errors="replace").partition("\r\n\r\n")
    except TimeoutError:
        return Answer(None, "no connection" if writer is None else "no answer")
    except OSError as error:
        return Answer(None, errno.errorcode.get(error.errno or 0, type(error).__name__))
    finally:
        if writer is not None:
            writer.transport.abort()
    status = (head.split()[1:2] or ["missing"])[0]
    return Answer(body) if status.startswith("2") else Answer(None, f"status {status}")


def _was_lost(writer: asyncio.StreamWriter) -> bool:
    info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RETRANSMITTED.stop)
    return any(info[_RETRANSMITTED])


async def probe(url: str, every: float) -> list[tuple[float, float | None, str]]:
    """Probe *url* until standard input closes."""
    loop = asyncio.get_running_loop()
    stopped = loop.run_in_executor(None, sys.stdin.read)
    began = loop.time()
    found: list[tuple[float, float | None, str]] = []
    running: set[asyncio.Task[None]] = set()

    async def once(sent: float) -> None:
        answer = await ask(url)
        found.append((sent - began, None if answer.body is None else loop.time() - sent, answer.problem))

    while not stopped.done():
        task = asyncio.create_task(once(loop.time()))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(every)
    await asyncio.gather(*running)
    return sorted(found)


def longest_silence(answers: list[tuple[float, float | None]]) -> float:
    """
    Seconds between the last answered request before the longest row of unanswered ones and the first one after it.

    0 if every request was answered; a row without an end lasts until the last request.
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
        print(answer.body or "")
        sys.exit(answer.body is None)
    print(json.dumps(asyncio.run(probe(given.url, given.every))))


if __name__ == "__main__":
    main()
