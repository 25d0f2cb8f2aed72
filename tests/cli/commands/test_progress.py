"""The line that says how far a command is: on a terminal alone."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.support.manifests import ROOT

pytestmark = pytest.mark.slow
PROGRAM = """
from kavip.cli.commands.progress import Progress
with Progress() as progress:
    progress.show("1 of 2 converted; next: shop/api")
    progress.echo("shop/api: converted")
    progress.show("2 of 2 converted" + " and more" * 40)
"""


def printed(*, on_terminal: bool, **variables: str) -> str:
    """What the program prints on standard error; its standard output is the same pipe or terminal."""
    reader, writer = os.openpty() if on_terminal else os.pipe()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60", **variables}
    with os.fdopen(writer, "wb") as stream:
        command = (sys.executable, "-c", PROGRAM)
        subprocess.run(command, cwd=ROOT, env=environment, stdout=stream, stderr=stream, check=True, timeout=120)
    parts = []
    with os.fdopen(reader, "rb", buffering=0) as stream, suppress(OSError):  # EIO: the terminal has no other end now
        while part := stream.read(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def test_a_terminal_shows_one_line_that_is_replaced() -> None:
    """Lines of the command stand above it, it never wraps, and nothing of it is left."""
    lines = printed(on_terminal=True).split("\r\x1b[K")
    assert lines[1] == "1 of 2 converted; next: shop/api"
    assert lines[2].splitlines() == ["shop/api: converted"]
    assert lines[3] == lines[1]
    assert lines[4].startswith("2 of 2 converted and more")
    assert len(lines[4]) == 59
    assert lines[5:] == [""]


@pytest.mark.parametrize(("on_terminal", "variables"), [(False, {}), (True, {"TERM": "dumb"})])
def test_elsewhere_only_lines_are_printed(on_terminal: bool, variables: dict[str, str]) -> None:
    """In a pipe and on a dumb terminal."""
    assert printed(on_terminal=on_terminal, **variables).splitlines() == ["shop/api: converted"]
