"""Makes dist/: everything that a release consists of, in order, and its checksums."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hack.release import chart, image, manifests, notes, olm, plugin, sbom, signature
from hack.release.source import Source
from hack.testbed.errors import TestbedError

SUMS: Final = "SHA256SUMS"
KREW: Final = "kavip.krew.yaml"
IMAGES: Final = "images.txt"
DIGESTS: Final = "digests.txt"
INSTALL: Final = "install.yaml"
NOTES: Final = "NOTES.md"


def image_of(version: str) -> str:
    """The file name of the image, an OCI layout."""
    return f"kavip-image-{version}.oci.tar"


def chart_of(version: str) -> str:
    """The file name of the chart, an OCI layout."""
    return f"kavip-chart-{version}.oci.tar"


def package_of(version: str) -> str:
    """The file name of the chart, a package."""
    return f"kavip-{version}.tgz"


def olm_of(version: str) -> str:
    """The file name of the bundle and the catalog for OLM."""
    return f"kavip-olm-{version}.tar.gz"


def build(
    source: Source,
    out: Path,
    *,
    registry: str,
    architectures: Sequence[str],
    url: str,
    key: str = "",
    replaces: str = "",
    locked: bool,
) -> None:
    """
    Write a release to *out*, which is made anew.

    *registry*: where image and chart will be, such as ``registry.example/team``. *url*: where the files will be. *key*:
    the private key of cosign that signs the checksums; without one, nothing is signed. *replaces*: the
    ClusterServiceVersion of the release before. *locked*: refuse Debian packages that differ from the locks.
    """
    if out.exists():
        if any(out.iterdir()) and not (out / SUMS).exists():
            raise TestbedError(f"{out} is not a release: name another folder, or remove it")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    archives = installed_parts(source, out, registry=registry, architectures=architectures, locked=locked)
    ((digest, _), _) = digests(out)
    repository = f"{registry}/kavip"
    olm.write(source, out / olm_of(source.version), repository=repository, digest=digest, replaces=replaces)
    programs = plugin.write(source, out)
    sums = {platform: sum_of(path) for platform, path in programs.items()}
    (out / KREW).write_text(plugin.krew_manifest(source, sums, url=url))
    for architecture, archive in archives.items():
        sbom.write(source, architecture, archive, out / f"kavip-{source.version}_{architecture}.cdx.json")
    (out / NOTES).write_text(notes.of((source.tree / "CHANGELOG.md").read_text(), source.version))
    files = sorted(path for path in out.iterdir() if path.is_file())
    (out / SUMS).write_text("".join(f"{sum_of(path)}  {path.name}\n" for path in files))
    if key:
        signature.sign_file(out / SUMS, key=key)


def installed_parts(
    source: Source, out: Path, *, registry: str, architectures: Sequence[str], locked: bool
) -> dict[str, Path]:
    """Write what a cluster is given: image, chart, install.yaml, and their lists. Returns the image by architecture."""
    repository = f"{registry}/kavip"
    archives = {name: image.build(source, name, locked=locked) for name in architectures}
    with TemporaryDirectory(dir=out) as work:
        digest = image.write(source, archives, out / image_of(source.version), Path(work, "image"))
        package = out / package_of(source.version)
        chart.package(source, package, repository=repository, digest=digest)
        chart_digest = chart.write(source, package, out / chart_of(source.version), Path(work, "chart"))
    manifests.write(source, out / INSTALL, repository=repository, digest=digest)
    (out / IMAGES).write_text("".join(f"{each}\n" for each in chart.related(repository, digest).values()))
    (out / DIGESTS).write_text(f"{digest} kavip:{source.version}\n{chart_digest} charts/kavip:{source.version}\n")
    return archives


def digests(dist: Path) -> list[tuple[str, str]]:
    """The digest and the name, with its tag, of image and chart of a release."""
    lines = (line.split() for line in (dist / DIGESTS).read_text().splitlines())
    return [(digest, name) for digest, name in lines]


def sum_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
