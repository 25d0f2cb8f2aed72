"""
The places on the agent's port: few, and no crowd keeps one from those who are served.

A newcomer for whom there is none takes the place of another: of the sender that has most of them, the connection that
is least far, and of these the oldest. One whose answer is being made keeps its place.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

LARGEST_REQUEST: Final = 1024
_END: Final = b"\r\n\r\n"
_MOST_DRAINED: Final = 64 << 10


class Stage(IntEnum):
    """How far a connection is; where room is needed the lowest goes first, and the highest never."""

    TOLD = 0  # all was said, and the client has to close
    ASKING = 1  # it has not asked yet, or it is not its turn
    HEARING = 2  # it has not taken its answer yet
    AWAITING = 3  # the answer is being made


@dataclass(eq=False, slots=True)
class Connection:
    """One connection of *sender*."""

    socket: socket.socket
    sender: bytes
    stage: Stage = Stage.ASKING

    async def head(self) -> bytes:
        """What was asked, to the end of the head; less where the client stops earlier or has said too much."""
        loop, head = asyncio.get_running_loop(), b""
        while _END not in head and (missing := LARGEST_REQUEST - len(head)):
            chunk = await loop.sock_recv(self.socket, missing)
            if not chunk:
                break
            head += chunk
        return head.partition(_END)[0] + _END if _END in head else head

    async def tell(self, answer: bytes) -> None:
        """Send *answer*, and nothing more."""
        self.stage = Stage.HEARING
        await asyncio.get_running_loop().sock_sendall(self.socket, answer)
        self.socket.shutdown(socket.SHUT_WR)
        self.stage = Stage.TOLD

    async def end(self) -> None:
        """Take what the client still sends until it closes: to close before it does would take the answer from it."""
        loop, taken = asyncio.get_running_loop(), 0
        while taken < _MOST_DRAINED and (chunk := await loop.sock_recv(self.socket, LARGEST_REQUEST)):
            taken += len(chunk)


Serve = Callable[[], Coroutine[Any, Any, None]]


def sender(address: IPv4Address | IPv6Address) -> bytes:
    """Whose connections are counted together: an address, and of IPv6 the /64, which one machine may have to itself."""
    return address.packed[:8]


class Places:
    """At most *most* connections, of which as many as have their *turn* are answered at a time."""

    def __init__(self, most: int, *, at_once: int) -> None:
        """All are free."""
        self._most = most
        self.turn = asyncio.Semaphore(at_once)
        self._taken: dict[Connection, asyncio.Task[None]] = {}  # oldest first

    def give(self, newcomer: Connection, serve: Serve) -> None:
        """Have *newcomer* served, if need be in the place of another; where there is none its connection is closed."""
        if len(self._taken) >= self._most:
            least = self._least_missed(newcomer)
            if least is None:
                newcomer.socket.close()
                return
            self._taken.pop(least).cancel()
        task = asyncio.get_running_loop().create_task(serve())
        self._taken[newcomer] = task

        def over(_: asyncio.Task[None]) -> None:
            self._taken.pop(newcomer, None)
            newcomer.socket.close()

        task.add_done_callback(over)

    async def clear(self) -> None:
        """End all connections."""
        tasks = list(self._taken.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _least_missed(self, newcomer: Connection) -> Connection | None:
        held = Counter(each.sender for each in (*self._taken, newcomer))
        movable = [each for each in self._taken if each.stage < Stage.AWAITING]
        least = min(movable, key=lambda each: (-held[each.sender], each.stage), default=None)
        # a crowd that waits for its answers drives nobody else out meanwhile
        return None if least is None or held[least.sender] < held[newcomer.sender] else least
