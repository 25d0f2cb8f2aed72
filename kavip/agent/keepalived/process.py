"""
The running keepalived: finds it by its pid file, signals it, asks it for dumps.

A pid names a process only until the process exits. So the agent opens a handle first, examines the process then, and
signals through that handle. A signal is sent only after keepalived has installed its handler: before, SIGHUP and the
dump signal would end it.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kavip.agent.report import dump
from kavip.agent.report.dump import Dump

PID_FILE: Final = "keepalived.pid"
VRRP_PID_FILE: Final = "vrrp.pid"
JSON_FILE: Final = "keepalived.json"
PARENT_FILE: Final = "keepalived_parent.data"
DATA_SIGNAL: Final = signal.SIGUSR1
BUDGET: Final = 2.0
"""Seconds after which a daemon that does not answer counts as dead."""
PATIENCE: Final = 0.3
"""Seconds after which a question is repeated: keepalived loses signals while it reloads."""

_STATE, _START, _PARENT = 0, 19, 1  # fields of /proc/PID/stat behind the name
_DEAD: Final = "ZX"
_PAUSE: Final = 0.005  # keepalived answers within 5 ms


@dataclass(frozen=True, slots=True)
class Daemon:
    """The parent process of one keepalived; its *start* distinguishes it from a later process with this pid."""

    pid: int
    start: int  # clock ticks from boot to its start

    def alive(self) -> bool:
        """Whether the process still runs."""
        fields = _stat(self.pid)
        return bool(fields) and fields[_STATE] not in _DEAD and int(fields[_START]) == self.start

    def handles(self, *numbers: int) -> bool:
        """Whether the process has handlers for these signals."""
        handled = 0
        for line in _read(f"/proc/{self.pid}/status").splitlines():
            if line.startswith((b"SigBlk:", b"SigCgt:")):  # keepalived blocks what it reads from a signalfd
                handled |= int(line.split()[1], 16)
        return all(handled >> (number - 1) & 1 for number in numbers)

    def signal(self, number: int) -> bool:
        """Send a signal to exactly this process; False if it is gone."""
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
    The keepalived that runs *config*; None if there is none.

    The pid file counts only if /proc confirms it. Otherwise all visible processes are examined, in a pod those of the
    pod: a running daemon that is taken for dead would lose its VIPs. A child process that outlives its parent for a
    moment does not count.
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
    Remove pid files of a daemon that is gone, if another process or a zombie has the pid.

    keepalived would assume that it runs already, and exit. The pid file of a child process that is about to end stays,
    because :func:`find` identifies the child by it.
    """
    for path in (run_dir / PID_FILE, run_dir / VRRP_PID_FILE):
        named = _read(path).strip()
        if named.isdigit() and _stat(int(named)) and _daemon(int(named), config) is None:
            path.unlink(missing_ok=True)


def was_killed(daemon: Daemon, run_dir: Path) -> bool:
    """Whether *daemon*, which is gone, was killed: a keepalived that exits by itself removes its pid file."""
    return _read(run_dir / PID_FILE).strip() == str(daemon.pid).encode()


def take_dump(daemon: Daemon, run_dir: Path, *, number: int, deadline: float) -> Dump | None:
    """Ask for the instances and wait for the answer until *deadline* (monotonic); None if none comes."""
    path = run_dir / JSON_FILE
    before = _identity(path)
    if not daemon.handles(number) or not daemon.signal(number):
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
    """Whether the parent process answers until *deadline*; a keepalived without instances writes no JSON."""
    path = run_dir / PARENT_FILE
    before = _identity(path)
    if not daemon.handles(DATA_SIGNAL) or not daemon.signal(DATA_SIGNAL):
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
    """Whether the command line is that of keepalived with *config* as its file."""
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
    """The fields of /proc/PID/stat after the name, which may hold blanks and brackets itself."""
    return _read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()


def _read(path: Path | str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
