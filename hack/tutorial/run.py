"""Runs the commands of a page on a cluster, as a reader does who has set PATH to what ``make cluster`` prints."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hack.testbed.cluster import Cluster
from hack.tutorial.alike import is_alike
from hack.tutorial.pages import Shown

PATIENCE: Final = 240.0  # seconds until the output is that of the page; on an idle machine one or two are enough
_LOOKS: Final = re.compile(r"kubectl (?:get|kavip (?:status|explain|plan|doctor)) |client curl ")
"""Commands that change nothing: a reader repeats them until the cluster is as the page says."""


class Printed(NamedTuple):
    """What a command has printed, and its exit status."""

    output: str
    status: int


@dataclass(frozen=True, slots=True)
class Terminal:
    """
    A shell on the machine of *cluster* in *folder*, which is like a checkout.

    *renamed*: words of commands that are others here, such as the tag of the image.
    """

    cluster: Cluster
    folder: Path
    renamed: Mapping[str, str]

    def run(self, command: str) -> Printed:
        """Run *command*."""
        for word, other in self.renamed.items():
            command = command.replace(word, other)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": f"{self.cluster.state / 'bin'}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        return Printed(done.stdout, done.returncode)

    def follow(self, commands: list[Shown], *, patience: float = PATIENCE) -> Iterator[tuple[Shown, Printed]]:
        """Run *commands* one after the other; what only looks is repeated until it prints what the page shows."""
        for each in commands:
            began = time.monotonic()
            printed = self.run(each.command)
            while (
                _LOOKS.match(f"{each.command} ")
                and not is_alike(each.output, printed.output)
                and time.monotonic() - began < patience
            ):
                time.sleep(0.2)
                printed = self.run(each.command)
            yield each, printed
