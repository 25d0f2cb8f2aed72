"""
kube-proxy's health port of one Service: whether it answers on this node.

kube-proxy, and what replaces it, serves it for each Service ``type: LoadBalancer`` with ``externalTrafficPolicy:
Local``: 200 while the node has a ready endpoint, 503 while it has none. The connection stays open, and no call here
waits for anything: asking hundreds of ports several times a second must cost next to nothing.
"""

import re
import socket
import time
from collections.abc import Callable
from math import ceil
from typing import Final

TIMEOUT: Final = 1.0
"""Seconds within which an answer has to come."""
RETRY: Final = 1.0
"""Seconds until a port that nobody serves is asked again."""
PATIENCE: Final = 15.0
PERIOD: Final = 30.0
"""
A port is given up at the first full half-minute of the wall clock at which it has been silent for so long.

A kube-proxy that starts again is silent for a few seconds, and leaves its rules in the kernel meanwhile. Where nobody
serves such ports at all, all nodes find that out at one moment, so that no VIP moves for it. The wall clock is asked
when the silence begins and no more: from then on the monotonic one counts, so that a clock that jumps moves nothing.
"""

_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kavip\r\n\r\n"
_READY: Final = b"HTTP/1.1 200 "
_UNREADY: Final = b"HTTP/1.1 503 "
_LARGEST: Final = 4096
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d{1,6})", re.IGNORECASE)


class Port:
    """One health port; *hosts* are tried in turn, for kube-proxy may listen on some addresses of the node only."""

    def __init__(
        self, number: int, hosts: tuple[str, ...], *, now: float, wall: Callable[[], float] = time.time
    ) -> None:
        """Nothing is known yet; all times are those of the monotonic clock, but for what *wall* says."""
        self._number, self._hosts, self._wall = number, hosts, wall
        self._said: bool | None = None
        self._given_up: float | None = self._end(now)  # when; None as long as it answers
        self._socket: socket.socket | None = None
        self._host = 0
        self._dialled = now
        self._asked: float | None = None  # and not answered yet
        self._has_more = False  # of the last answer
        self._retry = now

    def ready(self, now: float) -> bool | None:
        """Whether the Service answers here: as was said last; not, where nobody says it; None: that is to be seen."""
        if self._given_up is not None and now >= self._given_up:
            return False
        return self._said

    def ask(self, now: float) -> None:
        """Send the question, unless an answer is awaited."""
        if self._asked is not None or now < self._retry:
            return
        try:
            if self._socket is None:
                self._socket, self._dialled = _connection(self._hosts[self._host], self._number), now
            elif self._has_more:  # the rest of the last answer
                self._has_more = not self._socket.recv(_LARGEST)
            self._socket.send(_REQUEST)
        except BlockingIOError:
            if self._has_more or now - self._dialled >= TIMEOUT:
                self._fail(now)  # its end has not come; or somebody drops what is to connect
        except OSError:
            self._fail(now)
        else:
            self._asked = now

    def hear(self, now: float) -> bool:
        """Take the answer; False where it has not come yet."""
        if self._asked is None or self._socket is None:
            return True
        try:
            answer = self._socket.recv(_LARGEST)
        except BlockingIOError:
            if now - self._asked < TIMEOUT:
                return False
            answer = b""
        except OSError:
            answer = b""
        if answer.startswith((_READY, _UNREADY)):
            self._said, self._given_up, self._asked = answer.startswith(_READY), None, None
            self._has_more = not _is_whole(answer)
        else:
            self._fail(now)
        return True

    def close(self) -> None:
        """Ask no more."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._asked = None
        self._has_more = False

    def _fail(self, now: float) -> None:
        self.close()
        if self._given_up is None:
            self._given_up = self._end(now)  # and the same host is tried at once: servers may close what is idle
            return
        self._host = (self._host + 1) % len(self._hosts)
        self._retry = now if self._host else now + RETRY

    def _end(self, now: float) -> float:
        """When a silence that begins *now* has lasted too long."""
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
