"""A program that watches from the client of a cluster, while a test does something."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hack.testbed.cluster import Cluster


@contextmanager
def watching(cluster: Cluster, module: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """
    Run *module* on the client during the block; its JSON output is in the dict after it.

    The program prints "ready" when it watches, and ends when its standard input closes.
    """
    command = cluster.client.command(sys.executable, "-m", module, *arguments)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    found: dict[str, Any] = {}
    try:
        assert process.stdout.readline() == "ready\n"
        yield found
    finally:
        output, _ = process.communicate("", timeout=120)
        found.update(json.loads(output))
