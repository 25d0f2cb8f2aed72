"""
kube-proxy's health port of one Service: whether the Service has a ready endpoint on this node.

kube-proxy, and what replaces it, serves such a port for each Service of ``type: LoadBalancer`` with
``externalTrafficPolicy: Local``: status 200 while the node has a ready endpoint, else 503. The connection stays open,
and no call here blocks: hundreds of ports are asked several times a second.
"""

import re
import socket
import time
from collections.abc import Callable
from math import ceil
from typing import Final

TIMEOUT: Final = 1.0
"""Seconds until a question counts as not answered."""
RETRY: Final = 1.0
"""Seconds until a port that does not answer is asked again."""
PATIENCE: Final = 15.0
PERIOD: Final = 30.0
"""
After PATIENCE seconds of silence a port counts as not ready from the next full PERIOD of the wall clock on.

A kube-proxy that restarts is silent for a few seconds, while its rules stay in the kernel. Where nothing serves such
ports, all nodes conclude that at the same moment, so that no VIP moves. The wall clock is read once, when the silence
begins; then the monotonic clock counts, so that a jump of the wall clock moves nothing.
"""

_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kavip\r\n\r\n"
_READY: Final = b"HTTP/1.1 200 "
_UNREADY: Final = b"HTTP/1.1 503 "
_LARGEST: Final = 4096
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d{1,6})", re.IGNORECASE)


class HealthPort:
    """One health port; *hosts* are tried in turn, because kube-proxy may listen on some addresses of the node only."""

    def __init__(
        self, number: int, hosts: tuple[str, ...], *, now: float, wall: Callable[[], float] = time.time
    ) -> None:
        """Start without a result. All times are monotonic, except those of *wall*."""
        self._number, self._hosts, self._wall = number, hosts, wall
        self._last: bool | None = None
        self._given_up: float | None = self._end(now)  # when; None while it answers
        self._socket: socket.socket | None = None
        self._host = 0
        self._connected = now
        self._sent: float | None = None  # when a question was sent that is not answered yet
        self._has_more = False  # of the last answer is still to be received
        self._retry = now

    def ready(self, now: float) -> bool | None:
        """The last answer; False after a long silence; None before the first answer."""
        if self._given_up is not None and now >= self._given_up:
            return False
        return self._last

    def send(self, now: float) -> None:
        """Send the question unless the last one is not answered yet."""
        if self._sent is not None or now < self._retry:
            return
        try:
            if self._socket is None:
                self._socket, self._connected = _connection(self._hosts[self._host], self._number), now
            elif self._has_more:  # the rest of the last answer
                self._has_more = not self._socket.recv(_LARGEST)
            self._socket.send(_REQUEST)
        except BlockingIOError:
            if self._has_more or now - self._connected >= TIMEOUT:
                self._fail(now)  # the rest of the answer has not come, or a firewall drops the connection
        except OSError:
            self._fail(now)
        else:
            self._sent = now

    def receive(self, now: float) -> bool:
        """Receive the answer; False if it has not come yet."""
        if self._sent is None or self._socket is None:
            return True
        try:
            answer = self._socket.recv(_LARGEST)
        except BlockingIOError:
            if now - self._sent < TIMEOUT:
                return False
            answer = b""
        except OSError:
            answer = b""
        if answer.startswith((_READY, _UNREADY)):
            self._last, self._given_up, self._sent = answer.startswith(_READY), None, None
            self._has_more = not _is_whole(answer)
        else:
            self._fail(now)
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._sent = None
        self._has_more = False

    def _fail(self, now: float) -> None:
        self.close()
        if self._given_up is None:
            self._given_up = self._end(now)  # the same host is tried at once: servers may close idle connections
            return
        self._host = (self._host + 1) % len(self._hosts)
        self._retry = now if self._host else now + RETRY

    def _end(self, now: float) -> float:
        """When a silence that begins *now* means not ready."""
        wall = self._wall()
        return now + ceil((wall + PATIENCE) / PERIOD) * PERIOD - wall


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return length is not None and len(body) >= int(length[1])


def _connection(host: str, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setblocking(False)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.connect_ex((host, port))
    except OSError:
        found.close()
        raise
    return found
