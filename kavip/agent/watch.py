"""
What wakes the agent: a change in a mount, of the node's network, of the daemon's pid file, or the end of the daemon.

A wake-up says only that it is time to look. One that is missed costs no more than the wait for the next look, so
nothing here has to be certain, and what cannot be had (a node has a limited number of inotify handles) is done without.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import structlog

from kavip.agent.inotify import MADE, File, Folder, Folders
from kavip.agent.keepalived.process import PID_FILE, Daemon
from kavip.agent.rtnetlink import Change, Changes

BLIND: Final = 0.25
"""Seconds between looks where a folder cannot be watched, or is not there."""
SOONEST: Final = 0.02
"""Seconds between looks, however much happens."""

log = structlog.get_logger()


class Alarm:
    """
    Wakes one listener.

    *mounts* and the pid file in *run_dir* are watched; a change of the network that *matters* calls *moved* first.
    """

    def __init__(
        self, mounts: Iterable[Path], run_dir: Path, *, matters: Callable[[Change], bool], moved: Callable[[], None]
    ) -> None:
        self._rung = asyncio.Event()
        self._moved = moved
        pid_files = Folder(run_dir, MADE, frozenset({os.fsencode(PID_FILE)}))
        self._folders = Folders([*map(Folder, mounts), pid_files], [File(run_dir / PID_FILE)], self._rung.set)
        self._changes = Changes(matters, self._network)
        self._stack = ExitStack()
        self._daemon: Daemon | None = None
        self._handle = -1

    def __enter__(self) -> Self:
        self._stack.enter_context(self._folders)
        self._stack.enter_context(self._changes)
        self._stack.callback(self._let_go)
        if not self._folders.seeing:
            log.warning("a folder cannot be watched: it is looked at instead", every=BLIND)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def follow(self, daemon: Daemon | None) -> None:
        """Wake when *daemon*, and no other, ends."""
        if daemon == self._daemon:
            return
        self._let_go()
        if daemon is None:
            return
        try:
            self._handle = os.pidfd_open(daemon.pid)
        except OSError:
            self._rung.set()
            return
        self._daemon = daemon
        asyncio.get_running_loop().add_reader(self._handle, self._ended)
        if not await asyncio.to_thread(daemon.alive):  # the handle may be that of who has its number now
            self._ended()

    async def wait(self, seconds: float) -> None:
        """Return when something happens, at the latest after *seconds*."""
        self._folders.watch()
        longest = seconds if self._folders.seeing else min(seconds, BLIND)
        try:
            async with asyncio.timeout(max(SOONEST, longest)):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()

    def _network(self) -> None:
        self._moved()
        self._rung.set()

    def _ended(self) -> None:
        self._let_go()
        self._rung.set()

    def _let_go(self) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
        self._daemon, self._handle = None, -1
