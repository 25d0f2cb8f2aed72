"""
Which Services with ``externalTrafficPolicy: Local`` answer on this node; writes it to their track files.

kube-proxy's health ports are asked in rounds, all at once: the more ports, the rarer, so that the agent stays idle with
hundreds of them. For a Service without such a port the controller lists the nodes.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog

from kavip.agent.health.kubeproxy import HealthPort
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.api.agentconfig import LocalTrack

INTERVAL: Final = 0.2
"""Seconds between two rounds: with the default profile a VIP follows within one second, keepalived included."""
MAX_RATE: Final = 150
"""
Questions a second: more than 30 ports are asked less often.

A question costs about fifteen microseconds, of which the kernel takes twelve to send and to receive.
"""

_PORTS: Final = range(1, 2**16)
_ANSWERED: Final = (0.005, 0.02, 0.05)  # pauses, in seconds, between two checks for answers

log = structlog.get_logger()


class LocalEndpoints:
    """Whether each Service that the group follows has a ready endpoint on the node *node*."""

    def __init__(self, node: str, tracks: TrackFiles, *, hosts: Iterable[str]) -> None:
        """Follow no Service yet; kube-proxy may listen on any of *hosts*."""
        self._node, self._tracks = node, tracks
        self._hosts = tuple(dict.fromkeys(filter(None, hosts)))
        self._wanted: tuple[LocalTrack, ...] = ()
        self._ports: dict[int, HealthPort] = {}
        self._written: tuple[frozenset[str], frozenset[str]] | None = None
        self._logged = frozenset[str]()  # those that are unready
        self._changed = asyncio.Event()

    def configure(self, wanted: tuple[LocalTrack, ...]) -> None:
        """Follow exactly *wanted* from now on."""
        if wanted == self._wanted and self._written is not None:
            return
        self._wanted = wanted
        numbers = {each.port for each in wanted if each.port in _PORTS}
        for number in self._ports.keys() - numbers:
            self._ports.pop(number).close()
        for number in sorted(numbers - self._ports.keys()):
            self._ports[number] = HealthPort(number, self._hosts, now=time.monotonic())
        self._changed.set()

    async def run_once(self, wanted: tuple[LocalTrack, ...]) -> None:
        """Ask once about *wanted*, so that keepalived does not start with the assumption that all are ready."""
        self.configure(wanted)
        try:
            await self._ask()
            await self._write()
        finally:
            self._close()

    @property
    def states(self) -> tuple[tuple[str, bool | None], ...]:
        """Each track with its result; None: not known yet."""
        now = time.monotonic()
        return tuple((each.track, self._is_ready(each, now)) for each in self._wanted)

    async def run(self) -> None:
        """Probe and write, until cancelled."""
        try:
            while True:
                await self._pause()
                self._changed.clear()
                try:
                    await self._ask()
                    await self._write()
                except Exception:  # the edge: the last results stand, and the agent's next step tries again
                    log.exception("endpoints not written")
                    self._written = None
        finally:
            self._close()

    def _close(self) -> None:
        for port in self._ports.values():
            port.close()

    async def _pause(self) -> None:
        """Wait for the next round; without ports, until :meth:`configure` changes something."""
        loop, seconds = asyncio.get_running_loop(), max(INTERVAL, len(self._ports) / MAX_RATE)
        timer = loop.call_later(seconds, self._changed.set) if self._ports else None  # asyncio.timeout costs twice
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _ask(self) -> None:
        now = time.monotonic()
        for port in self._ports.values():
            port.send(now)
        waiting = list(self._ports.values())
        for pause in _ANSWERED:
            if not waiting:
                return
            await asyncio.sleep(pause)
            now = time.monotonic()
            waiting = [port for port in waiting if not port.receive(now)]

    async def _write(self) -> None:
        """Write what has changed, or could not be written before."""
        states = self.states
        unready = frozenset(track for track, ready in states if ready is False)
        awaited = frozenset(track for track, ready in states if ready is None)
        if self._written != (unready, awaited):
            await self._tracks.update_endpoints(unready=unready, awaited=awaited)
            for track in sorted(unready ^ self._logged):
                log.info("endpoints", track=track, ready=track not in unready)
            self._written, self._logged = (unready, awaited), unready

    def _is_ready(self, wanted: LocalTrack, now: float) -> bool | None:
        if not wanted.port:
            return self._node in wanted.nodes
        port = self._ports.get(wanted.port)
        return port.ready(now) if port else None
