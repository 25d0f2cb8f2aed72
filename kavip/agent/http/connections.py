"""
The connection slots of the agent's port: few, and no client can take them all.

If no slot is free, a new connection replaces another one (:mod:`kavip.http.shares`). The client with the most
connections loses the one that has progressed least, and of several such connections the oldest. A connection whose
answer is being made keeps its slot.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from kavip.http.shares import Path, displaced

MAX_REQUEST: Final = 1024
_END: Final = b"\r\n\r\n"
_MAX_DRAINED: Final = 64 << 10


class Stage(IntEnum):
    """The progress of a connection. If a slot is needed, the lowest stage is closed first, and the highest never."""

    SENT = 0  # the client has to close it
    READING = 1  # the request is not complete, or waits for its turn
    SENDING = 2  # the client has not received the whole answer
    ANSWERING = 3  # the answer is being made


@dataclass(eq=False, slots=True)
class AgentConnection:
    """One connection of *client*."""

    socket: socket.socket
    client: bytes
    stage: Stage = Stage.READING

    @property
    def path(self) -> Path:
        """All clients have equal shares."""
        return (self.client,)

    @property
    def rank(self) -> float | None:
        """The order in which connections of one client are displaced, lowest first; None: this one is not."""
        return self.stage if self.stage < Stage.ANSWERING else None

    async def read_head(self) -> bytes:
        """The request up to the end of its head; less if the client stops earlier or sends too much."""
        loop, head = asyncio.get_running_loop(), b""
        while _END not in head and (missing := MAX_REQUEST - len(head)):
            chunk = await loop.sock_recv(self.socket, missing)
            if not chunk:
                break
            head += chunk
        return head.partition(_END)[0] + _END if _END in head else head

    async def send(self, answer: bytes) -> None:
        """Send *answer*, then shut down the sending side."""
        self.stage = Stage.SENDING
        await asyncio.get_running_loop().sock_sendall(self.socket, answer)
        self.socket.shutdown(socket.SHUT_WR)
        self.stage = Stage.SENT

    async def drain(self) -> None:
        """Read what the client still sends until it closes: closing earlier would discard the answer."""
        loop, taken = asyncio.get_running_loop(), 0
        while taken < _MAX_DRAINED and (chunk := await loop.sock_recv(self.socket, MAX_REQUEST)):
            taken += len(chunk)


Serve = Callable[[], Coroutine[Any, Any, None]]


class ConnectionSlots:
    """At most *most* connections, of which up to *at_once* are answered at the same time (*turn*)."""

    def __init__(self, most: int, *, at_once: int) -> None:
        self._most = most
        self.turn = asyncio.Semaphore(at_once)
        self._taken: dict[AgentConnection, asyncio.Task[None]] = {}  # oldest first
        self._evicted: set[asyncio.Task[None]] = set()  # their sockets are still open

    def add(self, connection: AgentConnection, serve: Serve) -> None:
        """
        Run *serve* for *connection*.

        If no slot is free, evict another connection; if none may be evicted, close *connection*.
        """
        if len(self._taken) >= self._most:
            # a client with many connections that wait for answers evicts no other client meanwhile
            evicted = displaced(self._taken, connection, rank=lambda each: each.rank)
            if evicted is None:
                connection.socket.close()
                return
            leaving = self._taken.pop(evicted)
            leaving.cancel()
            self._evicted.add(leaving)
        task = asyncio.get_running_loop().create_task(serve())
        self._taken[connection] = task

        def end(ended: asyncio.Task[None]) -> None:
            self._taken.pop(connection, None)
            self._evicted.discard(ended)
            connection.socket.close()

        task.add_done_callback(end)

    async def settled(self) -> None:
        """Return when the sockets of all evicted connections are closed, so that they cannot add up."""
        if self._evicted:
            await asyncio.wait(self._evicted)

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._taken.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
