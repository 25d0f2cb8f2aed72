"""Guarded writes: a server counts the bytes that arrive before and after the guard refuses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from kavip.errors import LeaseLost
from kavip.kube import transport
from kavip.kube.client import Client
from kavip.kube.resources import CONFIGMAPS

KEY = "a/b"
ANSWER = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"b","resourceVersion":"2"}}'


class Wire:
    """A server that records what it receives; it answers while it is *open*."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.connections = 0
        self.open = asyncio.Event()
        self.open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        with suppress(ConnectionError):
            while chunk := await reader.read(65536):
                self.received += chunk
                await self.open.wait()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(ANSWER)}\r\n\r\n"
                writer.write(head.encode() + ANSWER)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def wired(tmp_path: Path, guard: Callable[[], None]) -> AsyncIterator[tuple[Wire, Client, Client]]:
    """The server, a client of it, and the same client with *guard*."""
    wire = Wire()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = tmp_path / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    users = [{"name": "u", "user": {"token": "secret"}}]
    config.write_text(
        yaml.safe_dump({"current-context": "c", "contexts": [context], "clusters": [cluster], "users": users})
    )
    async with Client.from_settings(str(config)) as client:
        yield wire, client, client.guarded(guard)
    server.close()


class FakeGuard:
    """Permits writes until a test revokes it."""

    def __init__(self) -> None:
        self.is_held = True
        self.checks = 0

    def __call__(self) -> None:
        """The guard."""
        self.checks += 1
        if not self.is_held:
            raise LeaseLost("gone")


async def test_no_byte_of_a_withheld_write_is_sent(tmp_path: Path) -> None:
    """Neither headers nor body, on new and on reused connections; a permitted write is sent completely."""
    lease = FakeGuard()
    async with wired(tmp_path, lease) as (wire, client, fenced):
        lease.is_held = False
        for call in (fenced.patch(CONFIGMAPS, KEY, {"data": {}}), fenced.delete(CONFIGMAPS, KEY)):
            with pytest.raises(LeaseLost, match="gone"):
                await call
        await client.get(CONFIGMAPS, KEY)  # a read needs no guard; it leaves a connection for reuse
        before = bytes(wire.received)
        assert before.startswith(b"GET ")
        with pytest.raises(LeaseLost):
            await fenced.patch(CONFIGMAPS, KEY, {"data": {}})
        assert bytes(wire.received) == before
        lease.is_held = True
        await fenced.patch(CONFIGMAPS, KEY, {"data": {"k": "v"}})
        assert wire.received.endswith(b'{"data":{"k":"v"}}')
        await fenced.delete(CONFIGMAPS, KEY)
        assert wire.received.count(b"DELETE ") == 1


async def test_the_guard_is_called_after_the_wait_for_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that is lost while a write waits for a connection withholds the write."""
    monkeypatch.setattr(transport, "CONNECTIONS", 1)
    lease = FakeGuard()
    async with wired(tmp_path, lease) as (wire, client, fenced):
        wire.open.clear()
        reading = asyncio.create_task(client.get(CONFIGMAPS, KEY))
        while not wire.received:
            await asyncio.sleep(0.001)
        writing = asyncio.create_task(fenced.patch(CONFIGMAPS, KEY, {"data": {}}))
        for _ in range(20):
            await asyncio.sleep(0)
        assert lease.checks == 0  # it was started while the lease was held, and still waits
        lease.is_held = False
        wire.open.set()
        await reading
        with pytest.raises(LeaseLost):
            await writing
        assert lease.checks == 1
        assert b"PATCH" not in wire.received


async def test_a_sent_write_is_awaited(tmp_path: Path) -> None:
    """A cancelled writer ends only after the response; a read is cancelled at once."""
    async with wired(tmp_path, lambda: None) as (wire, client, fenced):
        wire.open.clear()
        writing = asyncio.create_task(fenced.patch(CONFIGMAPS, KEY, {"data": {}}))
        reading = asyncio.create_task(client.get(CONFIGMAPS, KEY))
        while wire.received.count(b"HTTP/1.1") < 2:
            await asyncio.sleep(0.001)
        for task in (writing, reading):
            task.cancel()
        await asyncio.wait({reading})
        writing.cancel()
        await asyncio.sleep(0.02)
        assert not writing.done()
        wire.open.set()
        await asyncio.wait({writing})
        assert writing.cancelled()


async def test_nothing_runs_between_the_guard_and_the_socket(tmp_path: Path) -> None:
    """The bytes are in the kernel before anything else runs on the loop."""
    moments: list[str] = []

    def guard() -> None:
        moments.append("checked")
        asyncio.get_running_loop().call_soon(moments.append, "others")

    async with wired(tmp_path, guard) as (_, client, fenced):
        await client.get(CONFIGMAPS, KEY)
        connector = client._transport._session.connector
        assert connector is not None
        protocol = next(iter(connector._conns.values()))[0][0]
        assert protocol.transport is not None
        inner = protocol.transport

        class RecordingTransport:
            """Records each write."""

            def __getattr__(self, name: str) -> object:
                return getattr(inner, name)

            def write(self, data: bytes) -> None:
                moments.append("written")
                inner.write(data)

        protocol.transport = RecordingTransport()  # type: ignore[assignment]  # as much of one as is used
        await fenced.patch(CONFIGMAPS, KEY, {"data": {}})
    assert moments[:3] == ["checked", "written", "others"]
