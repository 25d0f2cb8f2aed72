"""
The agent's port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``, over plain HTTP on the node's address.

It is open to the node's network, so each client gets little: GET and HEAD, one request a connection, 1 KiB, 5 seconds,
32 connections in all. Some connections are reserved for the node itself, because kubelet restarts the pod by the
answers; some for clients that are not allowed, so that they get a 403. A web framework cannot bound that much, and
needs 16 MB of memory.

An answer has an entity tag. A client that sends it back gets the next answer only if it differs (``If-None-Match``, RFC
9110, section 13.1.2): ``/state`` of a large group is about a megabyte, and mostly the same as before.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

import structlog

from kavip.agent.http.connections import MAX_REQUEST, AgentConnection, ConnectionSlots, Stage
from kavip.http.shares import network_of
from kavip.http.sockets import bound

OWN, CLIENTS, DENIED = 8, 20, 4
"""Connections: of the node itself, of allowed clients, of others."""
SECONDS: Final = 5.0
BURST: Final = 16
"""New connections at a time. Each can be read before later ones take its slot, and what they evict is closed first."""
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.25  # seconds without new connections after such an error
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(SECONDS * 1000)),
)
"""Bounds on what the kernel keeps for a connection, and for how long after the agent has closed it."""
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

Network = IPv4Network | IPv6Network
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PageContent:
    """The answer of a page; *tag* is its entity tag."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    tag: str = ""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """
    A GET or HEAD of *path*.

    *known*: the entity tags of the answers that the client has. *preferences*: what it prefers (RFC 7240).
    """

    method: str
    path: str
    known: frozenset[str] = frozenset()
    preferences: frozenset[str] = frozenset()


Page = Callable[[PageRequest], Awaitable[PageContent]]
Reply = Callable[[bytes], Awaitable[tuple[str, PageContent]]]
"""From the head of a request: its method, and the answer."""


class AgentServer:
    """
    Serves *pages*, a function for each path, to clients within *allowed*; without networks to all clients.

    A connection ends after *seconds*, the answer included.
    """

    def __init__(
        self, pages: Mapping[str, Page], *, allowed: tuple[Network, ...] = (), seconds: float | None = None
    ) -> None:
        self._pages, self._allowed = pages, allowed
        self._seconds = SECONDS if seconds is None else seconds
        self._own = ConnectionSlots(OWN, at_once=OWN)
        self._clients = ConnectionSlots(CLIENTS, at_once=1)  # so that the node's requests wait for at most one of them
        self._denied = ConnectionSlots(DENIED, at_once=1)

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """
        Serve for the duration of the context; yields the port.

        Raises OSError if *host* is no address of this node (yet), or *port* is in use.
        """
        sockets = await bound(host, port)
        for each in sockets:
            for option in _OPTIONS:
                each.setsockopt(*option)  # accepted sockets inherit it
        burst = BURST // len(sockets)
        accepting = [asyncio.get_running_loop().create_task(self._accept(each, burst)) for each in sockets]
        try:
            yield sockets[0].getsockname()[1]
        finally:
            for task in accepting:
                task.cancel()
            await asyncio.gather(*accepting, return_exceptions=True)
            for each in sockets:
                each.close()
            for slots in (self._own, self._clients, self._denied):
                await slots.close()

    async def _accept(self, listening: socket.socket, burst: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(burst):
                try:
                    accepted, peer = await loop.sock_accept(listening)
                    self._add(accepted, str(peer[0]))
                except OSError as error:
                    if error.errno in _SCARCE:
                        await asyncio.sleep(_PAUSE)
            await asyncio.sleep(0)
            for slots in (self._own, self._clients, self._denied):
                await slots.settled()

    def _add(self, accepted: socket.socket, client: str) -> None:
        address = ip_address(client.partition("%")[0])
        connection = AgentConnection(accepted, network_of(address))
        reply: Reply = self._answer
        if address.is_loopback or client == accepted.getsockname()[0]:
            slots = self._own  # the kernel lets no other machine use an address of this node
        elif not self._allowed or any(address in network for network in self._allowed):
            slots = self._clients
        else:
            slots, reply = self._denied, _deny
        slots.add(connection, lambda: _serve(connection, slots.turn, reply, seconds=self._seconds))

    async def _answer(self, head: bytes) -> tuple[str, PageContent]:
        request = parse(head)
        if isinstance(request, HTTPStatus):
            return "", _plain(request)
        page = self._pages.get(request.path)
        if page is None:
            return request.method, _plain(HTTPStatus.NOT_FOUND)
        try:
            return request.method, _unless_known(await page(request), request.known)
        except TimeoutError:
            raise
        except Exception:  # the edge: one failed answer must not end the agent
            log.exception("page failed", path=request.path)
            return request.method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def parse(head: bytes) -> PageRequest | HTTPStatus:
    """The request in *head*, or the status of its refusal."""
    if not head.endswith(b"\r\n\r\n"):
        too_long = len(head) >= MAX_REQUEST
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if too_long else HTTPStatus.BAD_REQUEST
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        return HTTPStatus.BAD_REQUEST
    if method not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED
    tags = _header(head, "if-none-match")  # weak ones count as strong (RFC 9110, section 8.8.3.2)
    known = frozenset(each.removeprefix("W/") for each in tags)
    return PageRequest(method, target.partition("?")[0], known, _header(head, "prefer"))


def _header(head: bytes, name: str) -> frozenset[str]:
    """The values of the header *name*, which is a list."""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        found, _, value = line.partition(":")
        if found.lower() == name:
            return frozenset(map(str.strip, value.split(",")))
    return frozenset()


def _unless_known(answer: PageContent, known: frozenset[str]) -> PageContent:
    """*answer* with its entity tag, and without its content if that is *known*."""
    if answer.status is not HTTPStatus.OK:
        return answer
    tag = f'"{blake2b(answer.body, digest_size=16).hexdigest()}"'
    return PageContent(b"", status=HTTPStatus.NOT_MODIFIED, tag=tag) if tag in known else replace(answer, tag=tag)


async def _serve(connection: AgentConnection, turn: asyncio.Semaphore, reply: Reply, *, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            head = await connection.read_head()  # most clients lose an answer that comes before they have sent the head
            async with turn:
                connection.stage = Stage.ANSWERING
                method, answer = await reply(head)
            await connection.send(_response(answer, with_body=method != "HEAD"))
            await connection.drain()
    except (TimeoutError, OSError):
        pass  # the client is too slow, or gone


async def _deny(_head: bytes) -> tuple[str, PageContent]:
    return "", _plain(HTTPStatus.FORBIDDEN)


def _plain(status: HTTPStatus) -> PageContent:
    return PageContent(f"{status.phrase}\n".encode(), status=status)


def _response(answer: PageContent, *, with_body: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
    if answer.status is not HTTPStatus.NOT_MODIFIED:
        lines += [f"Content-Type: {answer.content_type}", f"Content-Length: {len(answer.body)}"]
    if answer.tag:
        lines.append(f"ETag: {answer.tag}")
    lines += ["Cache-Control: no-store", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + (answer.body if with_body else b"")
