"""The agent's port takes little from anybody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network

import pytest

from kavip.agent import server as serving
from kavip.agent.server import JSON, Answer, Server


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


async def ask(port: int, request: bytes) -> bytes:
    """Send *request* and read the answer to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
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


async def test_strangers_are_refused() -> None:
    """Only clients within the allowed networks are answered."""
    async with listening("192.0.2.0/24") as port:
        assert (await ask(port, get("/state"))).startswith(b"HTTP/1.1 403 ")
    async with listening("127.0.0.0/8") as port:
        assert (await ask(port, get("/state"))).startswith(b"HTTP/1.1 200 ")


async def test_the_connection_that_is_too_many_is_closed() -> None:
    """Those that hold theirs open are not served any worse, and there is room again when one of them is done."""
    async with listening() as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(serving.MOST_CONNECTIONS)]
        try:
            with suppress(OSError):
                assert await ask(port, get("/state")) == b""
            reader, writer = idle[0]
            writer.write(get("/state"))
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            await leave(writer)
            async with asyncio.timeout(30):
                while not await asked(port):
                    await asyncio.sleep(0.01)
        finally:
            for _, writer in idle:
                await leave(writer)


async def asked(port: int) -> bool:
    """Whether there is an answer."""
    try:
        return (await ask(port, get("/state"))).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


async def test_a_slow_client_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not finish the request in time gets no answer."""
    monkeypatch.setattr(serving, "SECONDS", 0.1)
    async with listening() as port:
        with suppress(ConnectionResetError):
            assert await ask(port, b"GET /state HTTP/1.1\r\n") == b""
