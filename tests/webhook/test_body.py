"""The body of a request: how it may be sent, and its limits."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from kavip import names
from kavip.http.connection import Limits
from kavip.snapshot import Snapshot
from kavip.webhook import body, budget
from kavip.webhook import server as serving
from kavip.webhook.server import WebhookServer
from tests.http.client import Client, closed, unverifying
from tests.support.build import service
from tests.support.clock import advance
from tests.webhook.httpclient import Connection, connected, review_body, send, status_of

pytestmark = pytest.mark.usefixtures("generous_timeouts")

SERVICE_PATH = names.VALIDATE_SERVICE_PATH
SOUND = review_body(SERVICE_PATH, msgspec.to_builtins(service("shop/web", group="lb/edge")))
HEAD = f"POST {SERVICE_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()


async def test_a_body_in_chunks_is_read(webhook: Connection) -> None:
    """Chunks may have extensions; the connection can be used again."""
    chunks = b"".join(
        b"%x;x=y\r\n%b\r\n" % (len(SOUND[at : at + 99]), SOUND[at : at + 99]) for at in range(0, len(SOUND), 99)
    )
    reader, writer = await send(webhook, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert await status_of(reader) == 200
    writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(SOUND) + SOUND)
    assert await status_of(reader) == 200
    writer.close()


async def test_expect_continue_is_answered(webhook: Connection) -> None:
    """The server sends 100 before the body and then the response, or 417 for another expectation."""
    sized = b"Content-Length: %d\r\n" % len(SOUND)
    reader, writer = await send(webhook, HEAD + sized + b"Expect: 100-continue\r\n\r\n")
    assert await status_of(reader) == 100
    writer.write(SOUND)
    assert await status_of(reader) == 200
    writer.close()
    reader, writer = await send(webhook, HEAD + sized + b"Expect: cake\r\n\r\n" + SOUND)
    assert await status_of(reader) == 417
    writer.close()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"Content-Length: {body.LIMIT + 1}", 413),
        (f"Content-Length: {body.LIMIT + 1}\r\nExpect: 100-continue", 413),
        ("Content-Length: 1\r\nContent-Encoding: gzip", 415),
        ("Content-Length: -1", 400),
        ("Transfer-Encoding: chunked\r\n\r\nzz", 400),
    ],
)
async def test_an_unacceptable_body_is_refused_by_its_headers(webhook: Connection, line: str, status: int) -> None:
    """The response comes before the body."""
    reader, writer = await send(webhook, HEAD + line.encode() + b"\r\n\r\n")
    assert await status_of(reader) == status
    writer.close()


async def test_large_bodies_share_a_budget(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the budget the response is 503, small bodies are accepted, and the budget is returned."""
    monkeypatch.setattr(body, "DEADLINE", 60.0)
    server = WebhookServer(snapshot)
    server._listener._limits = Limits(exchange=60.0)
    server._bodies = body.BodyReader(budget=3 << 20)
    large = review_body(
        SERVICE_PATH, msgspec.to_builtins(service("shop/web", group="lb/edge", annotations={"notes": "x" * (2 << 20)}))
    )
    async with connected(server) as connection:
        head = HEAD + b"Content-Length: %d\r\n\r\n" % len(large)
        first, writing = await send(connection, head + large[:-1])
        while server._bodies.budget.left > 2 << 20:
            await asyncio.sleep(0.01)
        assert (await connection.post(SERVICE_PATH, large))[0] == 503
        assert (await connection.post(SERVICE_PATH, SOUND))[0] == 200
        writing.write(large[-1:])
        assert await status_of(first) == 200
        assert (await connection.post(SERVICE_PATH, large))[0] == 200
        assert server._bodies.budget.left == 3 << 20
        writing.close()


# --- every way in which a request ends ---------------------------------------------------------------------------
MEDIUM = 80 * 1024
"""A body that is charged, and that may have arrived wholly when its request is handled."""


def padded(size: int, group: str = "lb/edge") -> bytes:
    """A review of about *size* bytes; no rule reads most of them."""
    reviewed = msgspec.to_builtins(service("shop/web", group=group))
    reviewed["metadata"]["managedFields"] = "x" * size
    return review_body(SERVICE_PATH, reviewed)


def sized(size: int) -> bytes:
    """The head of a request with a body of *size* bytes."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % size


class Recorder(budget.BodyBudget):
    """A budget that records how much of it was left at the least and at the most."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.least = self.most = size

    def _add(self, body: budget.HeldBody, count: int) -> None:
        super()._add(body, count)
        self.least, self.most = min(self.least, self.left), max(self.most, self.left)


@pytest.fixture
async def recorded(snapshot: Snapshot) -> AsyncIterator[tuple[WebhookServer, Connection, Recorder]]:
    """A server whose budget is recorded; at the end all of it is left, and it never was larger than its size."""
    server = WebhookServer(snapshot)
    server._listener._limits = Limits(exchange=60.0)
    server._bodies.budget = recorder = Recorder(3 << 20)
    async with connected(server) as connection:
        yield server, connection, recorder
        async with asyncio.timeout(30):
            while recorder.left != recorder.size:
                await asyncio.sleep(0.01)
    assert 0 <= recorder.least <= recorder.most == recorder.size


Recorded = tuple[WebhookServer, Connection, Recorder]


async def held(recorder: Recorder, size: int) -> None:
    """Wait until at least *size* bytes are held."""
    async with asyncio.timeout(30):
        while recorder.size - recorder.left < size:
            await asyncio.sleep(0.01)


async def test_a_body_that_is_there_at_once_is_charged(recorded: Recorded) -> None:
    """So many of them on one connection do not enlarge the budget."""
    _, connection, recorder = recorded
    whole = padded(MEDIUM)
    reader, writer = await send(connection, b"")
    for _ in range(40):
        writer.write(sized(len(whole)) + whole)
        assert await status_of(reader) == 200
    writer.close()
    assert recorder.least <= recorder.size - MEDIUM


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (sized(2 << 20) + b"x" * (2 << 20), 400),
        (sized(MEDIUM) + b"x" * MEDIUM, 400),
        (sized(4 << 20) + b"x" * (4 << 20), 503),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (8 << 20) + b"x" * (8 << 20), 413),
    ],
    ids=["no review", "no review, there at once", "no room", "too large"],
)
async def test_a_refused_body_is_released(recorded: Recorded, request_: bytes, status: int) -> None:
    """The fixture compares the budget."""
    server, connection, recorder = recorded
    if status == 413:
        server._bodies.budget = recorder = Recorder(body.BUDGET)
    reader, writer = await send(connection, request_)
    assert await status_of(reader) == status
    writer.transport.abort()
    assert recorder.least < recorder.size


async def test_a_body_that_comes_too_late_is_released(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a 408."""
    _, connection, recorder = recorded
    monkeypatch.setattr(body, "DEADLINE", 5.0)
    reader, writer = await send(connection, sized(MEDIUM * 2) + b"x" * MEDIUM)
    await held(recorder, MEDIUM)
    advance(10)
    assert await status_of(reader) == 408
    writer.close()


async def test_a_body_whose_client_is_gone_is_released(recorded: Recorded) -> None:
    """While it arrives."""
    _, connection, recorder = recorded
    _, writer = await send(connection, sized(MEDIUM * 2) + b"x" * MEDIUM)
    await held(recorder, MEDIUM)
    writer.transport.abort()


async def test_a_body_is_released_after_an_exception_and_a_cancellation(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the evaluation of its review."""
    server, connection, recorder = recorded
    for error in (ValueError(), TimeoutError(), asyncio.CancelledError()):
        called = asyncio.Event()

        async def failing(*_: object, error: BaseException = error, called: asyncio.Event = called) -> bytes:
            assert recorder.left < recorder.size
            called.set()
            raise error

        monkeypatch.setattr(server, "_review", failing)
        _, writer = await send(connection, sized(MEDIUM) + b"x" * MEDIUM)
        async with asyncio.timeout(30):
            await called.wait()
            while recorder.left < recorder.size:
                await asyncio.sleep(0.01)
        writer.transport.abort()


@pytest.mark.parametrize("waits", [False, True], ids=["arriving", "waiting for a reference"])
async def test_other_senders_do_not_keep_a_large_body_out(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """A body of the sender with the most gives way, also if its review waits for a missing group."""
    monkeypatch.setattr(serving, "WAIT_FOR_REFERENCES", 60.0)
    _, connection, recorder = recorded
    port, trust = int(connection.url.rpartition(":")[2]), unverifying()
    large = padded(2 << 20, "lb/nowhere")
    stranger = await Client.connected(port, source="127.0.0.2", tls=trust)
    with closed([stranger]):
        stranger.writer.write(sized(len(large)) + (large if waits else large[:-1]))
        await held(recorder, len(large) - 1)
        assert (await connection.post(SERVICE_PATH, padded(5 << 18)))[0] == 200
        assert await stranger.status() == 503
        assert stranger.is_last
