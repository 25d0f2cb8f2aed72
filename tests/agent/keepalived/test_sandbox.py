"""The child that checks configurations may do nothing."""

import subprocess
import sys

from kavip.agent.keepalived import sandbox


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a confined command."""
    launcher = [sys.executable, "-I", "-S", sandbox.__file__, *command]
    return subprocess.run(launcher, capture_output=True, text=True, check=False, timeout=60)


def test_a_confined_program_has_no_capability_and_cannot_gain_one() -> None:
    """All sets are empty, also after exec as root, and the sets of its children stay so."""
    status = run("/bin/sh", "-c", "exec cat /proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"


def test_a_confined_program_is_bounded() -> None:
    """Memory, processor time, file size, open files and core dumps have limits."""
    limits = run("/bin/cat", "/proc/self/limits").stdout
    assert f"Max cpu time              {sandbox.CPU_SECONDS} " in limits
    assert f"Max address space         {sandbox.MEMORY} " in limits
    assert f"Max file size             {sandbox.FILE_SIZE} " in limits
    assert "Max core file size        0 " in limits


def test_a_program_that_is_not_there_is_one_line() -> None:
    """Not a traceback."""
    done = run("/nonexistent/keepalived")
    assert done.returncode == 1
    assert done.stderr == "confine: [Errno 2] No such file or directory\n"
