"""Where a program runs: on this machine as it is, or inside a `machine.Machine`. Both are a prefix to its command."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hack.testbed.errors import TestbedError
from hack.testbed.process import Process, spawn

Result = subprocess.CompletedProcess[str]


class Place(Protocol):
    """What a control plane needs of the place that it runs in."""

    def spawn(self, *command: str, log: Path) -> Process:
        """Start a long-running program there."""

    def command(self, *command: str) -> list[str]:
        """The command line that, run on this machine, runs the command in the network of that place."""


class Here:
    """This machine as it is."""

    def spawn(self, *command: str, log: Path) -> Process:
        """Start a long-running program."""
        return spawn(command, log=log)

    def command(self, *command: str) -> list[str]:
        """The command itself."""
        return list(command)


def run(
    command: Sequence[str],
    *,
    input: str | None = None,  # as subprocess calls it
    check: bool = True,
    timeout: float = 120,
    env: Mapping[str, str] | None = None,
) -> Result:
    """Run a program to its end and return what it said; by default a failure raises with its standard error."""
    done = subprocess.run(
        command,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        check=False,
    )
    if check and done.returncode:
        said = (done.stderr or done.stdout)[-4000:]
        raise TestbedError(f"`{shlex.join(command)}` failed with status {done.returncode}:\n{said}")
    return done
