"""Finding and signalling the running daemon: /proc decides, not the pid file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kavip.agent.keepalived import process as daemons
from tests.agent.mounts import python_environment

_SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
# An event loop reads the signals: a plain handler of Python that is called before time.sleep() runs only after it.
_TAKER = """
import asyncio, signal
loop = asyncio.new_event_loop()
loop.add_signal_handler(signal.SIGHUP, lambda: print("HUP", flush=True))
print("up", flush=True)
loop.run_forever()
"""


@contextmanager
def program(*arguments: str, name: str = "keepalived", code: str = _SLEEPER) -> Iterator[subprocess.Popen[str]]:
    """A process whose command line begins with *name*, after it has started."""
    command = [name, "-c", code, *arguments]
    with subprocess.Popen(
        command, executable=sys.executable, env=python_environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


def test_a_daemon_is_found_by_its_pid_file(tmp_path: Path) -> None:
    """In each form in which a command line can name the configuration."""
    config = tmp_path / "keepalived.conf"
    for arguments in (("--use-file", str(config)), (f"--use-file={config}",), ("-f", str(config)), (f"-f{config}",)):
        with program(*arguments) as process:
            (tmp_path / daemons.PID_FILE).write_text(f"{process.pid}\n")
            found = daemons.find(tmp_path, config=config)
            assert found is not None and found.pid == process.pid and found.alive()
        assert not found.alive()
        assert not found.signal(signal.SIGHUP)
        assert daemons.find(tmp_path, config=config) is None


def test_a_daemon_is_found_without_a_pid_file(tmp_path: Path) -> None:
    """A running daemon that is taken for dead would lose its VIPs."""
    config = tmp_path / "keepalived.conf"
    with program("-f", str(config)) as process:
        for named in (None, "", "x", "1", str(os.getpid())):
            if named is not None:
                (tmp_path / daemons.PID_FILE).write_text(named)
            found = daemons.find(tmp_path, config=config)
            assert found is not None and found.pid == process.pid


def test_other_processes_are_not_the_daemon(tmp_path: Path) -> None:
    """Another program with the file, keepalived with another file, a later process with the same pid."""
    config = tmp_path / "keepalived.conf"
    with program("-f", str(config), name="vim") as editor, program("-f", str(tmp_path / "other.conf")):
        (tmp_path / daemons.PID_FILE).write_text(str(editor.pid))
        assert daemons.find(tmp_path, config=config) is None


def test_a_stale_pid_file_is_removed_if_its_pid_is_in_use(tmp_path: Path) -> None:
    """keepalived ignores the pid file of a process that is gone, and refuses to start beside one that runs."""
    with program() as process:
        pass
    for path in (tmp_path / daemons.PID_FILE, tmp_path / daemons.VRRP_PID_FILE):
        path.write_text(str(os.getpid()))
        daemons.remove_stale_pid_files(tmp_path, config=tmp_path / "keepalived.conf")
        assert not path.exists()
        path.write_text(str(process.pid))
        daemons.remove_stale_pid_files(tmp_path, config=tmp_path / "keepalived.conf")
        assert path.exists()


def test_a_child_that_outlives_its_daemon_is_not_the_daemon(tmp_path: Path) -> None:
    """Processes of a killed daemon end one after the other; the last one is no other daemon."""
    config = tmp_path / "keepalived.conf"
    with program("-f", str(config)) as parent, program("-f", str(config)) as child:
        (tmp_path / daemons.PID_FILE).write_text(str(parent.pid))
        (tmp_path / daemons.VRRP_PID_FILE).write_text(str(child.pid))
        parent.kill()
        parent.wait()
        for _ in range(2):
            assert daemons.find(tmp_path, config=config) is None
            daemons.remove_stale_pid_files(tmp_path, config=config)
        child.send_signal(signal.SIGSTOP)
        assert daemons.find(tmp_path, config=config) is None


def test_a_signal_is_sent_only_to_a_process_that_handles_it(tmp_path: Path) -> None:
    """SIGHUP would end a daemon that is still starting."""
    config = tmp_path / "keepalived.conf"
    with program("-f", str(config), code=_TAKER) as process:
        found = daemons.find(tmp_path, config=config)
        assert found is not None
        assert found.handles(signal.SIGHUP)
        assert not found.handles(signal.SIGHUP, 36)
        deadline = time.monotonic() + 60
        assert daemons.take_dump(found, tmp_path, number=36, deadline=deadline) is None
        assert found.signal(signal.SIGHUP)
        assert process.stdout is not None and process.stdout.readline() == "HUP\n"


def test_a_daemon_that_does_not_answer_costs_no_more_than_the_budget(tmp_path: Path) -> None:
    """An old file is no answer."""
    config = tmp_path / "keepalived.conf"
    (tmp_path / daemons.JSON_FILE).write_text("[]")
    with program("-f", str(config), code=_TAKER):
        found = daemons.find(tmp_path, config=config)
        assert found is not None
        assert daemons.take_dump(found, tmp_path, number=signal.SIGHUP, deadline=time.monotonic() + 0.1) is None
