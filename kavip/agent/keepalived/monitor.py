"""
Sees what the daemon does: a signal proves nothing, only a dump does.

A daemon is asked by a signal and answers with a file; questions are put one at a time.
"""

import asyncio
import signal
import time
from typing import Final

from kavip.agent.config.model import Configuration
from kavip.agent.http.state import Moments, moments_of
from kavip.agent.keepalived import dump as dumps
from kavip.agent.keepalived import process as daemons
from kavip.agent.keepalived.configtest import Program
from kavip.agent.keepalived.dump import Dump
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.rundir import RunDirectory

CONFIRM: Final = 10.0
"""Seconds within which a daemon must be seen to run what it was told to."""
FRESH: Final = 0.2
"""Seconds for which a dump is good enough for another question."""

_RELOAD: Final = signal.SIGHUP
_CONFIRM_PAUSE: Final = 0.05


class Witness:
    """The daemon of one run directory."""

    def __init__(self, files: RunDirectory) -> None:
        self.program = Program("", 0)
        self.moments: Moments = {}
        self._files = files
        self._dump: tuple[float, Dump | None] = (0.0, None)
        self._silent = 0.0  # when a daemon that was asked for as long as it may take had not answered
        self._asking = asyncio.Lock()

    async def daemon(self) -> Daemon | None:
        """The daemon, if one runs."""
        return await asyncio.to_thread(daemons.find, self._files.path, config=self._files.config)

    async def dump(self, configuration: Configuration) -> Dump | None:
        """
        The daemon's instances, at most :data:`FRESH` seconds old; None when it does not answer.

        *configuration* is the one that it has read, as far as is known. Who waited while it did not answer somebody
        else does not ask again: kubelet gives a probe five seconds, however many ask.
        """
        since = time.monotonic()
        async with self._asking:
            taken, found = self._dump
            if found is not None and time.monotonic() - taken < FRESH:
                return found
            if since <= self._silent:
                return None
            found = None
            deadline = time.monotonic() + daemons.BUDGET
            is_there = True
            while found is None and is_there and time.monotonic() < deadline:
                is_there, found = await asyncio.to_thread(self._find_and_ask, configuration)
            self._keep(found)
            if found is None:
                self._silent = time.monotonic()
            return found

    async def takes(self, daemon: Daemon) -> bool:
        """Whether *daemon* is up far enough to be told to reload."""
        return await asyncio.to_thread(daemon.takes, _RELOAD, self.program.json_signal)

    async def obeyed(self, daemon: Daemon, configuration: Configuration) -> bool:
        """
        Send SIGHUP, and say whether the daemon was seen to run *configuration* afterwards.

        A dump counts from the second on: the first answer proves that the parent has taken the SIGHUP that was sent
        before it, and the parent passes that on before it takes another signal. A question that was not answered in
        time may be answered later, so each puts that off by one; many are lost, for a child that reloads hears nothing.
        """
        if not await asyncio.to_thread(daemon.signal, _RELOAD):
            return False
        deadline = time.monotonic() + CONFIRM
        awaited = 2
        while time.monotonic() < deadline:
            async with self._asking:
                found = await asyncio.to_thread(self._ask, daemon, configuration)
                self._keep(found)
            awaited += 1 if found is None else -1
            if found is not None and awaited <= 0 and dumps.shows(found, configuration):
                return True
            if not await asyncio.to_thread(daemon.alive):
                return False
            await asyncio.sleep(_CONFIRM_PAUSE if awaited <= 0 else 0)
        return False

    def _find_and_ask(self, configuration: Configuration) -> tuple[bool, Dump | None]:
        """Whether there is a daemon, and what it answers. One thread does both: each costs more than what it does."""
        daemon = daemons.find(self._files.path, config=self._files.config)
        return daemon is not None, self._ask(daemon, configuration) if daemon else None

    def _ask(self, daemon: Daemon, configuration: Configuration) -> Dump | None:
        """Ask once for the daemon's instances; one that should have none can only be asked whether it is there."""
        deadline = time.monotonic() + daemons.PATIENCE
        if configuration.instances:
            return daemons.take_dump(daemon, self._files.path, number=self.program.json_signal, deadline=deadline)
        return () if daemons.answers(daemon, self._files.path, deadline=deadline) else None

    def _keep(self, found: Dump | None) -> None:
        """Remember a dump, so that the next question is never answered with an older one."""
        self._dump = time.monotonic(), found
        if found is not None:
            self._silent = 0.0
        self.moments = moments_of(found, self.moments) if found is not None else {}
