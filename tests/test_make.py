"""The commands that a newcomer types first."""

import os
import re
import subprocess

import yaml

from tests.support.manifests import ROOT

MAP = {"demo", "test", "test-unit", "lint", "bench", "cluster", "cluster-down", "image", "clean"}


def call(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program from the root of the repository."""
    variables = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False)


def test_help_is_the_map() -> None:
    """`make` without a target lists every target with its description."""
    listed = set(re.findall(r"^  make ([a-z0-9-]+) +\S", call("make").stdout, re.MULTILINE))
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)).split())
    assert listed == phony
    assert listed > MAP


def test_ci_runs_what_everybody_runs() -> None:
    """`.ci/run` is `make test`."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test"


def test_the_forge_runs_targets_that_exist() -> None:
    """The workflow runs `make` only, with targets of the Makefile, and has the programs of a release from there."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"\bmake ([a-z-]+)", "\n".join(commands)))
    listed = set(re.findall(r"^  make ([a-z0-9-]+) +\S", call("make").stdout, re.MULTILINE))
    assert {"test", "test-release", "release", "publish"} == targets <= listed


def test_an_old_python_is_named() -> None:
    """Without a Python that is new enough, one line says which versions work; the exit status is 2."""
    done = call("hack/venv", "true", PYTHON="/bin/false")
    assert done.returncode == 2
    assert done.stderr.startswith("kavip: no Python 3.11 or later found (tried /bin/false); install one")
    assert len(done.stderr.splitlines()) == 1
