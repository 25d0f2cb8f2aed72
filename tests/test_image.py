"""The image, built from the Dockerfile as a user builds it, but on a base image that the test builds."""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kavip
from hack.testbed import images
from hack.testbed.place import Result, run
from tests.support.manifests import ROOT

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]  # the first run builds it


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The unpacked image; its root file system is in ``root``."""
    requirements = ROOT / "requirements" / "run.txt"
    # the name that the demo uses, so it is built once
    archive = images.image("localhost/kavip:demo", dockerfile=ROOT / "Dockerfile", requirements=requirements)
    folder = tmp_path_factory.mktemp("image")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    root = folder / "root"
    root.mkdir()
    for layer in json.loads((folder / "manifest.json").read_text())[0]["Layers"]:
        run(["tar", "--extract", f"--file={folder / layer}", f"--directory={root}"])
    yield folder
    shutil.rmtree(folder)  # hundreds of megabytes


@pytest.fixture(scope="module")
def config(unpacked: Path) -> dict[str, Any]:
    """The container configuration of the image."""
    manifest = json.loads((unpacked / "manifest.json").read_text())[0]
    found: dict[str, Any] = json.loads((unpacked / manifest["Config"]).read_text())["config"]
    return found


def inside(unpacked: Path, config: dict[str, Any], *command: str) -> Result:
    """Run a program in the image as its user, with its environment only."""
    user, variables = config["User"], dict(each.split("=", 1) for each in config["Env"])
    chroot = ["chroot", f"--userspec={user}", str(unpacked / "root")]
    return subprocess.run([*chroot, *command], env=variables, capture_output=True, text=True, timeout=60, check=False)


def test_it_runs_kavip_without_privileges(unpacked: Path, config: dict[str, Any]) -> None:
    """The entry point is kavip, with an unprivileged user."""
    assert config["User"] == "65532:65532"
    done = inside(unpacked, config, *config["Entrypoint"], "--version")
    assert (done.stdout.strip(), done.stderr) == (f"kavip, version {kavip.__version__}", "")


@pytest.mark.parametrize("role", ["run", "webhook", "controller", "agent"])
def test_it_has_every_role(unpacked: Path, config: dict[str, Any], role: str) -> None:
    """One image serves all roles."""
    done = inside(unpacked, config, "kavip", role, "--help")
    assert done.returncode == 0, done.stderr


def test_it_has_keepalived_at_the_expected_path(unpacked: Path, config: dict[str, Any]) -> None:
    """The agents start it from there."""
    assert "Keepalived v2." in inside(unpacked, config, "/usr/sbin/keepalived", "--version").stderr


def test_it_is_ready_for_a_read_only_root(unpacked: Path) -> None:
    """Every module is compiled, because a container cannot compile it later."""
    package = unpacked / "root" / "usr" / "lib" / "kavip" / "kavip"
    modules = {path.relative_to(package) for path in package.rglob("*.py")}
    compiled = {
        path.relative_to(package).parent.parent / f"{path.stem.split('.')[0]}.py" for path in package.rglob("*.pyc")
    }
    assert modules
    assert compiled == modules


def test_it_has_nothing_else(unpacked: Path) -> None:
    """No pip cache, no apt lists, no wheels, no tests."""
    root = unpacked / "root"
    assert not list(root.glob("root/.cache/*"))
    assert not [path for path in root.glob("var/lib/apt/lists/*") if path.name != "partial"]
    assert not list(root.glob("wheels/*"))
    assert not list(root.glob("**/kavip/tests"))


def test_health_checks_have_root_cas(unpacked: Path, config: dict[str, Any]) -> None:
    """The root CAs of the distribution, at the path that Python uses."""
    program = "import os, ssl; print(len(os.listdir(ssl.get_default_verify_paths().capath)))"
    done = inside(unpacked, config, "/opt/kavip/bin/python", "-c", program)
    assert int(done.stdout) > 100, done.stderr
