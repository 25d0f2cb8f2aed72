"""The child process that tests configurations has no privileges."""

import subprocess
import sys

from kavip.agent.keepalived import sandbox


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the sandbox."""
    launcher = [sys.executable, "-I", "-S", sandbox.__file__, *command]
    return subprocess.run(launcher, capture_output=True, text=True, check=False, timeout=300)


def test_a_sandboxed_program_has_no_capability_and_cannot_gain_one() -> None:
    """All sets are empty, also after exec as root and in child processes."""
    status = run("/bin/sh", "-c", "exec cat /proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"


def test_a_sandboxed_program_is_bounded() -> None:
    """Memory, processor time, file size, open files and core dumps."""
    limits = run("/bin/cat", "/proc/self/limits").stdout
    assert f"Max cpu time              {sandbox.CPU_SECONDS} " in limits
    assert f"Max address space         {sandbox.MEMORY} " in limits
    assert f"Max file size             {sandbox.FILE_SIZE} " in limits
    assert "Max core file size        0 " in limits


def test_a_missing_program_is_reported_in_one_line() -> None:
    """Without a traceback."""
    done = run("/nonexistent/keepalived")
    assert done.returncode == 1
    assert done.stderr == "sandbox: [Errno 2] No such file or directory\n"
