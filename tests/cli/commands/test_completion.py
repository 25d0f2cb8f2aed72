"""Completion: in a real bash, as kubectl asks for it, and the texts for other shells."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.manifests import ROOT

pytestmark = pytest.mark.slow
KAVIP = (sys.executable, "-m", "kavip")
KUBECTL = "from kavip.cli.main import complete_for_kubectl; complete_for_kubectl()"


def completed(*words: str, folder: Path) -> list[str]:
    """What a bash that has read the completion offers for the last of *words*."""
    program = folder / "kavip"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(KAVIP)} "$@"\n')
    program.chmod(0o755)
    script = (
        f"source <(kavip completion bash); COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
        'complete -p kavip >/dev/null && _kavip_completion kavip; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
    return done.stdout.split()


def kubectl(*words: str) -> list[str]:
    """The lines that kubectl reads."""
    command = (sys.executable, "-c", KUBECTL, *words)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """The functions that the command prints work in bash."""
    assert completed("kavip", "dra", folder=tmp_path) == ["drain"]
    assert completed("kavip", "drain", "--wa", folder=tmp_path) == ["--wait"]
    assert completed("kavip", "status", "-o", "j", folder=tmp_path) == ["json"]
    assert completed("kavip", "plan", "-o", "y", folder=tmp_path) == ["yaml"]


@pytest.mark.parametrize(("shell", "line"), [("zsh", "#compdef kavip"), ("fish", "function _kavip_completion;")])
def test_other_shells_have_their_text(shell: str, line: str) -> None:
    """The text for zsh and fish is of kavip."""
    done = subprocess.run([*KAVIP, "completion", shell], cwd=ROOT, capture_output=True, text=True, check=True)
    assert line in done.stdout
    assert "_KAVIP_COMPLETE" in done.stdout


def test_kubectl_gets_lines_and_a_directive() -> None:
    """Each line has a help text; the last one says whether kubectl offers files."""
    assert kubectl("und") == ["undrain\tLet NODE hold VIPs again: removes the...", ":4"]
    assert kubectl("drain", "--wai")[0].startswith("--wait\t")
    assert kubectl("check", "-f", "") == [":0"]
    assert {line.partition("\t")[0] for line in kubectl("completion", "")} == {"bash", "zsh", "fish", ":4"}
