"""The plain ports: clients that hold connections do not keep kubelet and Prometheus out."""

import asyncio
import socket
from dataclasses import replace

import pytest
from aiohttp import web

from kavip.http import ports
from tests.http.client import HOST, Client, closed

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
PROBES = 4
COUNT = ports.LIMITS.connections


async def probed(port: int) -> list[int]:
    """The answers of several probes, each on a new connection, as kubelet sends them."""
    found = []
    for _ in range(PROBES):
        client = await Client.connected(port)
        found.append(await client.ask(GET))
        client.close()
    return found


async def test_each_answer_closes_its_connection() -> None:
    """So clients that have had an answer hold nothing."""
    async with ports.serving(ports.probes(lambda: ()), HOST, 0, name="probe") as port:
        clients = [await Client.connected(port) for _ in range(COUNT)]
        with closed(clients):
            for client in clients:
                client.writer.write(GET)
                assert b"\r\nConnection: close\r\n" in await client.reader.readuntil(b"\r\n\r\n")
                await client.rest()
            assert await probed(port) == [200] * PROBES


@pytest.mark.parametrize("sent", [b"", GET[:-2]], ids=["silent", "half a request"])
async def test_a_new_connection_displaces_the_oldest_unfinished_one(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """At once, because a probe does not wait."""
    monkeypatch.setattr(ports, "LIMITS", replace(ports.LIMITS, exchange=600.0, unused=600.0))  # none ends by itself
    async with ports.serving(ports.probes(lambda: ()), HOST, 0, name="probe") as port:
        clients = [await Client.connected(port) for _ in range(COUNT)]
        with closed(clients):
            for client in clients:
                client.writer.write(sent)
            assert await probed(port) == [200] * PROBES  # each closes its connection, so one has to give way
            await clients[0].rest()
            assert not clients[1].reader.at_eof()


async def test_clients_that_do_not_read_their_answers_are_displaced() -> None:
    """A large page is sent for as long as the client reads it, but its connection can be displaced."""
    called, page = asyncio.Event(), b"x" * (4 << 20)  # more than the kernel takes

    def large() -> web.Response:
        called.set()
        return web.Response(body=page)

    pages = {**ports.probes(lambda: ()), "/metrics": large}
    async with ports.serving(pages, HOST, 0, name="metrics") as port:
        slow = []
        loop = asyncio.get_running_loop()
        for _ in range(COUNT):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            slow.append(client)
            called.clear()
            await loop.sock_connect(client, (HOST, port))
            await loop.sock_sendall(client, GET.replace(b"livez", b"metrics") * 2)
            await called.wait()
        try:
            assert await probed(port) == [200] * PROBES
        finally:
            for client in slow:
                client.close()
