"""
Ask keepalived itself whether it would run a configuration: ``keepalived --config-test`` in a child that may do nothing.

Exit status 0 is not enough: it also comes back for files that were never read, with a remark on stderr. So a text
passes only with status 0 and an empty stderr, and only after the same program has refused a text that is known to be
wrong. What keepalived prints quotes the file, so nothing of it goes into a message but the number of a line.
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

from kavip.agent import confine, grammar
from kavip.agent.files import RunDirectory
from kavip.agent.grammar import Configuration
from kavip.agent.localize import Localized, empty

TIMEOUT: Final = 5.0
_JSON_SIGNAL: Final = 36  # SIGRTMIN+2 with glibc; musl counts from 35, which is why the program is asked
_OUTPUT: Final = 64 << 10
_VERSION: Final = re.compile(rb"Keepalived v(\d+(?:\.\d+)*)")
_LINE: Final = re.compile(rb"Line (\d+)\)")
_WRONG: Final = "global_defs {\n    kavip_no_such_keyword\n}\n"
_WRONG_LINE: Final = 2
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True)
class Program:
    """What the keepalived on this node says about itself."""

    version: str
    json_signal: int


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

    def fault(self, localized: Localized) -> str:
        """Why keepalived would not run *localized*, or ""."""
        self._trusted = self._trusted or self._tells_right_from_wrong()
        if not self._trusted:
            return f"{self._keepalived} cannot check configurations: it does not tell a right one from a wrong one"
        return self._refusal(localized)

    def _tells_right_from_wrong(self) -> bool:
        refusal = self._refusal(Localized(_WRONG, "", Configuration()))
        return refusal.endswith(f"line {_WRONG_LINE}") and not self._refusal(empty(self._node))

    def _refusal(self, localized: Localized) -> str:
        try:
            path = self._files.write_candidate(localized)
            if not _readable(path):
                return "the run directory does not hold the file that was to be checked"
            code, _, errors = self._run("--config-test", f"--config-id={self._node}", f"--use-file={path}")
        except subprocess.TimeoutExpired:
            return f"keepalived --config-test did not end in {TIMEOUT:.0f} s"
        except OSError as error:
            return f"keepalived --config-test cannot be run: {os.strerror(error.errno or 0)}"
        finally:
            self._files.drop_candidate()
        return _verdict(code, errors, localized.text)

    def _run(self, *arguments: str) -> tuple[int, bytes, bytes]:
        """Run keepalived confined; its exit status and the beginning of its output."""
        command = [sys.executable, "-I", "-S", str(confine.__file__), self._keepalived, *arguments]
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


def _verdict(code: int, errors: bytes, text: str) -> str:
    if code == 0 and not errors.strip():
        return ""
    how = (
        f"signal {-code}" if code < 0 else f"signal {code - _SIGNALLED}" if code > _SIGNALLED else f"exit status {code}"
    )
    match = _LINE.search(errors)
    if match is None:
        return f"keepalived --config-test: {how}"
    number = int(match[1])
    instance = grammar.instance_at(text, number)
    place = f"line {number}" + (f", instance {instance}" if instance else "")
    return f"keepalived --config-test: {how}, {place}"


def _readable(path: Path) -> bool:
    """Whether keepalived reads this file, rather than skip it with a remark."""
    status = path.stat()
    return stat.S_ISREG(status.st_mode) and not status.st_mode & 0o111 and status.st_size > 0
