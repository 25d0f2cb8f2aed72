"""
inotify(7): reports that something happened in a folder, not what.

A folder that cannot be watched is not an error: the agent also reads its mounts from time to time.

It uses no library (``python -m bench.watch``, November 2026, 100 dumps of keepalived). All take 70 to 110 ms of
processor time and 170 to 200 wake-ups. But pyroute2's Inotify blocks, so it needs a thread; it cannot watch a folder
again that was replaced, and raises KeyError when the kernel's queue overflows. asyncinotify would replace three calls
of libc and one struct, for a new dependency that takes 0.1 MiB more and starts ldconfig at each import.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

# kubelet changes a mount by one rename of ``..data``; the other events are for folders that are changed by hand
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_ONLYDIR: Final = 0x0100_0000
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000  # the folder is gone
_HEADER: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it
_BUFFER: Final = 64 << 10

CHANGED: Final = _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE
"""Files are complete, or gone."""
CREATED: Final = _CREATE | _MOVED_TO
"""Files are new."""
WRITTEN: Final = _MODIFY
"""A file is being written. For a folder this would report each page of each dump of keepalived."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of which *events* of the files *names* are watched; without names those of all files."""

    path: Path
    events: int = CHANGED
    names: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class File:
    """A file of which every write is watched while it exists; its folder reports that it is created."""

    path: Path
    events: int = WRITTEN


class FolderWatch:
    """Calls *wake* upon an event in one of *folders*, or of one of *files*, for the duration of the context."""

    def __init__(self, folders: Sequence[Folder], files: Sequence[File], wake: Callable[[], None]) -> None:
        self._folders, self._files, self._wake = folders, files, wake
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watches: dict[int, Folder | File] = {}
        self._handle = -1

    @property
    def is_complete(self) -> bool:
        """Whether every folder is watched."""
        return sum(isinstance(each, Folder) for each in self._watches.values()) == len(self._folders)

    def __enter__(self) -> Self:
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle >= 0:  # a user may have 128
            asyncio.get_running_loop().add_reader(self._handle, self._happened)
        self.renew()
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def renew(self) -> None:
        """Watch what exists at each path now: a folder that was replaced is another one."""
        if self._handle < 0:
            return
        watches: dict[int, Folder | File] = {}
        wanted: list[Folder | File] = [*self._folders, *self._files]
        for each in wanted:
            only = _ONLYDIR if isinstance(each, Folder) else 0
            watch = self._libc.inotify_add_watch(self._handle, os.fsencode(each.path), each.events | only)
            if watch >= 0:
                watches[watch] = each
        for gone in self._watches.keys() - watches.keys():
            self._libc.inotify_rm_watch(self._handle, gone)  # fails if the kernel has removed it
        self._watches = watches

    def _happened(self) -> None:
        try:
            events = os.read(self._handle, _BUFFER)
        except BlockingIOError:
            return
        at, wakes = 0, False
        while at < len(events):
            watch, mask, _, length = _HEADER.unpack_from(events, at)
            at += _HEADER.size + length
            watched = self._watches.get(watch)
            name = events[at - length : at].rstrip(b"\0")
            is_other = isinstance(watched, Folder) and bool(watched.names) and name not in watched.names
            wakes = wakes or not is_other or bool(mask & (_OVERFLOW | _IGNORED))
        if wakes:
            self.renew()  # before the agent reads: a later change is read as well, or wakes the agent again
            self._wake()
