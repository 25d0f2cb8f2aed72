"""A pytest plugin: wall time, CPU time and waiting of each test file, printed at the end of a run (``--timing``).

The wall time of a file is the sum of its tests. The CPU time is that of the worker and of all its descendants, read
from /proc when the worker moves on to another file. The CPU time of a process that init reaped inside a namespace is
lost, so the last line also shows what the machine did meanwhile. Waiting is wall time less CPU time.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SHOWN = 30
_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = (
    1,
    slice(11, 15),
)  # in /proc/PID/stat, after the name: parent; user, system, and those of reaped children
_BUSY = (0, 1, 2, 5, 6, 7)  # in the first line of /proc/stat: user, nice, system, irq, softirq, steal

Figures = dict[str, tuple[float, float]]  # file: wall and CPU seconds


def family_cpu(root: int) -> float:
    """The CPU seconds that a process, its living descendants and their reaped children have used."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, float] = {}
    for pid, fields in _stats():
        children[int(fields[_PARENT])].append(pid)
        used[pid] = sum(map(int, fields[_TIMES])) / _TICKS
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += children[pid]
    return total


def machine_cpu() -> float:
    """The CPU seconds that all processes of the machine have used."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(words[index]) for index in _BUSY) / _TICKS


def table(figures: Figures, *, shown: int = SHOWN) -> Iterator[str]:
    """The files with the largest wall time, and the sums of all files."""
    yield f"{'wall s':>8} {'CPU s':>8} {'waiting':>8}  file"
    rows = sorted(figures.items(), key=lambda row: -row[1][0])
    for path, (wall, cpu) in rows[:shown]:
        yield f"{wall:8.1f} {cpu:8.1f} {max(wall - cpu, 0):8.1f}  {path}"
    total = [sum(values) for values in zip(*figures.values(), strict=True)] or [0.0, 0.0]
    waited = sum(max(wall - cpu, 0) for wall, cpu in figures.values())
    yield f"{total[0]:8.1f} {total[1]:8.1f} {waited:8.1f}  all {len(figures)} files"


@dataclass(slots=True)
class Recorder:
    """Adds up the figures of one process that runs tests."""

    figures: Figures = field(default_factory=dict)
    _file: str = ""
    _cpu: float = 0.0

    def add_wall(self, path: str, seconds: float) -> None:
        """Count the duration of one test."""
        wall, cpu = self.figures.get(path, (0.0, 0.0))
        self.figures[path] = (wall + seconds, cpu)

    def enter(self, path: str) -> None:
        """From now on CPU time belongs to this file; what was used since the last call belongs to the last file."""
        if path == self._file:
            return
        now = family_cpu(os.getpid())
        if self._file:
            wall, cpu = self.figures.get(self._file, (0.0, 0.0))
            self.figures[self._file] = (wall, cpu + max(now - self._cpu, 0.0))
        self._file, self._cpu = path, now


@dataclass(slots=True)
class Timing:
    """The plugin's state: what this process recorded, and what its workers reported."""

    begun: float = field(default_factory=time.monotonic)
    machine: float = field(default_factory=machine_cpu)
    own: Recorder = field(default_factory=Recorder)
    workers: list[Figures] = field(default_factory=list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        """Measure one test."""
        path = item.nodeid.split("::", 1)[0]
        self.own.enter(path)
        before = time.monotonic()
        result = yield
        self.own.add_wall(path, time.monotonic() - before)
        if nextitem is None:
            self.own.enter("")
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the figures of a worker to the process that prints."""
        self.own.enter("")
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["timing"] = [[path, *values] for path, values in self.own.figures.items()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the figures of a worker that ends."""
        rows = getattr(node, "workeroutput", {}).get("timing", [])
        self.workers.append({path: (wall, cpu) for path, wall, cpu in rows})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        total: Figures = {}
        for figures in (self.own.figures, *self.workers):
            for path, (wall, cpu) in figures.items():
                before = total.get(path, (0.0, 0.0))
                total[path] = (before[0] + wall, before[1] + cpu)
        if not total:
            return
        terminalreporter.section(f"the {min(SHOWN, len(total))} files that take longest")
        for line in table(total):
            terminalreporter.write_line(line)
        elapsed, busy = time.monotonic() - self.begun, machine_cpu() - self.machine
        cores = os.cpu_count() or 1
        used = f"the machine used {busy:.0f} of {elapsed * cores:.0f} CPU seconds"
        terminalreporter.write_line(f"this run took {elapsed:.0f} s; {used} ({cores} cores)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--timing``."""
    parser.addoption("--timing", action="store_true", help="print wall time, CPU time and waiting by file at the end")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where ``--timing`` was given; workers inherit the option."""
    if config.getoption("--timing"):
        config.pluginmanager.register(Timing(), "kavip-timing")


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Each process of this machine with its /proc/PID/stat from the third field on."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                text = Path(entry.path, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry.name), text.rpartition(")")[2].split()
