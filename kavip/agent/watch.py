"""
Wakes the agent: when a mount, the node's network or the daemon's pid file changes, and when the daemon ends.

Changes of the network may wait for two seconds, all others wake it at once.

A wake-up only starts the next step of the agent. After a missed wake-up, that step starts after the usual pause. So a
folder that cannot be watched is not an error: a node has a limited number of inotify instances.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import structlog

from kavip.agent.inotify import CREATED, File, Folder, FolderWatch
from kavip.agent.keepalived.process import PID_FILE, Daemon
from kavip.agent.rtnetlink import NetworkChange, NetworkWatch

UNWATCHED: Final = 0.25
"""Seconds between steps while a folder cannot be watched, or does not exist."""
SOONEST: Final = 0.02
"""The shortest time between two steps, in seconds."""
PAUSE_FACTOR: Final = 10
"""
After a step for the network, the network wakes the task no sooner than after so many times the duration of that step,
at most :data:`LONGEST_PAUSE`. Such a step reads all addresses of the node, and a fail-over of another group changes
thousands of them one by one.
"""
LONGEST_PAUSE: Final = 2.0
"""Seconds: a step may take long for other reasons."""

log = structlog.get_logger()


class Watcher:
    """
    Wakes one task, which calls :meth:`wait`.

    It watches *mounts*, and the pid file in *run_dir*. It calls *observe* with each change of the network, and
    *network_changed* upon one that *is_relevant*, before the task is woken.
    """

    def __init__(
        self,
        mounts: Iterable[Path],
        run_dir: Path,
        *,
        observe: Callable[[NetworkChange], None],
        is_relevant: Callable[[NetworkChange], bool],
        network_changed: Callable[[], None],
    ) -> None:
        self._woken = asyncio.Event()
        self._network_changed = network_changed
        pid_files = Folder(run_dir, CREATED, frozenset({os.fsencode(PID_FILE)}))
        self._folders = FolderWatch([*map(Folder, mounts), pid_files], [File(run_dir / PID_FILE)], self._woken.set)
        self._network = NetworkWatch(observe, is_relevant, self._wake_for_network)
        self._step_began = self._pause_ends = 0.0  # by the clock of the loop
        self._network_has_changed = False  # since the last step
        self._is_for_network = False  # this step
        self._may_network_wake = False  # no step is under way, and the pause has ended
        self._stack = ExitStack()
        self._daemon: Daemon | None = None
        self._handle = -1

    def __enter__(self) -> Self:
        self._stack.enter_context(self._folders)
        self._stack.enter_context(self._network)
        self._stack.callback(self._close_handle)
        if not self._folders.is_complete:
            log.warning("folder not watched", poll_seconds=UNWATCHED)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def watch_daemon(self, daemon: Daemon | None) -> None:
        """Wake when *daemon* ends; no other daemon is watched any more."""
        if daemon == self._daemon:
            return
        self._close_handle()
        if daemon is None:
            return
        try:
            self._handle = os.pidfd_open(daemon.pid)
        except OSError:
            self._woken.set()
            return
        self._daemon = daemon
        asyncio.get_running_loop().add_reader(self._handle, self._daemon_ended)
        if not await asyncio.to_thread(daemon.alive):  # the handle may be that of a later process with the same pid
            self._daemon_ended()

    async def wait(self, seconds: float) -> None:
        """Return at the next wake-up, at the latest after *seconds*; a step has ended when this is called."""
        loop = asyncio.get_running_loop()
        if self._is_for_network:
            took = loop.time() - self._step_began
            self._is_for_network, self._pause_ends = False, loop.time() + min(LONGEST_PAUSE, PAUSE_FACTOR * took)
        if loop.time() >= self._pause_ends:
            self._pause_ended()  # at once: the task may have been woken already
        timer = loop.call_at(self._pause_ends, self._pause_ended)
        try:
            await self._wait(seconds)
        finally:
            timer.cancel()
            self._step_began, self._may_network_wake = loop.time(), False

    async def _wait(self, seconds: float) -> None:
        self._folders.renew()
        longest = seconds if self._folders.is_complete else min(seconds, UNWATCHED)
        try:
            async with asyncio.timeout(max(SOONEST, longest)):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    def wake(self) -> None:
        """Wake the task."""
        self._woken.set()

    def _wake_for_network(self) -> None:
        self._network_has_changed = True
        if self._may_network_wake:
            self._take_network()

    def _pause_ended(self) -> None:
        self._may_network_wake = True
        if self._network_has_changed:
            self._take_network()

    def _take_network(self) -> None:
        self._network_has_changed, self._is_for_network = False, True
        self._network_changed()
        self._woken.set()

    def _daemon_ended(self) -> None:
        self._close_handle()
        self._woken.set()

    def _close_handle(self) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
        self._daemon, self._handle = None, -1
