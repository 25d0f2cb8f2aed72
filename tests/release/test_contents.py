"""What a release holds does what it is for: it runs, it is what it says, and it is signed."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from hack.release import build, signature
from hack.release.source import Source
from hack.testbed import foreign
from hack.testbed.place import run
from hack.testbed.programs import Programs
from tests.release.conftest import ARCHITECTURES, VERSION, Release

pytestmark = [pytest.mark.release, pytest.mark.timeout(7200)]


class Unpacked:
    """The image of one architecture, from the layout in dist/ alone. *root*: its files."""

    def __init__(self, archive: Path, architecture: str, root: Path) -> None:
        self.root = root
        with tarfile.open(archive) as layout:
            (entry,) = _json(layout.extractfile("index.json"))["manifests"]
            index = _json(_blob(layout, entry["digest"]))
            (image,) = [each for each in index["manifests"] if each["platform"]["architecture"] == architecture]
            manifest = _json(_blob(layout, image["digest"]))
            self.config: dict[str, Any] = _json(_blob(layout, manifest["config"]["digest"]))
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=_blob(layout, layer["digest"]), mode="r:gz") as files:
                    files.extractall(root, filter="tar", numeric_owner=True)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program in it, as its user and with its environment."""
        config = self.config["config"]
        variables = dict(each.split("=", 1) for each in config["Env"])
        chroot = ["chroot", f"--userspec={config['User']}", str(self.root), *command]
        return subprocess.run(chroot, env=variables, capture_output=True, text=True, timeout=600, check=False)


def _blob(layout: tarfile.TarFile, digest: str) -> IO[bytes]:
    found = layout.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert found
    return found


def _json(file: IO[bytes] | None) -> Any:
    assert file
    return json.load(file)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def unpacked(
    request: pytest.FixtureRequest, release: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Unpacked]:
    """The image of each architecture; programs of another one run in an emulator."""
    root = tmp_path_factory.mktemp(request.param) / "root"  # the former is its owner's only
    root.mkdir()
    with foreign.emulated(request.param):
        yield Unpacked(release.dist / build.image_of(VERSION), request.param, root)
    shutil.rmtree(root)


def test_the_image_runs(unpacked: Unpacked) -> None:
    """kavip, its plugin and keepalived run in the image of every architecture."""
    assert unpacked.run("kavip", "--version").stdout == f"kavip, version {VERSION}\n"
    assert unpacked.run("kubectl-kavip", "--version").stdout == f"kavip, version {VERSION}\n"
    assert "Keepalived v2.3" in unpacked.run("/usr/sbin/keepalived", "--version").stderr


def test_the_agent_checks_a_configuration(unpacked: Unpacked) -> None:
    """The agent of every architecture imports, and its keepalived reads a configuration."""
    assert unpacked.run("kavip", "agent", "--help").returncode == 0
    conf = unpacked.root / "tmp" / "keepalived.conf"
    conf.write_text("global_defs {\n    router_id edge\n}\n")
    conf.chmod(0o644)
    done = unpacked.run("/usr/sbin/keepalived", "--config-test", "--use-file=/tmp/keepalived.conf")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_says_what_it_is(unpacked: Unpacked, checkout: Source) -> None:
    """Version, commit and user are in its configuration, and nothing of the machine that built it."""
    config = self_described(unpacked.config)
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    assert config["Labels"]["org.opencontainers.image.revision"] == checkout.commit
    assert config["User"] == "65532:65532"
    assert not list((unpacked.root / "dev").iterdir())


def self_described(config: dict[str, Any]) -> dict[str, Any]:
    """The part for containers of a configuration that has no other parts than OCI's."""
    assert config.keys() == {"architecture", "os", "created", "config", "rootfs"}
    found: dict[str, Any] = config["config"]
    return found


def test_the_sbom_lists_every_package(unpacked: Unpacked, release: Release) -> None:
    """Each Debian package of the image, and each pinned Python package, is in the document of its architecture."""
    name = f"kavip-{VERSION}_{unpacked.config['architecture']}.cdx.json"
    document = json.loads((release.dist / name).read_text())
    found = {(each["name"].lower().replace("_", "-"), each.get("version", "")) for each in document["components"]}
    listed = (unpacked.root / "usr/share/kavip/packages.txt").read_text().splitlines()
    debian = {tuple(line.split()[:2]) for line in listed}
    pinned = set(
        re.findall(r"^([\w.-]+)==(\S+) \\$", (unpacked.root / "usr/share/kavip/requirements.txt").read_text(), re.M)
    )
    assert debian and pinned
    assert debian | {(package.lower().replace("_", "-"), version) for package, version in pinned} <= found


def test_the_checksums_are_signed(release: Release, tmp_path: Path) -> None:
    """Every file has its checksum, and the owner of the key vouches for them; a changed list is refused."""
    assert run(["sha256sum", "--check", "--strict", build.SUMS], cwd=release.dist).returncode == 0
    listed = {line.split()[1] for line in (release.dist / build.SUMS).read_text().splitlines()}
    bundle = f"{build.SUMS}.sigstore.json"
    assert listed == {path.name for path in release.dist.iterdir()} - {build.SUMS, bundle}
    assert signature.verify_file(release.dist / build.SUMS, key=str(release.public))
    for name in (build.SUMS, bundle):
        shutil.copy(release.dist / name, tmp_path / name)
    (tmp_path / build.SUMS).write_text((tmp_path / build.SUMS).read_text() + "\n")
    assert not signature.verify_file(tmp_path / build.SUMS, key=str(release.public))


def test_kubectl_runs_the_plugin(release: Release, programs: Programs, tmp_path: Path) -> None:
    """The program for this machine runs as a plugin of kubectl, and checks a manifest without a cluster."""
    platform = f"linux_{foreign.native()}"
    with tarfile.open(release.dist / f"kubectl-kavip_{VERSION}_{platform}.tar.gz") as files:
        files.extractall(tmp_path, filter="data")
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "PEX_ROOT": str(tmp_path / "pex")}

    def kubectl(*args: str) -> subprocess.CompletedProcess[str]:
        command = [programs["kubectl"], *args]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)

    assert kubectl("kavip", "--version").stdout == f"kavip, version {VERSION}\n"
    pool = {"apiVersion": "kavip.io/v1alpha1", "kind": "VIPPool", "metadata": {"name": "edge"}}
    (tmp_path / "pool.json").write_text(json.dumps({**pool, "spec": {"addresses": ["192.0.2.1/24"]}}))
    done = kubectl("kavip", "check", "-f", str(tmp_path / "pool.json"))
    assert done.returncode == 1 and "192.0.2.1/24" in done.stdout + done.stderr


def test_the_digests_are_those_of_the_layouts(release: Release) -> None:
    """What is listed for image and chart is what their layouts hold."""
    for repository, name in (("kavip", build.image_of(VERSION)), ("charts/kavip", build.chart_of(VERSION))):
        with tarfile.open(release.dist / name) as layout:
            (entry,) = _json(layout.extractfile("index.json"))["manifests"]
            content = _blob(layout, entry["digest"]).read()
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == entry["digest"] == release.digests[repository]
