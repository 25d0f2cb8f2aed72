"""Which client gets a connection when every connection is in use, with real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from kavip.http.connection import CLOSING_RESPONSE, Limits
from kavip.http.listener import Listener
from tests.http.client import GET, HOST, Client
from tests.support.clock import advance

CLIENT, OTHER, THIRD = HOST, "127.0.0.2", "127.0.0.3"
SLOW = GET.replace(b"/ ", b"/slow ", 1)
ROOM = 4
LIMITS = Limits(connections=ROOM, handshake=600, exchange=600, grace=60)
"""Deadlines that never pass by themselves."""


class Page:
    """A handler: 200 for /; /slow waits until *gate* opens, which lets one request pass. *listener* serves it."""

    listener: Listener

    def __init__(self) -> None:
        """Start with a closed gate."""
        self.gate, self.waiting = asyncio.Semaphore(0), 0

    @property
    def newcomers(self) -> int:
        """How many clients wait for a connection."""
        return len(self.listener._waiting)

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Answer."""
        if request.path == "/slow":
            self.waiting += 1
            await self.gate.acquire()
            self.waiting -= 1
        return web.Response(text="ok")


@asynccontextmanager
async def listening(limits: Limits = LIMITS, **more: Any) -> AsyncIterator[tuple[Page, int]]:
    """A listener on a free port."""
    page = Page()
    page.listener = listener = Listener(page, limits=limits, **more)
    port = await listener.start(HOST, 0)
    try:
        yield page, port
    finally:
        for _ in range(100):
            page.gate.release()
        await listener.stop()


async def idle_connections(port: int, count: int = ROOM, *, source: str = CLIENT) -> list[Client]:
    """So many connections with one answer each."""
    clients = []
    for _ in range(count):
        clients.append(await Client.connected(port, source=source))
        assert await clients[-1].ask() == 200
    return clients


async def served(port: int, *, source: str = CLIENT, request: bytes = GET) -> int:
    """The status of the answer on a new connection, which is then closed."""
    client = await Client.connected(port, source=source)
    try:
        return await client.ask(request)
    finally:
        client.close()


async def until(condition: Callable[[], bool]) -> None:
    """Return when *condition*, a function, is true."""
    while not condition():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("source", [CLIENT, OTHER])
async def test_connections_with_answers_block_no_client(source: str) -> None:
    """The connection with the longest idle time is displaced; a request on it gets a closing response."""
    evictions: list[None] = []
    async with listening(evicted=lambda: evictions.append(None)) as (_, port):
        clients = await idle_connections(port)
        assert await clients[0].ask() == 200
        assert await served(port, source=source) == 200
        clients[1].writer.write(GET)
        assert await clients[1].rest() == CLOSING_RESPONSE
        assert len(evictions) == 1
        assert [await client.ask() for client in (clients[0], *clients[2:])] == [200] * 3
        for client in clients:
            client.close()


async def test_a_sender_keeps_its_share() -> None:
    """However many connections another one opens, and however many more they would displace."""
    async with listening() as (_, port):
        own = await idle_connections(port, 2, source=OTHER)
        others = await idle_connections(port, 20)
        assert [await client.ask() for client in own] == [200, 200]
        for client in (*own, *others):
            client.close()


async def test_kinds_of_senders_have_equal_shares() -> None:
    """So many addresses do not help: they have one kind."""
    async with listening(kind_of=lambda peer: peer == CLIENT) as (_, port):
        own = await idle_connections(port, 2)
        others = [
            client for number in range(2, 12) for client in await idle_connections(port, 1, source=f"127.0.0.{number}")
        ]
        assert [await client.ask() for client in own] == [200, 200]
        for client in (*own, *others):
            client.close()


async def test_a_request_that_arrives_is_not_aborted_within_the_grace() -> None:
    """A new connection waits as long; then a connection with an incomplete request is displaced."""
    async with listening() as (_, port):
        slow = [await Client.connected(port) for _ in range(ROOM)]
        for client in slow:
            client.writer.write(GET[:-2])
        late = asyncio.create_task(served(port, source=OTHER))
        await asyncio.sleep(0.2)
        assert not late.done()
        slow[0].writer.write(GET[-2:])
        assert await slow[0].status() == 200
        assert await late == 200  # in the place of the idle one
        late = asyncio.create_task(served(port, source=OTHER))
        slow.append(await Client.connected(port, source=OTHER))
        advance(LIMITS.grace)
        assert await late == 200
        for client in slow:
            client.close()


async def test_a_sender_that_is_always_busy_blocks_no_client() -> None:
    """One of its connections closes with its answer, and no request is aborted."""
    async with listening() as (page, port):
        busy = [await Client.connected(port) for _ in range(ROOM)]
        for client in busy:
            client.writer.write(SLOW * 50)  # the next one is there before the first is answered
        await until(lambda: page.waiting == ROOM)
        late = asyncio.create_task(served(port, source=OTHER))
        await until(lambda: page.newcomers == 1)
        for _ in range(ROOM):
            page.gate.release()
        assert await late == 200
        assert [await client.status() for client in busy] == [200] * ROOM
        await until(lambda: page.waiting == ROOM - 1)
        assert sorted([client.reader.at_eof() for client in busy]) == [False] * (ROOM - 1) + [True]
        for client in busy:
            client.close()


async def test_of_those_that_wait_the_one_with_the_fewest_connections_is_next() -> None:
    """Not the one that came first."""
    async with listening() as (page, port):
        busy = [await Client.connected(port) for _ in range(ROOM)]
        for client in busy:
            client.writer.write(SLOW)
        await until(lambda: page.waiting == ROOM)
        waiting = [asyncio.create_task(served(port, request=SLOW)) for _ in range(3)]
        await until(lambda: page.newcomers == 3)
        late = asyncio.create_task(served(port, source=OTHER))
        await until(lambda: page.newcomers == 4)
        page.gate.release()
        assert await late == 200
        assert not any(task.done() for task in waiting)
        for _ in range(ROOM + len(waiting)):
            page.gate.release()
        assert await asyncio.gather(*waiting) == [200] * 3
        for client in busy:
            client.close()


async def test_clients_that_wait_are_bounded() -> None:
    """Beyond that, the oldest of the sender with the most is dismissed."""
    async with listening() as (page, port):
        busy = [await Client.connected(port) for _ in range(ROOM)]
        for client in busy:
            client.writer.write(SLOW)
        await until(lambda: page.waiting == ROOM)
        waiting = []
        for _ in range(3 * ROOM):
            waiting.append(await Client.connected(port))
            await asyncio.sleep(0.01)
        late = asyncio.create_task(served(port, source=OTHER))
        gone = [await client.rest() for client in waiting[: ROOM + 1]]
        assert gone == [b""] * (ROOM + 1)
        page.gate.release()
        assert await late == 200
        for client in (*busy, *waiting):
            client.close()


class Pool:
    """Calls as Go's transport makes them: the last idle connection, else a new one; a 503 is retried."""

    def __init__(self, port: int, source: str, tls: ssl.SSLContext | None = None) -> None:
        """No connection."""
        self._port, self._source, self._tls = port, source, tls
        self._idle: list[Client] = []

    async def call(self) -> int:
        """The final status of one call."""
        status = 503
        while status == 503:
            client = self._reused() or await Client.connected(self._port, source=self._source, tls=self._tls)
            status = await client.ask()
            if client.is_last:
                client.close()
            else:
                self._idle.append(client)
        return status

    def _reused(self) -> Client | None:
        """The last connection that is idle; those that the server has closed, or answered without a request, end."""
        while self._idle:
            client = self._idle.pop()
            if not client.reader.at_eof() and not client.reader._buffer:  # type: ignore[attr-defined]  # no public view
                return client
            client.close()
        return None

    def close(self) -> None:
        """Close every connection."""
        for client in self._idle:
            client.close()


async def test_no_call_is_lost_under_load() -> None:
    """The API server is the sender with the most connections, and other clients connect and disconnect."""
    async with listening() as (_, port):
        pool = Pool(port, OTHER)

        async def calls() -> list[int]:
            return [await pool.call() for _ in range(25)]

        async def disturb() -> None:
            while True:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await served(port, source=THIRD)

        others = await idle_connections(port)
        disturbing = [asyncio.create_task(disturb()) for _ in range(2)]
        found = await asyncio.gather(*(calls() for _ in range(2 * ROOM)))
        assert {status for each in found for status in each} == {200}
        for task in disturbing:
            task.cancel()
        await asyncio.gather(*disturbing, return_exceptions=True)
        pool.close()
        for client in others:
            client.close()
