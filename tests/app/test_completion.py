"""``kubectl kavip`` completes with the real kubectl."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.testbed.programs import Programs
from tests.app.conftest import ROOT

pytestmark = pytest.mark.apiserver

SCRIPTS = {"kubectl-kavip": "main", "kubectl_complete-kavip": "complete_for_kubectl"}


def test_kubectl_completes_the_plugin(programs: Programs, tmp_path: Path) -> None:
    """kubectl finds the program that completes, and offers what it prints: options with their help."""
    for name, function in SCRIPTS.items():
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\nfrom kavip.cli.main import {function}\n{function}()\n")
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = [str(programs["kubectl"]), "__complete", "kavip", "status", "--out"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    option, directive = done.stdout.splitlines()
    assert (option.split("\t")[0], directive) == ("--output", ":4")
