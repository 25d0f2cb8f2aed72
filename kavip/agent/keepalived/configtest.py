"""
Ask keepalived itself whether it would run a configuration: ``keepalived --config-test`` in a child that may do nothing.

Exit status 0 is not enough: it also comes back for files that were never read, with a remark on stderr. So a text
passes only with status 0 and an empty stderr, and only after the same program has refused a text that is known to be
wrong. What keepalived prints quotes the file, so nothing of it goes into a message but the numbers of lines and the
names of instances.
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

OLDEST, NEWEST = (2, 2, 7), (2, 3)
"""Versions of keepalived that kavip is tried with; of the newest line all."""
TIMEOUT: Final = 5.0
_JSON_SIGNAL: Final = 36  # SIGRTMIN+2 with glibc; musl counts from 35, which is why the program is asked
_OUTPUT: Final = 64 << 10
_VERSION: Final = re.compile(rb"Keepalived v(\d+(?:\.\d+)*)")
_LINE: Final = re.compile(rb"^\([^()]*\bLine (\d+)\)", re.MULTILINE)
_NAME: Final = re.compile(rb"^\(([A-Za-z0-9_.:/-]+)\)[ :]", re.MULTILINE)  # no word of a user holds a bracket
_WRONG: Final = "global_defs {\n    kavip_no_such_keyword\n}\n"
_WRONG_LINE: Final = 2
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True)
class Program:
    """What the keepalived on this node says about itself."""

    version: str
    json_signal: int


@dataclass(frozen=True, slots=True)
class Finding:
    """
    What is wrong with a text: *how* it was refused, the *lines* and the *names* of instances that were told.

    Where it is not *about* the text, but the attempt failed, another text would not do better.
    """

    how: str
    lines: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    about: bool = True

    @property
    def reason(self) -> str:
        """One line for people."""
        return f"{self.how}, line {self.lines[0]}" if self.lines else self.how


def stranger(version: str) -> str:
    """Say that keepalived is not of a *version* that kavip is tried with; "" where it is."""
    numbers = tuple(int(each) for each in version.split(".")) if version else ()
    if not numbers:
        return "keepalived does not say its version"
    is_known = numbers >= OLDEST and numbers[: len(NEWEST)] <= NEWEST
    return "" if is_known else f"keepalived is {version}: kavip is tried with {_dotted(OLDEST)} to {_dotted(NEWEST)}"


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


class Trial:
    """Checks configurations with one keepalived program."""

    def __init__(self, keepalived: str, run_directory: RunDirectory, *, node: str) -> None:
        self._keepalived, self._files, self._node = keepalived, run_directory, node
        self._trusted = False

    def program(self) -> Program:
        """Ask for version and signal; of a program that does not answer the version is empty."""
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

    def judge(self, text: str) -> Finding | None:
        """Why keepalived would not run *text*; None where it would."""
        if not self._trusted:
            wrong, right = self._finding(_WRONG), self._finding(empty(self._node).text)
            for each in (wrong, right):
                if each and not each.about:
                    return each
            if right or not wrong or wrong.lines != (_WRONG_LINE,):
                how = f"{self._keepalived} cannot check configurations: it does not tell a right one from a wrong one"
                return Finding(how, about=False)
            self._trusted = True
        return self._finding(text)

    def _finding(self, text: str) -> Finding | None:
        try:
            path = self._files.write_candidate(text)
        except OSError as error:
            return Finding(f"the run directory cannot be written: {os.strerror(error.errno or 0)}", about=False)
        try:
            if not _readable(path):
                return Finding("the run directory does not hold the file that was to be checked", about=False)
            code, _, errors = self._run("--config-test", f"--config-id={self._node}", f"--use-file={path}")
        except subprocess.TimeoutExpired:
            return Finding(f"keepalived --config-test did not end in {TIMEOUT:.0f} s", about=False)
        except OSError as error:
            return Finding(f"keepalived --config-test cannot be run: {os.strerror(error.errno or 0)}", about=False)
        finally:
            self._files.drop_candidate()
        return _verdict(code, errors)

    def _run(self, *arguments: str) -> tuple[int, bytes, bytes]:
        """Run keepalived confined; its exit status and the beginning of its output."""
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
                os.killpg(
                    child.pid, signal.SIGKILL
                )  # its whole session; not waited for yet, so the number is still its own
                raise
        return child.returncode, output[:_OUTPUT], errors[:_OUTPUT]


def _verdict(code: int, errors: bytes) -> Finding | None:
    if code == 0 and not errors.strip():
        return None
    how = (
        f"signal {-code}" if code < 0 else f"signal {code - _SIGNALLED}" if code > _SIGNALLED else f"exit status {code}"
    )
    lines = dict.fromkeys(int(each) for each in _LINE.findall(errors))
    names = dict.fromkeys(each.decode() for each in _NAME.findall(errors))
    return Finding(f"keepalived --config-test: {how}", tuple(lines), tuple(names))


def _readable(path: Path) -> bool:
    """Whether keepalived reads this file, rather than skip it with a remark."""
    status = path.stat()
    return stat.S_ISREG(status.st_mode) and not status.st_mode & 0o111 and status.st_size > 0
