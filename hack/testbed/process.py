"""A process that can be found and stopped later, by the process that started it or by another one.

A pid identifies a process only until it exits. With the start time it identifies the process permanently, so a
record of a killed run can be used days later without signalling another process.
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
    """One process of this machine, identified permanently."""

    pid: int
    start: int  # clock ticks between boot and its start: field 22 of /proc/PID/stat

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return find(self.pid) == self

    def signal(self, number: int) -> bool:
        """Send a signal to exactly this process; False if it has exited."""
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
            is_other = _start(self.pid) != self.start
            return is_other or bool(poll.poll(timeout * 1000))
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
    """The process that was recorded in a file, if it still runs; None for a damaged or absent file."""
    try:
        return named(path.read_text())
    except (FileNotFoundError, UnicodeDecodeError):
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
    """Start a program in its own session, with its output in a file, so that it outlives its parent."""
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
    """End processes: send SIGTERM to all, and SIGKILL to those that still run after the grace period."""
    signalled = [process for process in processes if process.signal(signal.SIGTERM)]
    deadline = time.monotonic() + grace
    remaining = [process for process in signalled if not process.wait(max(0.0, deadline - time.monotonic()))]
    kill(remaining)


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL to processes, and return when they have exited."""
    for process in [process for process in processes if process.signal(signal.SIGKILL)]:
        if not process.wait(90):
            raise TestbedError(f"process {process.pid} survives SIGKILL: it is blocked in the kernel")


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
            raise TestbedError(f"{what}: not within {timeout:.0f} s")
        time.sleep(interval)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on: the second, the name, may have spaces. Empty if it has exited."""
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
