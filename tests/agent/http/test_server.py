"""The agent's port takes little from anybody."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from ipaddress import ip_network
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.agent.http import server as serving
from kavip.agent.http.connections import LARGEST_REQUEST
from kavip.agent.http.server import JSON, Answer, Server, parse


async def hello() -> Answer:
    """A page."""
    return Answer(b'{"hello":1}\n', JSON)


async def broken() -> Answer:
    """A page that fails."""
    raise RuntimeError("secret text")


@asynccontextmanager
async def listening(allowed: str = "") -> AsyncIterator[int]:
    """A server on loopback; yields its port."""
    networks = (ip_network(allowed),) if allowed else ()
    async with Server({"/state": hello, "/broken": broken}, allowed=networks).listening("127.0.0.1", 0) as port:
        yield port


async def ask(port: int, request: bytes, *, eof: bool = False) -> bytes:
    """Send *request*, with *eof* nothing after it, and read the answer to its end."""
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
    """Close a connection, whoever closed it first."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def get(path: str, method: str = "GET") -> bytes:
    """A plain request."""
    return f"{method} {path} HTTP/1.1\r\nHost: n1\r\n\r\n".encode()


async def test_a_page_is_answered() -> None:
    """With its type, its length, and the end of the connection."""
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
async def test_what_is_not_served_is_refused(request_: bytes, status: int) -> None:
    """In one word, without any text of the failure."""
    async with listening() as port:
        answer = await ask(port, request_)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"secret" not in answer


async def test_the_node_itself_is_always_answered() -> None:
    """Whatever is allowed: the probes of its kubelet decide about the pod."""
    async with listening("192.0.2.0/24") as port:
        assert (await ask(port, get("/state"))).startswith(b"HTTP/1.1 200 ")


async def test_a_newcomer_takes_the_place_of_the_oldest_that_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """That one is cut, and the others are served when they ask at last."""
    monkeypatch.setattr(serving, "SECONDS", 60.0)
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


async def test_a_slow_client_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not finish the request in time gets no answer."""
    monkeypatch.setattr(serving, "SECONDS", 0.1)
    async with listening() as port:
        with suppress(ConnectionResetError):
            assert await ask(port, b"GET /state HTTP/1.1\r\n") == b""


async def test_whatever_is_sent_is_answered() -> None:
    """Bytes that are no request, and requests with bytes lost, doubled and exchanged, get an answer of HTTP."""
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
    """*request* after a few accidents."""
    text = bytearray(request if dice.random() < 0.8 else dice.randbytes(dice.randrange(3000)))
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(text) + 1)
        end = at + dice.randrange(8)
        text[at:end] = dice.choice((b"", bytes(text[at:end]) * dice.choice((2, 400)), dice.randbytes(2)))
    return bytes(text)


@given(st.binary(max_size=LARGEST_REQUEST))
def test_a_request_is_one_or_is_not(head: bytes) -> None:
    """What can be asked is a page by GET or HEAD; all else is an error of the client's."""
    for text in (head, head + b"\r\n\r\n", b"GET /" + head + b" HTTP/1.1\r\n\r\n"):
        asked = parse(text)
        assert 400 <= asked < 500 if isinstance(asked, HTTPStatus) else asked.method in ("GET", "HEAD")
