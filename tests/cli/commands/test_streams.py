"""Standard streams that are closed or full."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.manifests import ROOT

pytestmark = pytest.mark.slow

GROUP = """\
apiVersion: redhatcop.redhat.io/v1alpha1
kind: KeepalivedGroup
metadata: {name: edge, namespace: lb}
spec: {interface: eth0}
"""


@pytest.mark.parametrize(
    ("redirection", "expected", "message"),
    [
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
        (">/dev/full", 2, "kavip: cannot write: No space left on device\n"),
    ],
)
def test_closed_and_full_streams(tmp_path: Path, redirection: str, expected: int, message: str) -> None:
    """A closed stream changes nothing, and what cannot be written is one line and no traceback."""
    (tmp_path / "group.yaml").write_text(GROUP)
    command = f'"$1" -m kavip status -f "$2" {redirection}'
    done = subprocess.run(
        ("sh", "-c", command, "sh", sys.executable, tmp_path / "group.yaml"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (expected, message)
