"""Any process can remove a run later, however the run ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from hack.testbed import process, runs
from hack.testbed.errors import TestbedError

# A run that is killed before it can clean up; it prints the pid of the process that it started.
DOOMED = """
import os, signal
from hack.testbed import process, runs
state = runs.create("doomed")
started = process.spawn(["sleep", "60"], log=state / "log")
started.record(state / "sleep.pid")
print(started.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache for this test only."""
    monkeypatch.setenv("KAVIP_CACHE", str(tmp_path / "cache"))


def test_what_a_killed_run_left_is_swept_away() -> None:
    """Its processes end and its directory is removed."""
    killed = subprocess.run([sys.executable, "-c", DOOMED], capture_output=True, text=True, check=False)
    left = process.find(int(killed.stdout))
    assert left is not None
    assert "left behind by a run that was killed; 1 processes" in runs.describe(runs.folder() / "doomed")
    assert runs.sweep() == ["doomed"]
    assert not left.alive
    assert runs.names() == []


def test_a_sweep_leaves_running_tests_and_detached_runs_alone() -> None:
    """Two runs at once do not remove each other."""
    runs.create("mine")
    runs.detach(runs.create("kept"))
    assert runs.sweep() == []
    assert runs.names() == ["kept", "mine"]


def test_a_run_that_is_being_made_is_nobodys_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep keeps a run whose owner file is still empty, because it is just being written."""
    write = Path.write_text

    def slow(path: Path, text: str) -> int:
        path.touch()
        assert runs.sweep() == []
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", slow)
    runs.create("new")
    assert runs.sweep() == []
    assert runs.names() == ["new"]


def test_stale_records_do_not_keep_a_run_from_being_removed() -> None:
    """Damaged pid files and those of ended processes are skipped; no other process receives a signal."""
    state = runs.create("old")
    ourselves = process.find(1)
    (state / "gone.pid").write_text("999999999 1\n")
    (state / "cut.pid").write_text("12")
    (state / "reused.pid").write_text("1 1\n")
    (state / "binary.pid").write_bytes(b"\xff\xfe")
    runs.remove(state)
    assert not state.exists()
    assert process.find(1) == ourselves


def test_files_of_containers_name_no_process(tmp_path: Path) -> None:
    """A run that was killed leaves the file systems of its containers, which may hold anything."""
    state = runs.create("old")
    sleeper = process.spawn(["sleep", "60"], log=tmp_path / "log")
    files = state / "n1" / "containerd" / "snapshots" / "1" / "fs"
    (files / "etc" / "keepalived.pid").mkdir(parents=True)
    sleeper.record(files / "forged.pid")
    assert "0 processes" in runs.describe(state)
    runs.remove(state)
    assert not state.exists()
    assert sleeper.alive
    process.kill([sleeper])


def test_a_name_is_taken_once() -> None:
    """The message says how to remove the other run."""
    runs.create("default")
    with pytest.raises(TestbedError, match="`down --name default` removes it"):
        runs.create("default")


def test_a_temporary_run_ends_with_its_block() -> None:
    """Also when the block fails."""
    with pytest.raises(ValueError, match="no"), runs.temporary() as state:
        started = process.spawn(["sleep", "60"], log=state / "log")
        started.record(state / "deep.pid")
        raise ValueError("no")
    assert not started.alive
    assert runs.names() == []


@pytest.mark.netns
def test_what_a_killed_run_had_in_memory_is_swept_away() -> None:
    """The mount is removed with its processes, and after a normal end, too."""
    begin = "manager = runs.in_memory()\nstate = manager.__enter__()"
    command = [sys.executable, "-c", DOOMED.replace('state = runs.create("doomed")', begin)]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    (left,) = runs.folder().iterdir()
    assert runs.sweep() == [left.name]
    assert process.find(int(killed.stdout)) is None
    with runs.in_memory():
        assert len(runs.names()) == 1
    assert runs.names() == []


def test_the_logs_of_a_failure_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied from this process' runs, below a name that says which test failed."""
    monkeypatch.setenv("KAVIP_CACHE", str(tmp_path))
    assert runs.keep_logs("tests/a.py::test_x") is None
    state = runs.create()
    (state / "n1").mkdir()
    (state / "n1" / "kubelet.log").write_text("why")
    kept = runs.keep_logs("tests/a.py::test_x[1]", "E assert 1 == 2")
    assert kept is not None
    assert kept.name.endswith("-tests-a-py-test_x-1-")
    assert (kept / state.name / "n1" / "kubelet.log").read_text() == "why"
    assert (kept / "report.txt").read_text() == "E assert 1 == 2"
    runs.remove(state)
    assert kept.exists()
