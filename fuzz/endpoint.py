"""
Sends bytes to the endpoint of a real server process, over TLS.

Most requests have a valid head and a damaged body, and use open connections again. The others have a damaged head and
a new connection each, because the start of the next request would be unknown.
"""

import asyncio
import json
import random
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from bench.review import HOST, review_request
from fuzz.report import Report, cpu_time, resident
from kavip.webhook.server import ROUTES

WORKERS: Final = 8
PATIENCE: Final = 30.0  # seconds until an answer, generous for a busy machine
SOUND: Final = review_request()
TOKENS: Final = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"1e999999", b"9" * 400, b"-0", b"NaN", b"\\u0000"),
    *(b"[" * 5000, b'{"a":' * 2000, b'"uid":"v",', b'"object":null,', b"null", b"true", b'""', b"{}", b"[]"),
    *(b"\r\n\r\n", b"\xf0\x9f\xa6\x80", b'"metadata":{},', b'"externalIPs":["::1","1"],'),
    b'"kavip.io/addresses":"' + b"1," * 500 + b'",',
)
HEADS: Final = (
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Content-Encoding: gzip"),
    *(b"Expect: 100-continue", b"Expect: 200-ok", b"Content-Type: text/plain", b"Content-Length: -1"),
    *(b"Content-Type: application/json; charset=x", b"Content-Length: 99999999999999999999"),
    *(b"Content-Length: 8000000", b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 1"),
    *(b"X: " + b"y" * 9000, b"\xff: x", b"X" * 100, b": x", b"Host:", b"Connection: close"),
)
METHODS: Final = (b"GET", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"PRI", b"post", b"P\0ST", b"")
TARGETS: Final = (b"/", b"*", b"//", b"/%00", b"/../..", b"http://[::1", b"/validate-v1-service/", b"x" * 9000, b"")


@dataclass(frozen=True, slots=True)
class Case:
    """One request; *framed*: its head has the correct length, so the connection can be used again."""

    data: bytes
    framed: bool


def case(rng: random.Random) -> Case:
    """A request, chosen by *rng*."""
    path = rng.choice(sorted(ROUTES)).encode()
    body = damaged(SOUND, rng)
    if rng.random() < 0.9:
        head = b"POST %b?timeout=3s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % path
        return Case(head + b"Content-Length: %d\r\n\r\n" % len(body) + body, framed=True)
    method = rng.choice(METHODS) if rng.random() < 0.4 else b"POST"
    target = rng.choice(TARGETS) if rng.random() < 0.4 else path
    version = rng.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"")) if rng.random() < 0.2 else b"HTTP/1.1"
    lines = [b"Host: x", b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    for _ in range(rng.randint(0, 3)):
        lines.insert(rng.randint(0, len(lines)), rng.choice(HEADS))
    head = b"\r\n".join([b" ".join((method, target, version)), *lines])
    data = damaged(head, rng) if rng.random() < 0.3 else head
    return Case(data + b"\r\n\r\n" + body, framed=False)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """*data* with up to four random changes."""
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.randint(0, 40))
        match rng.randint(0, 5):
            case 0:
                data = data[:at] + rng.choice(TOKENS) + data[at:]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at] + rng.randbytes(end - at) + data[end:]
            case 3:
                data = data[:end] + data[at:]
            case 4:
                data = data[:at]
            case _:
                data = data.replace(data[at:end], rng.choice(TOKENS), 1) if end > at else data
    return data


def run(count: int, *, seed: int) -> Report:
    """Start a server and send *count* requests to it."""
    report = Report("bytes at the endpoint")
    with _target(report) as target:
        asyncio.run(_run(count, report, target, seed=seed))
    return report


@contextmanager
def _target(report: Report) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "fuzz.target"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        if broken := json.loads(process.communicate("")[0])["errors"]:
            report.findings.append(f"{broken} exceptions in the server; see the log above")


async def _run(count: int, report: Report, target: dict[str, Any], *, seed: int) -> None:
    context = ssl.create_default_context(cadata=target["ca"])
    numbers = iter(range(count))
    early: list[int] = []

    def cpu() -> float:
        return cpu_time(target["pid"])

    async def work() -> None:
        client = _Client(target["port"], context)
        for number in numbers:
            report.measure(count, cpu)
            chosen = case(random.Random(f"{seed}/{number}"))
            start = perf_counter()
            outcome = await client.ask(chosen)
            report.seconds.append(perf_counter() - start)
            report.answers[outcome] += 1
            if outcome.startswith("WRONG"):
                report.findings.append(f"seed {seed}, request {number}: {outcome}: {chosen.data[:200]!r}")
            if not early and number >= count // 10:
                early.append(resident(target["pid"]))
        await client.close()

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    report.measure(count, cpu)
    report.resident = early[0], resident(target["pid"])


class _Client:
    """A client that opens its connection again after it is lost."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context
        self._wire: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, chosen: Case) -> str:
        """Send *chosen*; the outcome in a word or two."""
        if self._wire is None:
            self._wire = await asyncio.open_connection(HOST, self._port, ssl=self._context)
        reader, writer = self._wire
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(chosen.data)
                head, body = await _answer(reader)
        except TimeoutError:
            await self.close()
            return "WRONG: silence"
        except (OSError, asyncio.IncompleteReadError):
            await self.close()
            return "WRONG: no answer" if chosen.framed else "cut"
        if not chosen.framed or b"connection: close" in head.lower() or head.startswith(b"HTTP/1.0"):
            await self.close()
        return _outcome(int(head.split(maxsplit=2)[1]), body)

    async def close(self) -> None:
        if self._wire is not None:
            self._wire[1].transport.abort()
            self._wire = None


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100 "):
        head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(maxsplit=1)
    return head, await reader.readexactly(int(length[0])) if length else b""


def _outcome(status: int, body: bytes) -> str:
    if 400 <= status < 500:
        return str(status)
    if status != 200:
        return f"WRONG: {status}: {body[:200]!r}"
    try:
        answered = json.loads(body)
        response = answered["response"]
        named = (answered["apiVersion"], answered["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        if response["allowed"] is True:
            sound = True
        else:
            sound = response["status"]["code"] in (403, 422) and bool(response["status"]["message"])
    except (KeyError, TypeError, ValueError):
        return f"WRONG: {body[:200]!r}"
    if not (named and sound and response["uid"]):
        return f"WRONG: {body[:200]!r}"
    return "allowed" if response["allowed"] else "refused"
