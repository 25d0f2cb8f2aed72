"""
Tests a configuration with ``keepalived --config-test``, in a child process without privileges.

Exit status 0 is not enough: keepalived also returns it for a file that it has not read, with a remark on stderr. So a
text passes only with status 0 and an empty stderr, and only after the same program has refused a text that is known to
be wrong. keepalived's output quotes the file, so messages repeat only line numbers and names of instances.
"""

import os
import re
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kavip.agent.config.localize import empty
from kavip.agent.keepalived import sandbox
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.api.agent import NodeProblem, ProblemCode

OLDEST, NEWEST = (2, 2, 7), (2, 3)
"""Versions of keepalived that kavip is tested with; NEWEST stands for all of its releases."""
TIMEOUT: Final = 5.0
_JSON_SIGNAL: Final = 36  # SIGRTMIN+2 of glibc; musl counts from 35, so keepalived is asked first
_OUTPUT: Final = 64 << 10
_VERSION: Final = re.compile(rb"Keepalived v(\d+(?:\.\d+)*)")
_LINE: Final = re.compile(rb"^\([^()]*\bLine (\d+)\)", re.MULTILINE)
_NAME: Final = re.compile(rb"^\(([A-Za-z0-9_.:/-]+)\)[ :]", re.MULTILINE)  # no word of a user holds a bracket
_WRONG: Final = "global_defs {\n    kavip_no_such_keyword\n}\n"
_WRONG_LINE: Final = 2
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True)
class Program:
    """What keepalived reports about itself: its version, and the signal that asks for a dump."""

    version: str
    json_signal: int


@dataclass(frozen=True, slots=True)
class FailedTest:
    """
    Why a test did not pass, and the *lines* and the *names* of instances that keepalived reported.

    With any other code than ``RefusedByKeepalived`` the test itself failed, and another text would fail as well.
    """

    code: ProblemCode
    message: str
    lines: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def is_refusal(self) -> bool:
        """Whether keepalived refused the text."""
        return self.code is ProblemCode.REFUSED_BY_KEEPALIVED

    @property
    def problem(self) -> NodeProblem:
        """The failure as ``/state`` reports it, with the first line number."""
        return NodeProblem(self.code, f"{self.message}, line {self.lines[0]}" if self.lines else self.message)


def version_problem(version: str) -> NodeProblem | None:
    """The warning that kavip is not tested with this *version* of keepalived; None if it is."""
    numbers = tuple(int(each) for each in version.split(".")) if version else ()
    if not numbers:
        return NodeProblem(ProblemCode.KEEPALIVED_UNTESTED, "keepalived does not report its version")
    if numbers >= OLDEST and numbers[: len(NEWEST)] <= NEWEST:
        return None
    message = f"keepalived is {version}: kavip is tested with {_dotted(OLDEST)} to {_dotted(NEWEST)}"
    return NodeProblem(ProblemCode.KEEPALIVED_UNTESTED, message)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


class ConfigTest:
    """Tests configurations with one keepalived program."""

    def __init__(self, keepalived: str, run_directory: RunDirectory, *, node: str) -> None:
        self._keepalived, self._files, self._node = keepalived, run_directory, node
        self._is_trusted = False

    def program(self) -> Program:
        """Ask keepalived for its version and dump signal; the version is "" if it does not answer."""
        try:
            _, _, version = self._run("--version")
            code, output, _ = self._run("--signum=JSON")
        except (OSError, subprocess.TimeoutExpired):
            return Program("", _JSON_SIGNAL)
        match = _VERSION.search(version)
        answered = output.strip()
        return Program(
            version=match[1].decode() if match else "",
            json_signal=int(answered) if code == 0 and answered.isdigit() else _JSON_SIGNAL,
        )

    def check(self, text: str) -> FailedTest | None:
        """Test *text*; None if keepalived would run it."""
        if not self._is_trusted:
            wrong, right = self._run_test(_WRONG), self._run_test(empty(self._node).text)
            for each in (wrong, right):
                if each and not each.is_refusal:
                    return each
            if right or not wrong or wrong.lines != (_WRONG_LINE,):
                return _not_run(f"{self._keepalived} does not distinguish a right configuration from a wrong one")
            self._is_trusted = True
        return self._run_test(text)

    def _run_test(self, text: str) -> FailedTest | None:
        try:
            path = self._files.write_candidate(text)
        except OSError as error:
            message = f"the run directory cannot be written: {os.strerror(error.errno or 0)}"
            return FailedTest(ProblemCode.RUN_DIRECTORY_UNWRITABLE, message)
        try:
            if not _is_readable(path):
                return _not_run("the file to be tested is not in the run directory")
            code, _, errors = self._run("--config-test", f"--config-id={self._node}", f"--use-file={path}")
        except subprocess.TimeoutExpired:
            return _not_run(f"keepalived --config-test did not end within {TIMEOUT:.0f} s")
        except OSError as error:
            return _not_run(f"keepalived --config-test cannot run: {os.strerror(error.errno or 0)}")
        finally:
            self._files.drop_candidate()
        return _result(code, errors)

    def _run(self, *arguments: str) -> tuple[int, bytes, bytes]:
        """Run keepalived in the sandbox; its exit status and the beginning of its output."""
        command = [sys.executable, "-I", "-S", str(sandbox.__file__), self._keepalived, *arguments]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._files.path,
            env={"LC_ALL": "C", "TMPDIR": str(self._files.path)},
            start_new_session=True,
        ) as child:
            try:
                output, errors = child.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)  # its whole session; the pid is its own until wait() is called
                raise
        return child.returncode, output[:_OUTPUT], errors[:_OUTPUT]


def _not_run(message: str) -> FailedTest:
    return FailedTest(ProblemCode.CONFIG_TEST_FAILED, message)


def _result(code: int, errors: bytes) -> FailedTest | None:
    if code == 0 and not errors.strip():
        return None
    how = (
        f"signal {-code}" if code < 0 else f"signal {code - _SIGNALLED}" if code > _SIGNALLED else f"exit status {code}"
    )
    lines = dict.fromkeys(int(each) for each in _LINE.findall(errors))
    names = dict.fromkeys(each.decode() for each in _NAME.findall(errors))
    message = f"keepalived --config-test: {how}"
    return FailedTest(ProblemCode.REFUSED_BY_KEEPALIVED, message, tuple(lines), tuple(names))


def _is_readable(path: Path) -> bool:
    """Whether keepalived reads this file; it skips others with a remark."""
    status = path.stat()
    return stat.S_ISREG(status.st_mode) and not status.st_mode & 0o111 and status.st_size > 0
