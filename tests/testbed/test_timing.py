"""The table of what each test file costs."""

import os
import subprocess
import sys
import time

import pytest

from hack import timing


def test_the_largest_files_stand_first_with_their_waiting() -> None:
    """Each row has wall time, CPU time and the difference; the last row has the sums of all files."""
    figures = {"tests/a.py": (10.0, 4.0), "tests/b.py": (20.0, 1.0), "tests/c.py": (1.0, 2.0)}
    rows = [line.split() for line in timing.table(figures, shown=2)]
    assert rows[1:] == [
        ["20.0", "1.0", "19.0", "tests/b.py"],
        ["10.0", "4.0", "6.0", "tests/a.py"],
        ["31.0", "7.0", "25.0", "all", "3", "files"],
    ]


def test_the_cpu_time_of_children_counts() -> None:
    """Running children and ended ones."""
    before = timing.family_cpu(os.getpid())
    burn = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True); input()"]
    with subprocess.Popen(burn, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        child.stdout.readline()
        while_it_runs = timing.family_cpu(os.getpid()) - before
        child.communicate("\n")
    assert while_it_runs >= 0.25
    assert timing.family_cpu(os.getpid()) - before >= 0.25


def test_each_file_has_its_own_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time belongs to the file that runs when it is used."""
    used = iter([1.0, 3.0, 10.0])
    monkeypatch.setattr(timing, "family_cpu", lambda pid: next(used))
    recorder = timing.Recorder()
    for path in ("a.py", "a.py", "b.py"):
        recorder.enter(path)
        recorder.add_wall(path, 2.0)
    recorder.enter("")
    assert recorder.figures == {"a.py": (4.0, 2.0), "b.py": (2.0, 7.0)}


def test_the_machine_is_measured_too() -> None:
    """Its CPU time only grows."""
    before = timing.machine_cpu()
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    assert timing.machine_cpu() >= before > 0
