"""
The running keepalived: found by its pid file, signalled, and asked for what it does.

A pid alone names a process only until it exits. So a process is looked at after a handle to it was opened, and signals
go through that handle. A signal is sent only to a daemon that has set itself up to take it: before that, SIGHUP and the
dump signal would end it.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kavip.agent.keepalived import dump
from kavip.agent.keepalived.dump import Dump

PID_FILE: Final = "keepalived.pid"
VRRP_PID_FILE: Final = "vrrp.pid"
JSON_FILE: Final = "keepalived.json"
PARENT_FILE: Final = "keepalived_parent.data"
DATA_SIGNAL: Final = signal.SIGUSR1
BUDGET: Final = 2.0
"""Seconds after which a daemon that does not answer is not alive."""
PATIENCE: Final = 0.3
"""Seconds after which it is asked again: while it reloads, signals are lost."""

_STATE, _START, _PARENT = 0, 19, 1  # fields of /proc/PID/stat behind the name
_DEAD: Final = "ZX"
_PAUSE: Final = 0.005  # keepalived answers within 5 ms


@dataclass(frozen=True, slots=True)
class Daemon:
    """One keepalived, for ever: the parent process."""

    pid: int
    start: int  # clock ticks from boot to its start

    def alive(self) -> bool:
        """Whether it still runs."""
        fields = _stat(self.pid)
        return bool(fields) and fields[_STATE] not in _DEAD and int(fields[_START]) == self.start

    def takes(self, *numbers: int) -> bool:
        """Whether it has set itself up to take these signals."""
        taken = 0
        for line in _read(f"/proc/{self.pid}/status").splitlines():
            if line.startswith((b"SigBlk:", b"SigCgt:")):  # keepalived blocks what it reads from a signalfd
                taken |= int(line.split()[1], 16)
        return all(taken >> (number - 1) & 1 for number in numbers)

    def signal(self, number: int) -> bool:
        """Send a signal to exactly this process; False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def find(run_dir: Path, *, config: Path) -> Daemon | None:
    """
    The keepalived that runs *config*.

    Its pid file is believed only if /proc agrees. Where it does not, all processes in sight are looked at (those of
    the pod, in a pod): to take a running daemon for a dead one would cost it its VIPs. A child that has outlived the
    others of its family for a moment is none.
    """
    named = _read(run_dir / PID_FILE).strip()
    if named.isdigit() and (found := _daemon(int(named), config)):
        return found
    child = _read(run_dir / VRRP_PID_FILE).strip()
    seen = (int(each) for each in os.listdir("/proc") if each.isdigit() and each.encode() != child)
    matching = [each for each in seen if _runs(each, config)]
    parents = [pid for pid in sorted(matching) if (fields := _stat(pid)) and int(fields[_PARENT]) not in matching]
    return next((found for pid in parents if (found := _daemon(pid, config))), None)


def remove_stale_pid_files(run_dir: Path, *, config: Path) -> None:
    """
    Remove pid files of a daemon that is gone, where some process has that number: another one, or its own zombie.

    keepalived would take that for itself, say that it is running already, and exit. A child that is about to follow
    its daemon keeps its file, by which it is known.
    """
    for path in (run_dir / PID_FILE, run_dir / VRRP_PID_FILE):
        named = _read(path).strip()
        if named.isdigit() and _stat(int(named)) and _daemon(int(named), config) is None:
            path.unlink(missing_ok=True)


def was_killed(daemon: Daemon, run_dir: Path) -> bool:
    """Whether *daemon*, which is gone, was ended from outside: one that gives up takes its pid file away."""
    return _read(run_dir / PID_FILE).strip() == str(daemon.pid).encode()


def take_dump(daemon: Daemon, run_dir: Path, *, number: int, deadline: float) -> Dump | None:
    """Ask for the instances and wait for the answer until *deadline* (monotonic); None when there is none."""
    path = run_dir / JSON_FILE
    before = _identity(path)
    if not daemon.takes(number) or not daemon.signal(number):
        return None
    while time.monotonic() < deadline:
        # keepalived renames the file into place before it fills it
        if _identity(path) not in (before, None) and (found := dump.decode(_read(path))) is not None:
            return found
        if not daemon.alive():
            return None
        time.sleep(_PAUSE)
    return None


def answers(daemon: Daemon, run_dir: Path, *, deadline: float) -> bool:
    """Whether the parent process answers; a keepalived without instances writes no JSON."""
    path = run_dir / PARENT_FILE
    before = _identity(path)
    if not daemon.takes(DATA_SIGNAL) or not daemon.signal(DATA_SIGNAL):
        return False
    while time.monotonic() < deadline:
        if _identity(path) not in (before, None):
            return True
        time.sleep(_PAUSE)
    return False


def _daemon(pid: int, config: Path) -> Daemon | None:
    fields = _stat(pid)
    if not fields or fields[_STATE] in _DEAD or not _runs(pid, config):
        return None
    return Daemon(pid, int(fields[_START]))


def _runs(pid: int, config: Path) -> bool:
    """Whether the command line is keepalived's, with *config* as its file."""
    program, *arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")
    name = os.fsencode(config)
    return program.rpartition(b"/")[2] == b"keepalived" and any(
        each == name or each.endswith(b"=" + name) or each == b"-f" + name for each in arguments
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold blanks and brackets itself."""
    return _read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()


def _read(path: Path | str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
