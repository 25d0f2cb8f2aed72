"""Colours: on a terminal alone, and not with ``NO_COLOR``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.manifests import ROOT

pytestmark = pytest.mark.slow

RED = "\x1b[31m"
GROUP = """\
apiVersion: redhatcop.redhat.io/v1alpha1
kind: KeepalivedGroup
metadata: {name: edge, namespace: lb}
spec: {interface: eth0}
"""


def printed(folder: Path, *, on_terminal: bool, **variables: str) -> list[str]:
    """The lines of ``kavip status`` about a group that is not ready."""
    (folder / "group.yaml").write_text(GROUP)
    command = (sys.executable, "-m", "kavip", "status", "-f", str(folder / "group.yaml"))
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | variables
    reader, writer = os.openpty() if on_terminal else os.pipe()
    with os.fdopen(writer, "wb") as stream:
        subprocess.run(command, cwd=ROOT, env=environment, stdout=stream, check=True, timeout=120)
        text = os.read(reader, 1 << 16).decode()
    os.close(reader)
    return text.splitlines()


def test_problems_are_red_on_a_terminal(tmp_path: Path) -> None:
    """The row of the group is red, and its head is not."""
    lines = printed(tmp_path, on_terminal=True)
    assert [line for line in lines if RED in line] == [line for line in lines if "lb/edge" in line] != []


@pytest.mark.parametrize(
    ("on_terminal", "variables"), [(True, {"NO_COLOR": "1"}), (True, {"TERM": "dumb"}), (False, {})]
)
def test_elsewhere_there_are_no_colours(tmp_path: Path, on_terminal: bool, variables: dict[str, str]) -> None:
    """With ``NO_COLOR``, on a dumb terminal and in a pipe the text is plain."""
    lines = printed(tmp_path, on_terminal=on_terminal, **variables)
    assert any("lb/edge" in line for line in lines)
    assert [line for line in lines if "\x1b" in line] == []
