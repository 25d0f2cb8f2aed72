"""The agent's port: its answers, and its limits."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from ipaddress import ip_network
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.agent.http import server as serving
from kavip.agent.http.connections import MAX_REQUEST, AgentConnection
from kavip.agent.http.server import JSON, AgentServer, PageContent, PageRequest, parse


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is too slow: a busy machine may stop a test for seconds."""
    monkeypatch.setattr(serving, "SECONDS", 60.0)


async def hello(_: PageRequest) -> PageContent:
    """A page."""
    return PageContent(b'{"hello":1}\n', JSON)


async def broken(_: PageRequest) -> PageContent:
    """A page that fails."""
    raise RuntimeError("secret text")


@asynccontextmanager
async def listening(allowed: str = "", *, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server on loopback, or on all addresses; yields its port."""
    networks = (ip_network(allowed),) if allowed else ()
    async with AgentServer({"/state": hello, "/broken": broken}, allowed=networks).listening(host, 0) as port:
        yield port


async def ask(port: int, request: bytes, *, eof: bool = False) -> bytes:
    """Send *request*, and EOF with *eof*; the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if eof:
            writer.write_eof()
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        await leave(writer)


async def leave(writer: asyncio.StreamWriter) -> None:
    """Close a connection, also if the server has closed it."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def get(path: str, method: str = "GET") -> bytes:
    """A plain request."""
    return f"{method} {path} HTTP/1.1\r\nHost: n1\r\n\r\n".encode()


async def test_a_page_is_answered() -> None:
    """With content type and length, and the connection is closed."""
    async with listening() as port:
        head, _, body = (await ask(port, get("/state?x=1"))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: application/json\r\n" in head and b"Connection: close" in head
    assert body == b'{"hello":1}\n'


async def test_head_has_no_body() -> None:
    """But the length of the page."""
    async with listening() as port:
        head, _, body = (await ask(port, get("/state", "HEAD"))).partition(b"\r\n\r\n")
    assert b"Content-Length: 12" in head and body == b""


@pytest.mark.parametrize("before", ("", "W/", '"0", W/'))
async def test_an_answer_that_the_client_has_is_not_sent_again(before: str) -> None:
    """RFC 9110, sections 13.1.2 and 15.4.5: 304 with the entity tag, and without content."""
    async with listening() as port:
        head, _, _ = (await ask(port, get("/state"))).partition(b"\r\n\r\n")
        tag = next(line for line in head.decode().split("\r\n") if line.startswith("ETag: ")).removeprefix("ETag: ")
        conditional = f"GET /state HTTP/1.1\r\nHost: n1\r\nif-none-match: {before}{tag}\r\n\r\n".encode()
        again = await ask(port, conditional)
        other = await ask(port, conditional.replace(tag.encode(), b'"1"'))
    assert again.startswith(b"HTTP/1.1 304 Not Modified\r\n") and again.endswith(b"\r\n\r\n")
    assert f"ETag: {tag}\r\n".encode() in again and b"Content-" not in again
    assert other.startswith(b"HTTP/1.1 200 OK\r\n") and other.endswith(b'{"hello":1}\n')


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/nothing"), 404),
        (get("/state", "POST"), 405),
        (get("/broken"), 500),
        (b"GET /state\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\r\n\r\n", 400),
        (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /state HTTP/1.1\r\n" + b"X: y\r\n" * 300 + b"\r\n", 431),
    ],
)
async def test_other_requests_are_refused(request_: bytes, status: int) -> None:
    """With a status and its phrase, without the text of an error."""
    async with listening() as port:
        answer = await ask(port, request_)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"secret" not in answer


async def test_the_node_itself_is_always_allowed() -> None:
    """Also if it is not within the allowed networks: kubelet's probes restart the pod."""
    async with listening("192.0.2.0/24") as port:
        assert (await ask(port, get("/state"))).startswith(b"HTTP/1.1 200 ")


async def test_a_new_connection_evicts_the_oldest_idle_one() -> None:
    """The others are answered when they send a request."""
    async with listening() as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(serving.OWN)]
        for turn in range(2):
            assert (await ask(port, get("/state"))).startswith(b"HTTP/1.1 200 ")
            assert await idle[turn][0].read() == b""
            idle.append(await asyncio.open_connection("127.0.0.1", port))
        reader, writer = idle[-1]
        writer.write(get("/state"))
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        for _, writer in idle:
            await leave(writer)


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("127.0.0.1", "::1")], ids=["IPv4", "both families"])
async def test_evicted_connections_are_closed_before_more_are_accepted(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    """So a crowd that connects at once opens few sockets."""
    accepted: list[socket.socket] = []
    peaks: list[int] = []

    def count(added: socket.socket, client: bytes) -> AgentConnection:
        accepted.append(added)
        peaks.append(sum(each.fileno() >= 0 for each in accepted))
        return AgentConnection(added, client)

    monkeypatch.setattr(serving, "AgentConnection", count)
    async with listening(host="" if len(addresses) > 1 else addresses[0]) as port:
        crowd = [  # before the server accepts one
            socket.create_connection((address, port)) for address in addresses for _ in range(100 // len(addresses))
        ]
        assert (await ask(port, get("/state"))).startswith(b"HTTP/1.1 200 ")
        for each in crowd:
            each.close()
    assert len(accepted) == 101
    assert serving.OWN < max(peaks) <= serving.OWN + serving.BURST


async def test_a_slow_client_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """If its request is not complete in time."""
    monkeypatch.setattr(serving, "SECONDS", 0.1)
    async with listening() as port:
        with suppress(ConnectionResetError):
            assert await ask(port, b"GET /state HTTP/1.1\r\n") == b""


async def test_malformed_requests_get_an_http_answer() -> None:
    """Random bytes, and requests with bytes removed, repeated and replaced."""
    dice = Random(9650)
    statuses = set()
    async with listening() as port:
        for _ in range(400):
            answer = await ask(port, garbled(get("/state"), dice), eof=True)
            head, _, body = answer.partition(b"\r\n\r\n")
            status = re.match(rb"HTTP/1\.1 (\d{3}) [A-Za-z ]+\r\n", head)
            assert status is not None and f"Content-Length: {len(body)}\r\n".encode() in head, answer
            statuses.add(int(status[1]))
    assert statuses == {200, 400, 404, 405, 431}


def garbled(request: bytes, dice: Random) -> bytes:
    """*request* after random changes."""
    text = bytearray(request if dice.random() < 0.8 else dice.randbytes(dice.randrange(3000)))
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(text) + 1)
        end = at + dice.randrange(8)
        text[at:end] = dice.choice((b"", bytes(text[at:end]) * dice.choice((2, 400)), dice.randbytes(2)))
    return bytes(text)


@given(st.binary(max_size=MAX_REQUEST))
def test_parse_returns_a_get_or_head_or_an_error_status(head: bytes) -> None:
    """For any bytes."""
    for text in (head, head + b"\r\n\r\n", b"GET /" + head + b" HTTP/1.1\r\n\r\n"):
        parsed = parse(text)
        assert 400 <= parsed < 500 if isinstance(parsed, HTTPStatus) else parsed.method in ("GET", "HEAD")
