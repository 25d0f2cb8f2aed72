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

_BUILD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BUILD_INHERITS = (
    "HOME",  # buildah asks for it; below it lies ~/.wgetrc, too
    "TMPDIR",
    *("http_proxy", "https_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)


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
    inherit: bool = True,
    cwd: Path | None = None,
) -> Result:
    """
    Run a program to its end and return its output; by default a failure raises with its standard error.

    *env* is added to the caller's environment, or is all of it where the program is to *inherit* nothing.
    """
    done = subprocess.run(
        command,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**(os.environ if inherit else {}), **(env or {})},
        cwd=cwd,
        check=False,
    )
    if check and done.returncode:
        output = (done.stderr or done.stdout)[-4000:]
        raise TestbedError(f"`{shlex.join(command)}` failed with status {done.returncode}:\n{output}")
    return done


def build_environment() -> dict[str, str]:
    """
    What a build in a chroot or a container sees of the environment: a list, not what the caller happens to have.

    Programs in there obey variables that were meant for programs out here: PYTHONPYCACHEPREFIX of hack/venv once made
    debootstrap's Python write this machine's path into the base image.
    """
    inherited = {name: os.environ[name] for name in _BUILD_INHERITS if name in os.environ}
    return {**inherited, "PATH": _BUILD_PATH, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
