"""Processes are named for ever by pid and start time."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hack.testbed import process
from hack.testbed.errors import TestbedError
from hack.testbed.process import Process


@pytest.fixture
def sleeper(tmp_path: Path) -> Process:
    """A process that would run for a minute."""
    return process.spawn(["sleep", "60"], log=tmp_path / "log")


def test_a_pid_that_now_belongs_to_another_process_is_left_alone(sleeper: Process) -> None:
    """A record of an earlier process with the same pid is dead, and a signal to it reaches no process."""
    before = replace(sleeper, start=sleeper.start - 1)
    assert not before.alive
    assert not before.signal(signal.SIGKILL)
    assert before.wait(0)
    process.kill([before])
    assert sleeper.alive
    process.kill([sleeper])


def test_a_record_leads_to_the_process_while_it_runs(sleeper: Process, tmp_path: Path) -> None:
    """What was recorded is found until it ends."""
    file = tmp_path / "sleep.pid"
    sleeper.record(file)
    assert process.recorded(file) == sleeper
    process.kill([sleeper])
    assert process.recorded(file) is None


@pytest.mark.parametrize("content", ["", "12", "one two", "1 2 3", "999999999 1"])
def test_a_stale_or_damaged_record_names_no_process(content: str, tmp_path: Path) -> None:
    """A damaged record names no process."""
    file = tmp_path / "x.pid"
    file.write_text(content)
    assert process.recorded(file) is None
    assert process.recorded(tmp_path / "absent.pid") is None


def test_stop_kills_what_ignores_it(tmp_path: Path) -> None:
    """A process that ignores SIGTERM is killed after the grace."""
    ready = tmp_path / "ready"
    stubborn = process.spawn(["sh", "-c", f"trap '' TERM; touch {ready}; sleep 60 & wait; wait"], log=tmp_path / "log")
    process.wait_for("the trap is set", ready.exists, timeout=60, interval=0.005)
    family = [one for pid in process.children([stubborn.pid]) if (one := process.find(pid))]
    process.stop([stubborn], grace=0.05)
    assert not stubborn.alive
    process.kill(family)


def test_a_process_that_has_exited_is_dead_before_anybody_waits_for_it(tmp_path: Path) -> None:
    """A zombie does not count as alive."""
    pid = os.posix_spawnp("true", ["true"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has exited, and its status is not collected
    assert process.find(pid) is None
    os.waitpid(pid, 0)


def test_children_are_found_to_any_depth(tmp_path: Path) -> None:
    """Grandchildren belong to the family."""
    top = process.spawn(["sh", "-c", "sh -c 'sleep 60; true'; true"], log=tmp_path / "log")
    process.wait_for("three generations", lambda: len(process.children([top.pid])) == 3, timeout=60, interval=0.005)
    process.kill([one for pid in process.children([top.pid]) if (one := process.find(pid))])


def test_a_timeout_names_the_condition() -> None:
    """The message names the condition."""
    with pytest.raises(TestbedError, match="rain: not within 0 s"):
        process.wait_for("rain", lambda: False, timeout=0)
