"""A process that can be found and stopped later, by the process that started it or by another one.

A pid alone names a process only until it exits. Together with its start time it names that process for ever, so a
record written by a run that was killed can be acted on days later without hitting a stranger.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.testbed.errors import TestbedError

_STATE, _PARENT, _START = 0, 1, 19  # in what _stat returns
_DEAD = "ZX"  # states of a process that has exited, waited for or not


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine, for ever."""

    pid: int
    start: int  # clock ticks between boot and its start: field 22 of /proc/PID/stat

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return find(self.pid) == self

    def signal(self, number: int) -> bool:
        """Send a signal to exactly this process; False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive:  # checked after opening: from here on the handle cannot mean another process
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def wait(self, timeout: float) -> bool:
        """Wait until it has exited; False when it has not by then."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            # A zombie counts as running here: while its other threads still exit, its ports are still taken.
            stranger = _start(self.pid) != self.start
            return stranger or bool(poll.poll(timeout * 1000))
        finally:
            os.close(handle)
            _reap(self.pid)

    def record(self, path: Path) -> None:
        """Write pid and start time for `recorded`, in one step, so that no reader finds an incomplete file."""
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text(f"{self.pid} {self.start}\n")
        draft.rename(path)


def find(pid: int) -> Process | None:
    """The running process with this pid."""
    fields = _stat(pid)
    return Process(pid, int(fields[_START])) if fields and fields[_STATE] not in _DEAD else None


def recorded(path: Path) -> Process | None:
    """The process that was recorded in a file, if it still runs; a damaged or absent file names none."""
    try:
        return named(path.read_text())
    except FileNotFoundError:
        return None


def named(record: str) -> Process | None:
    """The process that a record names, if it still runs."""
    try:
        pid, start = (int(word) for word in record.split())
    except ValueError:
        return None
    process = Process(pid, start)
    return process if process.alive else None


def spawn(command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start a program in a session of its own, with its output in a file, so that it outlives its starter."""
    output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        command[0],
        list(command),
        dict(os.environ if env is None else env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), output, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = find(pid)
    if process is None:
        _reap(pid)
        raise TestbedError(f"{command[0]} exited at once:\n{tail(log)}")
    return process


def stop(processes: Iterable[Process], *, grace: float = 5.0) -> None:
    """End processes: ask all of them, and kill those that are still there after the grace."""
    asked = [process for process in processes if process.signal(signal.SIGTERM)]
    deadline = time.monotonic() + grace
    stubborn = [process for process in asked if not process.wait(max(0.0, deadline - time.monotonic()))]
    kill(stubborn)


def kill(processes: Iterable[Process]) -> None:
    """End processes at once, and return when they are gone."""
    for process in [process for process in processes if process.signal(signal.SIGKILL)]:
        if not process.wait(90):
            raise TestbedError(f"process {process.pid} survives SIGKILL: it hangs in the kernel")


def children(roots: Iterable[int]) -> set[int]:
    """The pids in `roots` and everything that descends from them."""
    offspring: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            offspring.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    family: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        family.add(pid)
        waiting += [child for child in offspring.get(pid, []) if child not in family]
    return family


def wait_for(what: str, ready: Callable[[], bool], *, timeout: float, interval: float = 0.05) -> None:
    """Poll until `ready` holds."""
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise TestbedError(f"{what}: not so after {timeout:.0f} s")
        time.sleep(interval)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on: the second, the name, may hold spaces and brackets. Empty when gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _start(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[_START]) if fields else -1


def _reap(pid: int) -> None:
    """Collect the exit status if the process is a child of this one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
