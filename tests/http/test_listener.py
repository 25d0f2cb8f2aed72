"""The listener with real sockets: which connections it serves, and which ones it aborts."""

import asyncio
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kavip import app
from kavip.errors import SettingsError
from kavip.http.connection import CLOSING_RESPONSE, Limits, Reply
from kavip.http.listener import Listener
from kavip.pki import certificates
from kavip.settings import Settings
from tests.support.clock import advance
from tests.support.manifests import ROOT

HOST = "127.0.0.1"
SERVERS = ("webhook", "metrics", "probe")
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SHORT = Limits(connections=4, handshake=0.2, exchange=0.2, unused=0.2)
LONG = Limits(connections=4, handshake=60, exchange=60)

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Page:
    """A handler: 200 for /, after *gate* opens for /slow, otherwise 404."""

    def __init__(self) -> None:
        """Start with a closed gate."""
        self.gate, self.waiting = asyncio.Event(), 0

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Answer."""
        if request.path == "/slow":
            self.waiting += 1
            await self.gate.wait()
        return web.Response(text="ok" * 4096, status=404 if request.path == "/none" else 200)


@asynccontextmanager
async def listening(limits: Limits, tls: ssl.SSLContext | None = None, **more: Any) -> AsyncIterator[tuple[Page, int]]:
    """A listener on a free port."""
    page = Page()
    listener = Listener(page, tls=(lambda: tls) if tls else None, limits=limits, **more)
    port = await listener.start(HOST, 0)
    try:
        yield page, port
    finally:
        page.gate.set()
        await listener.stop()


async def ask(wire: Wire, request: bytes = GET) -> bytes:
    """Send *request*; the head of the answer, after its body was read."""
    wire[1].write(request)
    head = await wire[0].readuntil(b"\r\n\r\n")
    await wire[0].readexactly(8192)
    return head


async def is_cut(wire: Wire, *, last_words: bytes = b"") -> bool:
    """Whether the connection ends, after *last words* or none."""
    try:
        return await wire[0].read() == last_words
    except ConnectionError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET[:-2], b"POST / HTTP/1.1\r\nContent-Len"])
async def test_a_connection_without_a_complete_request_is_aborted(sent: bytes) -> None:
    """If the first head is never complete."""
    async with listening(SHORT) as (_, port):
        wire = await asyncio.open_connection(HOST, port)
        wire[1].write(sent)
        assert await is_cut(wire)
        wire[1].close()


@pytest.mark.slow
async def test_a_later_request_has_a_deadline_too() -> None:
    """From its first byte on; until then the connection may be idle."""
    async with listening(LONG) as (_, port):
        wire = await asyncio.open_connection(HOST, port)
        assert b" 200 " in await ask(wire)
        advance(5 * LONG.exchange)
        await asyncio.sleep(0.5)  # it is looked at
        assert b" 200 " in await ask(wire)
        wire[1].write(GET[:-2])
        ending = asyncio.create_task(is_cut(wire))
        while not ending.done():
            await asyncio.sleep(0.5)
            advance(LONG.exchange)
        assert ending.result()
        wire[1].close()


async def test_a_connection_with_errors_only_is_closed() -> None:
    """Only a successful answer makes a connection worth keeping."""
    async with listening(LONG) as (_, port):
        wire = await asyncio.open_connection(HOST, port)
        head = await ask(wire, GET.replace(b"/ ", b"/none ", 1))
        assert b" 404 " in head
        assert b"Connection: close" in head
        assert await is_cut(wire)
        wire[1].close()


async def test_a_connection_may_be_idle_before_its_first_request() -> None:
    """An API server opens more than it needs, and uses them later; closing them would lose a call."""
    async with listening(Limits(connections=4, handshake=20, exchange=20)) as (_, port):
        wire = await asyncio.open_connection(HOST, port)
        await asyncio.sleep(0.1)
        advance(100)  # five times the limit of an exchange
        await asyncio.sleep(0.5)  # it is looked at
        assert b" 200 " in await ask(wire)
        wire[1].close()


async def test_a_client_that_does_not_read_is_aborted() -> None:
    """It costs a few buffers for a few seconds."""
    async with listening(Limits(connections=4, handshake=1, exchange=0.5)) as (_, port):
        with socket.create_connection((HOST, port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(30):
                    while True:
                        await loop.sock_sendall(client, GET * 100)


async def test_a_handshake_has_a_deadline(tmp_path: Path) -> None:
    """Also one that never begins."""
    async with listening(SHORT, tls=_tls(tmp_path)) as (_, port):
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
            wire = await asyncio.open_connection(HOST, port)
            wire[1].write(sent)
            assert await is_cut(wire)
            wire[1].close()


async def test_a_port_without_clients_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadlines are checked while there are clients only, so an idle process sleeps."""
    loop, timers = asyncio.get_running_loop(), list[float]()
    set_timer = loop.call_at

    def count(when: float, *rest: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return set_timer(when, *rest, **more)

    listener = Listener(Page(), limits=LONG)
    port = await listener.start(HOST, 0)
    monkeypatch.setattr(loop, "call_at", count)
    try:
        for _ in range(10):
            await asyncio.sleep(0)
        assert not timers
        wire = await asyncio.open_connection(HOST, port)
        await ask(wire)
        assert timers
        wire[1].close()
    finally:
        await listener.stop()


async def test_a_malformed_request_gets_a_400() -> None:
    """Which quotes nothing and closes the connection."""
    async with listening(LONG) as (_, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"\x00secret\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.0 400 ")
        assert b"secret" not in answer
        writer.close()


@pytest.mark.parametrize("head", [b"CONNECT \r\n\r\n", b"CONNECT  HTTP/1.1\r\n\r\n", b"CONNECT  \r\nHost: x\r\n\r\n"])
async def test_a_connect_without_a_target_is_answered(head: bytes) -> None:
    """aiohttp's parser accepts it, without a URL."""
    async with listening(LONG) as (_, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(head)
        assert (await reader.readline()).startswith(b"HTTP/")
        writer.close()


async def test_a_new_connection_evicts_the_oldest_one_without_success() -> None:
    """If no slot is free, and no other connection."""
    evictions: list[None] = []
    async with listening(LONG, evicted=lambda: evictions.append(None)) as (_, port):
        kept = await asyncio.open_connection(HOST, port)
        await ask(kept)
        clients = []
        for _ in range(3):
            clients.append(await asyncio.open_connection(HOST, port))
            await asyncio.sleep(0.05)
        newcomer = await asyncio.open_connection(HOST, port)
        assert b" 200 " in await ask(newcomer)
        assert await is_cut(clients[0], last_words=CLOSING_RESPONSE)
        assert len(evictions) == 1
        assert not clients[1][0].at_eof()
        assert b" 200 " in await ask(kept)
        for _, writer in (kept, newcomer, *clients):
            writer.close()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_many_idle_connections_do_not_block_a_request(tmp_path: Path, *, encrypted: bool) -> None:
    """However many are opened and left half-open."""
    tls = _tls(tmp_path) if encrypted else None
    trust = ssl.create_default_context(cafile=str(tmp_path / "pem")) if encrypted else None
    async with listening(LONG, tls=tls) as (_, port):
        crowd = [await asyncio.open_connection(HOST, port) for _ in range(50)]
        wire = await asyncio.open_connection(HOST, port, ssl=trust, server_hostname=HOST if trust else None)
        assert b" 200 " in await ask(wire)
        for _, writer in (*crowd, wire):
            writer.transport.abort()  # the end of TLS would take its time


async def test_a_request_in_flight_is_never_aborted() -> None:
    """If all connections are busy, a new one waits; the listener stops after all are answered."""
    page = Page()
    listener = Listener(page, limits=LONG)
    port = await listener.start(HOST, 0)
    slow = GET.replace(b"/ ", b"/slow ", 1)
    wires = [await asyncio.open_connection(HOST, port) for _ in range(4)]
    asking = [asyncio.create_task(ask(wire, slow)) for wire in wires]
    while page.waiting < 4:
        await asyncio.sleep(0.01)
    wires.append(await asyncio.open_connection(HOST, port))
    late = asyncio.create_task(ask(wires[4]))
    await asyncio.sleep(0.3)
    assert not late.done()
    stopping = asyncio.create_task(listener.stop())
    await asyncio.sleep(0.1)
    page.gate.set()
    assert all(b" 200 " in head for head in await asyncio.gather(*asking))
    await stopping
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    for _, writer in wires:
        writer.close()


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Two requests in one packet get two answers."""
    async with listening(LONG) as (_, port):
        wire = await asyncio.open_connection(HOST, port)
        assert b" 404 " in await ask(wire, GET.replace(b"/ ", b"/none ", 1) + GET)
        assert b" 200 " in await ask(wire, b"")
        wire[1].close()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("host", "flag"), [(HOST, "port"), ("203.0.113.9", "host"), ("no such host", "host")])
async def test_an_address_that_cannot_be_bound_is_named(tmp_path: Path, server: str, host: str, flag: str) -> None:
    """Flag, variable and value are in the message."""
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        given: dict[str, Any] = {f"{each}_host": HOST for each in SERVERS}
        given |= {f"{each}_port": 0 for each in SERVERS}
        given |= {f"{server}_host": host, f"{server}_port": port}
        settings = Settings(kubeconfig=_kubeconfig(tmp_path), **given)
        with pytest.raises(SettingsError) as caught:
            await app.run(settings, roles=frozenset({"webhook"}))
    value = port if flag == "port" else repr(host)
    assert str(caught.value).startswith(f"--{server}-{flag} (KAVIP_{server.upper()}_{flag.upper()}): {value}: ")


@pytest.mark.slow
def test_a_port_in_use_ends_the_program_in_one_line(tmp_path: Path) -> None:
    """The exit status is 2."""
    with socket.create_server((HOST, 0)) as taken:
        flags = [f"--kubeconfig={_kubeconfig(tmp_path)}", f"--probe-host={HOST}"]
        command = [sys.executable, "-m", "kavip", "webhook", *flags, f"--probe-port={taken.getsockname()[1]}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"kavip: --probe-port \(KAVIP_PROBE_PORT\): \d+: .+; choose another port.*\n", done.stderr)


def _kubeconfig(folder: Path) -> str:
    """A kubeconfig of a cluster that is never called."""
    path = folder / "config"
    path.write_text(KUBECONFIG)
    return str(path)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: c, user: {token: t}}]
"""


def _tls(folder: Path) -> ssl.SSLContext:
    """A context with a certificate and its CA in one file."""
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    leaf = certificates.new_leaf(ca, [HOST], now)
    pem = folder / "pem"
    pem.write_bytes(leaf.certificate_pem + leaf.key_pem + ca.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


async def test_an_idle_connection_gets_a_503_before_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that arrives when the listener stops has an answer: try again elsewhere."""
    monkeypatch.setattr("kavip.http.listener._CLOSING", 60.0)
    page = Page()
    listener = Listener(page, limits=LONG)
    port = await listener.start(HOST, 0)
    idle_connections, asking = [await asyncio.open_connection(HOST, port) for _ in range(2)]
    for wire in (idle_connections, asking):
        assert b" 200 " in await ask(wire)
    stopping = asyncio.create_task(listener.stop())
    head = await idle_connections[0].readuntil(b"\r\n\r\n")
    asking[1].write(GET)  # the client has not read the 503 yet
    assert head == await asking[0].readuntil(b"\r\n\r\n") == CLOSING_RESPONSE
    assert not stopping.done()
    for _, writer in (idle_connections, asking):
        writer.close()
    await stopping
    assert page.waiting == 0


@pytest.mark.parametrize(
    ("request_", "stands"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", False),
    ],
)
async def test_a_reply_is_equal_to_aiohttps_response(request_: bytes, *, stands: bool) -> None:
    """Status, type, length, date and body; it closes the connection if the client requests it."""

    async def answer(_: web.BaseRequest) -> Reply:
        return Reply(b"{}", "application/json")

    listener = Listener(answer, limits=Limits())
    port = await listener.start(HOST, 0)
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(request_)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert await reader.readexactly(2) == b"{}"
        assert head[:3] == ["HTTP/1.1 200 OK", "Content-Type: application/json", "Content-Length: 2"]
        assert parsedate_to_datetime(head[3].removeprefix("Date: ")).tzinfo is not None
        assert ("Connection: close" in head) is not stands
        if stands:
            writer.write(request_)
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 OK\r\n")
        else:
            assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
    finally:
        await listener.stop()
