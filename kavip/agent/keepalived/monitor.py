"""
Asks keepalived for a dump, or to reload. Only a dump proves what it runs; that a signal was sent proves nothing.

A dump is requested by a signal, and keepalived answers with a file. So the agent sends one request at a time.
"""

import asyncio
import signal
import time
from typing import Final

from kavip.agent.config.model import ParsedConfig
from kavip.agent.keepalived import process
from kavip.agent.keepalived.configtest import Program
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.report import dump as dumps
from kavip.agent.report.dump import Dump
from kavip.agent.report.state import StateChanges, state_changes

CONFIRM: Final = 10.0
"""Seconds within which a dump must show a new configuration."""
FRESH: Final = 0.2
"""Seconds for which a dump is reused."""

_RELOAD: Final = signal.SIGHUP
_CONFIRM_PAUSE: Final = 0.05


class Monitor:
    """The keepalived of one run directory; *changes*: when each instance of the last dump entered its state."""

    def __init__(self, files: RunDirectory) -> None:
        self.program = Program("", 0)
        self.changes: StateChanges = {}
        self._files = files
        self._dump: tuple[float, Dump | None] = (0.0, None)
        self._unanswered = 0.0  # when the last request timed out
        self._asking = asyncio.Lock()

    async def daemon(self) -> Daemon | None:
        """The daemon, if it runs."""
        return await asyncio.to_thread(process.find, self._files.path, config=self._files.config)

    async def dump(self, configuration: ParsedConfig) -> Dump | None:
        """
        The instances, at most :data:`FRESH` seconds old; None if keepalived does not answer.

        *configuration* is the one that keepalived has read, as far as is known. Callers wait for each other. If the
        request of one times out, those that waited send no request of their own: kubelet gives a probe five seconds,
        and many may wait.
        """
        since = time.monotonic()
        async with self._asking:
            taken, found = self._dump
            if found is not None and time.monotonic() - taken < FRESH:
                return found
            if since <= self._unanswered:
                return None
            found = None
            deadline = time.monotonic() + process.BUDGET
            is_there = True
            while found is None and is_there and time.monotonic() < deadline:
                is_there, found = await asyncio.to_thread(self._find_and_ask, configuration)
            self._record(found)
            if found is None:
                self._unanswered = time.monotonic()
            return found

    async def accepts_reload(self, daemon: Daemon) -> bool:
        """Whether *daemon* has started far enough to handle SIGHUP and requests for a dump."""
        return await asyncio.to_thread(daemon.handles, _RELOAD, self.program.json_signal)

    async def send_reload_and_confirm(self, daemon: Daemon, configuration: ParsedConfig) -> bool:
        """
        Send SIGHUP; return whether a dump shows *configuration* afterwards.

        The first dump is ignored. It only proves that the parent process has received the SIGHUP that was sent before;
        the parent forwards SIGHUP to its child before it handles another signal. So the second dump was made after
        that. A request that timed out may be answered later, so each timeout makes one more dump ignored. Timeouts are
        frequent, because a child that reloads receives no signals.
        """
        if not await asyncio.to_thread(daemon.signal, _RELOAD):
            return False
        deadline = time.monotonic() + CONFIRM
        outstanding = 2
        while time.monotonic() < deadline:
            async with self._asking:
                found = await asyncio.to_thread(self._ask, daemon, configuration)
                self._record(found)
            outstanding += 1 if found is None else -1
            if found is not None and outstanding <= 0 and dumps.shows(found, configuration):
                return True
            if not await asyncio.to_thread(daemon.alive):
                return False
            await asyncio.sleep(_CONFIRM_PAUSE if outstanding <= 0 else 0)
        return False

    def _find_and_ask(self, configuration: ParsedConfig) -> tuple[bool, Dump | None]:
        """Whether keepalived runs, and its answer. One thread does both: a thread costs more than either."""
        daemon = process.find(self._files.path, config=self._files.config)
        return daemon is not None, self._ask(daemon, configuration) if daemon else None

    def _ask(self, daemon: Daemon, configuration: ParsedConfig) -> Dump | None:
        """Request one dump; from a keepalived without instances, which writes none, only a sign that it runs."""
        deadline = time.monotonic() + process.PATIENCE
        if configuration.instances:
            return process.take_dump(daemon, self._files.path, number=self.program.json_signal, deadline=deadline)
        return () if process.answers(daemon, self._files.path, deadline=deadline) else None

    def _record(self, found: Dump | None) -> None:
        """Keep the latest answer, so that no caller gets an older one."""
        self._dump = time.monotonic(), found
        if found is not None:
            self._unanswered = 0.0
        self.changes = state_changes(found, self.changes) if found is not None else {}
