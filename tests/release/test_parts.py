"""The parts of a release that need no build: versions, archives, the chart, the manifest for krew, the notes."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from hack.release import chart, notes, olm, plugin, sbom, source, tarball
from hack.release.oci import Layout
from hack.release.source import Source
from hack.testbed.errors import TestbedError
from tests.release.conftest import VERSION
from tests.support.manifests import ROOT

EPOCH = 1_700_000_000
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def checkout(tmp_path: Path) -> Source:
    """The files that a release changes."""
    tree = tmp_path / "tree"
    for name in ("charts", "config", "kavip/__init__.py", "pyproject.toml"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        copy: Any = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    source.stamp(tree, VERSION)
    return Source(tree, VERSION, "0" * 40, EPOCH)


def test_the_version_is_written_into_every_file_that_names_it(checkout: Source) -> None:
    """Package, program, chart and manifests have the version of the release."""
    metadata = yaml.safe_load((checkout.tree / "charts/kavip/Chart.yaml").read_text())
    assert (metadata["version"], metadata["appVersion"]) == (VERSION, VERSION)
    assert f'__version__: Final = "{VERSION}"' in (checkout.tree / "kavip/__init__.py").read_text()
    assert f"newTag: {VERSION}" in (checkout.tree / "config/default/kustomization.yaml").read_text()
    assert metadata["kubeVersion"] == yaml.safe_load((ROOT / "charts/kavip/Chart.yaml").read_text())["kubeVersion"]


@pytest.mark.parametrize("version", ["v1.0.0", "1.0", "01.0.0", "latest", ""])
def test_a_version_that_is_not_semantic_is_refused(version: str) -> None:
    """The message says what is wanted."""
    with pytest.raises(TestbedError, match="want a semantic version"), source.export(version):
        pass


def test_a_release_has_the_committed_files() -> None:
    """The tree is that of the commit, whose time is known."""
    with source.export(VERSION) as found:
        assert (found.tree / "Dockerfile").exists()
        assert not (found.tree / ".git").exists()
        assert found.epoch > EPOCH
    assert not found.tree.exists()


def layer(*, when: float, owner: str, names: tuple[str, str, str] = ("b", "a", "c")) -> tarfile.TarFile:
    """A layer with a file, a link and a folder."""
    kinds = (tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in zip(names, kinds, strict=True):
            member = tarfile.TarInfo(name)
            member.type, member.mtime, member.uname = kind, when, owner
            member.linkname = "b" if kind == tarfile.LNKTYPE else ""
            member.size = 3 if kind == tarfile.REGTYPE else 0
            member.pax_headers = {"SCHILY.xattr.user.kept": "1", "atime": str(when)}
            tar.addfile(member, io.BytesIO(b"abc"))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


def test_layers_are_equal_whenever_and_wherever_they_were_built() -> None:
    """Times and names of owners go; order, links and attributes stay, and the times of Debian's Python modules."""
    written = []
    for when, owner in ((EPOCH - 5.5, "root"), (EPOCH + 99.25, "builder")):
        out = io.BytesIO()
        tarball.copy_layer(layer(when=when, owner=owner), out, epoch=EPOCH)
        written.append(out.getvalue())
    assert written[0] == written[1]
    with tarfile.open(fileobj=io.BytesIO(written[0])) as found:
        assert [(each.name, each.mtime) for each in found] == [("b", EPOCH), ("a", EPOCH), ("c", EPOCH)]
        assert found.getmember("a").linkname == "b"
        assert found.getmember("b").pax_headers["SCHILY.xattr.user.kept"] == "1"
        content = found.extractfile("b")
        assert content and content.read() == b"abc"
    out = io.BytesIO()
    modules = ("./usr/lib/python3.13/abc.py", "usr/lib/python3/dist-packages/pip/main.py", "opt/kavip/lib/python3/a.py")
    tarball.copy_layer(layer(when=EPOCH - 1, owner="", names=modules), out, epoch=EPOCH)
    out.seek(0)
    with tarfile.open(fileobj=out) as found:
        assert [each.mtime for each in found] == [EPOCH - 1, EPOCH - 1, EPOCH]


def test_an_archive_does_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    """Files are sorted; programs stay programs; no time of this machine is in it."""
    names = ("b", "a/c", "a/b")
    for name in names:
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "files" / "b").chmod(0o700)
    files = tarball.files_below(tmp_path / "files", "x/")
    for number, given in enumerate((files, dict(reversed(files.items())))):
        os.utime(tmp_path / "files" / "b", (number, number))
        tarball.write_compressed(tmp_path / f"{number}.tar.gz", given, epoch=EPOCH)
    first, second = ((tmp_path / f"{number}.tar.gz").read_bytes() for number in range(2))
    assert first == second
    with tarfile.open(tmp_path / "0.tar.gz") as found:
        assert [(each.name, each.mode) for each in found] == [("x/a/b", 0o644), ("x/a/c", 0o644), ("x/b", 0o755)]


def test_a_layout_names_each_blob_by_its_digest(tmp_path: Path) -> None:
    """The digest of a layer is that of the compressed bytes, and its other one that of what is in it."""
    layout = Layout(tmp_path / "layout")

    def write(out: IO[bytes]) -> None:
        out.write(b"content")

    found, inner = layout.add_layer(write)
    compressed = tmp_path / "layout" / "blobs" / found["digest"].replace(":", "/")
    assert subprocess.run(["sha256sum", compressed], capture_output=True, text=True, check=True).stdout.startswith(
        found["digest"].removeprefix("sha256:")
    )
    assert found["size"] == compressed.stat().st_size
    assert inner == "sha256:ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    layout.finish(layout.add_json("application/json", {"a": 1}), name=VERSION)
    index = json.loads((tmp_path / "layout" / "index.json").read_text())
    assert index["manifests"][0]["annotations"] == {"org.opencontainers.image.ref.name": VERSION}


def test_the_chart_names_the_image_by_digest(checkout: Source, tmp_path: Path) -> None:
    """The package has the image of the release as its default, and lists it as the only one that it runs."""
    out = tmp_path / "kavip.tgz"
    chart.package(checkout, out, repository="registry.example/team/kavip", digest=DIGEST)
    with tarfile.open(out) as files:
        names = files.getnames()
        values, metadata = (
            yaml.safe_load(content.read())
            for name in ("values.yaml", "Chart.yaml")
            if (content := files.extractfile(f"kavip/{name}"))
        )
    assert {name.partition("/")[0] for name in names} == {"kavip"}
    assert (values["image"]["repository"], values["image"]["digest"]) == ("registry.example/team/kavip", DIGEST)
    listed = yaml.safe_load(metadata["annotations"]["artifacthub.io/images"])
    assert listed == [{"name": "kavip", "image": f"registry.example/team/kavip@{DIGEST}"}]


@pytest.mark.chart
def test_the_bundle_for_olm_is_that_of_the_release(tmp_path: Path) -> None:
    """It has the version and the image by digest, also after the chart has got both, and is equal in each build."""
    repository, written = "registry.example/team/kavip", [tmp_path / "1", tmp_path / "2"]
    with source.export(VERSION) as found:
        chart.package(found, tmp_path / "chart", repository=repository, digest=DIGEST)
        for out in written:
            olm.write(found, out, repository=repository, digest=DIGEST, replaces="kavip.v0.9.0")
    assert written[0].read_bytes() == written[1].read_bytes()
    with tarfile.open(written[0]) as files:
        csv, catalog = (
            list(yaml.safe_load_all(files.extractfile(name) or b""))
            for name in ("bundle/manifests/kavip.clusterserviceversion.yaml", "catalog/kavip/catalog.yaml")
        )
    assert csv[0]["metadata"]["name"] == f"kavip.v{VERSION}"
    assert (csv[0]["spec"]["version"], csv[0]["spec"]["replaces"]) == (VERSION, "kavip.v0.9.0")
    assert csv[0]["spec"]["relatedImages"] == [{"name": "kavip", "image": f"{repository}@{DIGEST}"}]
    assert catalog[-1]["image"] == f"{repository}-bundle:{VERSION}"


def test_the_manifest_for_krew_has_an_archive_for_each_platform(checkout: Source) -> None:
    """With its checksum and the program in it."""
    sums = {platform: str(number) * 64 for number, platform in enumerate(plugin.PLATFORMS)}
    found = yaml.safe_load(plugin.krew_manifest(checkout, sums, url="https://example.org"))
    assert found["spec"]["version"] == f"v{VERSION}"
    assert {each["uri"]: each["sha256"] for each in found["spec"]["platforms"]} == {
        f"https://example.org/kubectl-kavip_{VERSION}_{platform.name}.tar.gz": digest
        for platform, digest in sums.items()
    }
    assert {each["bin"] for each in found["spec"]["platforms"]} == {plugin.NAME}


def test_the_notes_are_the_section_of_the_version() -> None:
    """Without links into the repository; what is unreleased, if there is no such section yet."""
    text = (
        "# Changelog\n\n## [Unreleased]\n\n- new\n\n"
        "## [1.0.0] - 2026-11-25\n\n- a [page](docs/a.md#b)\n\n## [0.1.0]\n\nold\n"
    )
    assert notes.of(text, "1.0.0") == "# kavip 1.0.0\n\n- a page\n"
    assert notes.of(text, "1.1.0") == "# kavip 1.1.0\n\n- new\n"


def test_a_normalised_sbom_has_no_time() -> None:
    """Its number depends on what was released; its order does not depend on the scanner."""
    components = [{"name": "b"}, {"name": "a"}]
    found = [
        sbom.normalised(
            {
                "metadata": {"timestamp": when, "component": {"name": "kavip", "bom-ref": when}},
                "serialNumber": when,
                "components": given,
            },
            seed="x",
        )
        for when, given in (("now", components), ("later", components[::-1]))
    ]
    assert found[0] == found[1]
    assert found[0]["metadata"] == {"component": {"name": "kavip", "bom-ref": "x"}}
