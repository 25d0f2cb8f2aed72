"""
Which Services with ``externalTrafficPolicy: Local`` answer on this node, told to keepalived by their track files.

Their health ports (:mod:`.proxy`) are asked in rounds, all in one go: the more there are, the rarer, so that the agent
stays idle with hundreds of them. Of Services without a port the controller tells the nodes.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog

from kavip.agent.health.kubeproxy import Port
from kavip.agent.keepalived.trackfiles import Tracks
from kavip.api.agent import LocalTrack

INTERVAL: Final = 0.2
"""Seconds between two rounds: a VIP in the default profile follows within one second, keepalived's part included."""
MOST_ASKED: Final = 150
"""
Questions a second: more than 30 ports are asked more rarely.

Each costs about fifteen microseconds here, of which the kernel takes twelve to send and to receive.
"""

_PORTS: Final = range(1, 2**16)
_ANSWERED: Final = (0.005, 0.02, 0.05)  # seconds after which answers are looked for, one pause after the other

log = structlog.get_logger()


class Locals:
    """What is known about the node *node* of each Service that the group follows."""

    def __init__(self, node: str, tracks: Tracks, *, hosts: Iterable[str]) -> None:
        """Nothing is wanted yet; kube-proxy is looked for at *hosts*."""
        self._node, self._tracks = node, tracks
        self._hosts = tuple(dict.fromkeys(filter(None, hosts)))
        self._wanted: tuple[LocalTrack, ...] = ()
        self._ports: dict[int, Port] = {}
        self._told: tuple[frozenset[str], frozenset[str]] | None = None
        self._changed = asyncio.Event()

    def want(self, wanted: tuple[LocalTrack, ...]) -> None:
        """Find out about *wanted* from now on, and about nothing else."""
        if wanted == self._wanted and self._told is not None:
            return
        self._wanted = wanted
        numbers = {each.port for each in wanted if each.port in _PORTS}
        for number in self._ports.keys() - numbers:
            self._ports.pop(number).close()
        for number in sorted(numbers - self._ports.keys()):
            self._ports[number] = Port(number, self._hosts, now=time.monotonic())
        self._changed.set()

    async def ask_once(self, wanted: tuple[LocalTrack, ...]) -> None:
        """Find out about *wanted* what can be found out at once: keepalived is not to start as if all were well."""
        self.want(wanted)
        try:
            await self._ask()
            await self._tell()
        finally:
            self._close()

    @property
    def seen(self) -> tuple[tuple[str, bool | None], ...]:
        """Each track with what it says; None where that is to be seen yet."""
        now = time.monotonic()
        return tuple((each.track, self._ready(each, now)) for each in self._wanted)

    async def run(self) -> None:
        """Tell keepalived for ever."""
        try:
            while True:
                await self._pause()
                self._changed.clear()
                try:
                    await self._ask()
                    await self._tell()
                except Exception:  # the edge: what was told last stands, and the next step of the agent tries again
                    log.exception("endpoints cannot be told to keepalived")
                    self._told = None
        finally:
            self._close()

    def _close(self) -> None:
        for port in self._ports.values():
            port.close()

    async def _pause(self) -> None:
        """Wait for the next round; without ports, until something else is wanted."""
        loop, seconds = asyncio.get_running_loop(), max(INTERVAL, len(self._ports) / MOST_ASKED)
        timer = loop.call_later(seconds, self._changed.set) if self._ports else None  # a time-out costs twice as much
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _ask(self) -> None:
        now = time.monotonic()
        for port in self._ports.values():
            port.ask(now)
        waiting = list(self._ports.values())
        for pause in _ANSWERED:
            if not waiting:
                return
            await asyncio.sleep(pause)
            now = time.monotonic()
            waiting = [port for port in waiting if not port.hear(now)]

    async def _tell(self) -> None:
        """Tell what has changed; what cannot be written is told again."""
        seen = self.seen
        unready = frozenset(track for track, ready in seen if ready is False)
        awaited = frozenset(track for track, ready in seen if ready is None)
        if self._told != (unready, awaited):
            await self._tracks.tell_endpoints(unready=unready, awaited=awaited)
            before = self._told[0] if self._told else frozenset()
            for track in sorted(unready ^ before):
                log.info("endpoints", track=track, ready=track not in unready)
            self._told = (unready, awaited)

    def _ready(self, wanted: LocalTrack, now: float) -> bool | None:
        if not wanted.port:
            return self._node in wanted.nodes
        port = self._ports.get(wanted.port)
        return port.ready(now) if port else None
