"""
The agent's port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``, over plain HTTP on the node's address.

It stands on the node's network, so it takes little from anybody: GET and HEAD, one request for each connection, 1 KiB,
5 seconds, 32 connections. Some of these are kept for the node itself, whose kubelet judges the pod by the answers; some
are for those who are not allowed, to be told so. That is less than a web framework can be told, and costs none of its
16 MB.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

import structlog

from kavip.agent.http.connections import LARGEST_REQUEST, Connection, Places, Stage, sender
from kavip.http.sockets import bound

OWN, CLIENTS, STRANGERS = 8, 20, 4
"""Connections: of the node itself, of others, and of those who are sent away."""
SECONDS: Final = 5.0
_BURST: Final = 16  # newcomers at a time, so that each is heard before those who come after it can take its place
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.25  # seconds without newcomers, where the system has nothing left for them
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(SECONDS * 1000)),
)
"""What the kernel keeps for a connection, and for how long after we have closed it."""
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

Network = IPv4Network | IPv6Network
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page answers."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Page = Callable[[], Awaitable[Answer]]
Reply = Callable[[bytes], Awaitable[tuple[str, Answer]]]
"""To the head of a request: the method asked with, and what to answer."""


class Server:
    """Serves *pages*, a function for each path, to clients within *allowed*; no networks allow everybody."""

    def __init__(self, pages: Mapping[str, Page], *, allowed: tuple[Network, ...] = ()) -> None:
        self._pages, self._allowed = pages, allowed
        self._own = Places(OWN, at_once=OWN)
        self._clients = Places(CLIENTS, at_once=1)  # however many they are, the node's requests wait for one of them
        self._strangers = Places(STRANGERS, at_once=1)

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """
        Serve as long as the context lasts; gives the port.

        Raises OSError where *host* is not here yet or *port* is taken.
        """
        sockets = await bound(host, port)
        for each in sockets:
            for option in _OPTIONS:
                each.setsockopt(*option)  # those that are accepted inherit it
        accepting = [asyncio.get_running_loop().create_task(self._accept(each)) for each in sockets]
        try:
            yield sockets[0].getsockname()[1]
        finally:
            for task in accepting:
                task.cancel()
            await asyncio.gather(*accepting, return_exceptions=True)
            for each in sockets:
                each.close()
            for places in (self._own, self._clients, self._strangers):
                await places.clear()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(_BURST):
                try:
                    accepted, peer = await loop.sock_accept(listening)
                    self._seat(accepted, str(peer[0]))
                except OSError as error:
                    if error.errno in _SCARCE:
                        await asyncio.sleep(_PAUSE)
            await asyncio.sleep(0)

    def _seat(self, accepted: socket.socket, client: str) -> None:
        address = ip_address(client.partition("%")[0])
        newcomer = Connection(accepted, sender(address))
        reply: Reply = self._answer
        if address.is_loopback or client == accepted.getsockname()[0]:
            places = self._own  # the kernel lets nobody else speak from an address of this node
        elif not self._allowed or any(address in network for network in self._allowed):
            places = self._clients
        else:
            places, reply = self._strangers, _refuse
        places.give(newcomer, lambda: _serve(newcomer, places.turn, reply))

    async def _answer(self, head: bytes) -> tuple[str, Answer]:
        asked = parse(head)
        if isinstance(asked, HTTPStatus):
            return "", _plain(asked)
        page = self._pages.get(asked.path)
        if page is None:
            return asked.method, _plain(HTTPStatus.NOT_FOUND)
        try:
            return asked.method, await page()
        except TimeoutError:
            raise
        except Exception:  # the edge: one bad answer must not take the agent down
            log.exception("page failed", path=asked.path)
            return asked.method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    method: str
    path: str


def parse(head: bytes) -> Asked | HTTPStatus:
    """What *head* asks for, or what is wrong with it."""
    if not head.endswith(b"\r\n\r\n"):
        too_long = len(head) >= LARGEST_REQUEST
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if too_long else HTTPStatus.BAD_REQUEST
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        return HTTPStatus.BAD_REQUEST
    if method not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED
    return Asked(method, target.partition("?")[0])


async def _serve(client: Connection, turn: asyncio.Semaphore, reply: Reply) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            head = await client.head()  # to answer before it is whole would take the answer from most clients
            async with turn:
                client.stage = Stage.AWAITING
                method, answer = await reply(head)
            await client.tell(_response(answer, with_body=method != "HEAD"))
            await client.end()
    except (TimeoutError, OSError):
        pass  # too slow, or gone


async def _refuse(_head: bytes) -> tuple[str, Answer]:
    return "", _plain(HTTPStatus.FORBIDDEN)


def _plain(status: HTTPStatus) -> Answer:
    return Answer(f"{status.phrase}\n".encode(), status=status)


def _response(answer: Answer, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
