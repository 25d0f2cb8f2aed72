"""
inotify(7): says that something happened in a folder, and nothing about what.

Three calls of libc, because that is all that is wanted: who is told looks at the folder anyway. What cannot be watched
is no error here; the agent looks at its mounts now and then whatever happens.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

# kubelet changes a mount by one rename of ``..data``. The others are for folders that are written by hand.
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_ONLYDIR: Final = 0x0100_0000
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000  # there is no folder any more
_HEADER: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it
_BUFFER: Final = 64 << 10

CHANGED: Final = _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE
"""Files are whole, or gone."""
MADE: Final = _CREATE | _MOVED_TO
"""Files are there that were not."""
WRITTEN: Final = _MODIFY
"""A file is being written; of a folder that would tell of every page of every dump, which none of ours reads."""


@dataclass(frozen=True, slots=True)
class Folder:
    """What is watched: *events* of the files *names*; no names are all."""

    path: Path
    events: int = CHANGED
    names: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class File:
    """A file of which every write is told, while it is there: that it comes is its folder's news."""

    path: Path
    events: int = WRITTEN


class Folders:
    """Calls *wake* when something happens in one of *folders*, or to one of *files*, as long as the context lasts."""

    def __init__(self, folders: Sequence[Folder], files: Sequence[File], wake: Callable[[], None]) -> None:
        self._folders, self._files, self._wake = folders, files, wake
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watches: dict[int, Folder | File] = {}
        self._handle = -1

    @property
    def seeing(self) -> bool:
        """Whether every folder is watched."""
        return sum(isinstance(each, Folder) for each in self._watches.values()) == len(self._folders)

    def __enter__(self) -> Self:
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle >= 0:  # a user has 128 of them
            asyncio.get_running_loop().add_reader(self._handle, self._happened)
        self.watch()
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def watch(self) -> None:
        """Watch what stands at each path by now: a folder that was replaced is another one."""
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
            self._libc.inotify_rm_watch(self._handle, gone)  # fails where the kernel has done it
        self._watches = watches

    def _happened(self) -> None:
        try:
            events = os.read(self._handle, _BUFFER)
        except BlockingIOError:
            return
        at, news = 0, False
        while at < len(events):
            watch, mask, _, length = _HEADER.unpack_from(events, at)
            at += _HEADER.size + length
            watched = self._watches.get(watch)
            name = events[at - length : at].rstrip(b"\0")
            known = isinstance(watched, Folder) and bool(watched.names) and name not in watched.names
            news = news or not known or bool(mask & (_OVERFLOW | _IGNORED))
        if news:
            self.watch()  # before anybody looks: what is written between is seen by who looks, or told
            self._wake()
