"""The image, built from the Dockerfile as a user builds it, but on a base image that the test builds."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import kavip
from hack.testbed import debianroot, foreign, images, packages
from hack.testbed.errors import TestbedError
from hack.testbed.place import Result, run
from tests.support.manifests import ROOT

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]  # the first run builds it


REQUIREMENTS = ROOT / "requirements" / "run.txt"
LOCK = packages.lock_of(foreign.native())
LOCKED = {"LOCKED": "1"}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def archive() -> Path:
    """The image; its name is that of the demo, so it is built once."""
    return images.image("localhost/kavip:demo", dockerfile=ROOT / "Dockerfile", requirements=REQUIREMENTS)


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The unpacked image; its root file system is in ``root``."""
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
    return subprocess.run([*chroot, *command], env=variables, capture_output=True, text=True, timeout=300, check=False)


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


def test_it_lists_its_debian_packages(archive: Path, unpacked: Path, config: dict[str, Any]) -> None:
    """The list in the image has every installed package of dpkg's database, sorted, and any user can read it."""
    database = (unpacked / "root" / "var" / "lib" / "dpkg" / "status").read_text()
    fields = [dict(re.findall(r"^(\w+): (.*)$", each, re.MULTILINE)) for each in database.strip().split("\n\n")]
    held = [" ".join((each["Package"], each["Version"], each["Architecture"])) for each in fields]
    assert len(held) > 50
    assert all(each["Status"] == "install ok installed" for each in fields)
    assert packages.listed(archive) == sorted(held)
    assert inside(unpacked, config, "cat", f"/{packages.LIST}").stdout.splitlines() == sorted(held)


def test_it_names_its_base_image(config: dict[str, Any]) -> None:
    """By the standard label; a base by digest is named by digest."""
    assert config["Labels"]["org.opencontainers.image.base.name"] == images.base()[0]


def test_a_build_refuses_packages_that_differ_from_the_lock(archive: Path, tmp_path: Path) -> None:
    """With LOCKED=1 the Dockerfile prints the difference and fails; an equal lock passes."""
    for name in ("Dockerfile", "LICENSE", "requirements/run.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "kavip", tmp_path / "kavip", ignore=shutil.ignore_patterns("__pycache__"))
    lock = tmp_path / LOCK

    def build() -> Path:
        dockerfile = tmp_path / "Dockerfile"
        return images.image("localhost/kavip:locked", dockerfile=dockerfile, args=LOCKED, requirements=REQUIREMENTS)

    packages.write(lock, archive)
    held = packages.listed(archive)
    equal = build()
    assert packages.listed(equal) == held
    equal.unlink()  # a third of a gigabyte in the cache
    (keepalived,) = (each for each in held if each.startswith("keepalived "))
    lock.write_text(lock.read_text().replace(keepalived, "keepalived 1:2.2.6-1 amd64"))
    with pytest.raises(TestbedError, match="building at STEP") as refused:
        build()
    assert f"-keepalived 1:2.2.6-1 amd64\n+{keepalived}\n" in str(refused.value)


def test_make_image_prints_the_difference_from_the_lock(archive: Path) -> None:
    """`make image` says how the packages of this checkout's image differ; `--locked` refuses such an image."""
    command = [sys.executable, "-m", "hack.testbed", "image", "--tag=localhost/kavip:demo"]
    differences = packages.drift(ROOT / LOCK, archive)
    done = run(command, cwd=ROOT)
    assert done.stdout == f"{archive}\n"
    assert [line for line in done.stderr.splitlines() if str(LOCK) in line] == [
        f"{LOCK}: {each}" for each in differences
    ]
    assert run([*command, "--locked"], cwd=ROOT, check=False).returncode == bool(differences)


def test_a_mirror_without_debians_signature_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """debootstrap installs nothing if Debian has not signed the release file, nor without a file of Debian's keys."""
    suite = debianroot.SUITE
    release = tmp_path / "mirror" / "dists" / suite / "Release"
    release.parent.mkdir(parents=True)
    release.write_text(f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nComponents: main\nArchitectures: amd64\n")
    handler = partial(Quiet, directory=str(tmp_path / "mirror"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(debianroot, "mirrors", lambda: ([mirror], []))
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(TestbedError, match="Failed getting release signature file"):
            debianroot.make(tmp_path / "refused", foreign.native())
        monkeypatch.setattr(debianroot, "KEYRING", "/nonexistent.gpg")
        with pytest.raises(TestbedError, match=r"specified keyring file \(/nonexistent.gpg\) not found"):
            debianroot.make(tmp_path / "refused", foreign.native())
        server.shutdown()
    assert not (tmp_path / "refused" / "bin").exists()


def test_a_changed_wheel_is_refused(tmp_path: Path) -> None:
    """pip compares each download with the hash of the version in the requirements."""
    pinned = REQUIREMENTS.read_text()
    assert re.findall(r"^[a-z]\S*==\S+(?! \\)$", pinned, re.MULTILINE) == []  # each version has hashes below it
    first = re.split(r"\n(?=[a-z])", pinned[pinned.index("\nclick==") + 1 :])[0]
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(re.sub(r"sha256:\w+", f"sha256:{'0' * 64}", first) + "\n")
    with pytest.raises(TestbedError, match="DO NOT MATCH THE HASHES"):
        images.download(wrong)
