"""A second build of the same commit, from Debian's packages up, gives the same bytes."""

import json
import sys
from pathlib import Path

import pytest

from hack.release.source import Source
from hack.testbed import cache
from hack.testbed.place import run
from tests.release.conftest import ARCHITECTURES, REGISTRY, URL, VERSION, Release
from tests.support.manifests import ROOT

pytestmark = [pytest.mark.release, pytest.mark.timeout(7200)]

KEPT = ("programs", "go", "venv-*", "pex-*", "bytecode")
"""What is in the cache and not part of a release."""


def build_anew(checkout: Source, folder: Path) -> Path:
    """The folder of a release of *checkout*, which is built in *folder* with an empty cache."""
    cached = folder / "cache"
    cached.mkdir(parents=True)
    for pattern in KEPT:
        for path in cache.root().glob(pattern):
            (cached / path.name).symlink_to(path)
    command = [sys.executable, "-m", "hack.release", "build", VERSION, f"--revision={checkout.commit}", "--unlocked"]
    command += [f"--registry={REGISTRY}", f"--url={URL}", f"--dist={folder / 'dist'}"]
    command += [f"--arch={each}" for each in ARCHITECTURES]
    try:
        run(command, cwd=ROOT, env={"KAVIP_CACHE": str(cached), "COSIGN_KEY": ""}, timeout=7000)
    finally:
        cache.discard(cached)
    return folder / "dist"


def packages(dist: Path) -> dict[str, set[str]]:
    """The packages in each image, with their versions."""
    boms = {path.name: json.loads(path.read_text()) for path in sorted(dist.glob("*.cdx.json"))}
    return {name: {each["purl"] for each in bom["components"] if "purl" in each} for name, bom in boms.items()}


def test_a_second_build_gives_the_same_bytes(checkout: Source, release: Release, tmp_path: Path) -> None:
    """Image, chart, manifests, plugin, SBOM and notes are equal; only the signature is not made again."""
    first, second = release.dist, build_anew(checkout, tmp_path / "second")
    if packages(first) != packages(second):  # Debian has published updates since the base of the first one was cached
        first = build_anew(checkout, tmp_path / "first")
    signature = {"SHA256SUMS.sigstore.json"}
    names = {path.name for path in first.iterdir()} - signature
    assert {path.name for path in second.iterdir()} == names
    different = {name for name in names if (first / name).read_bytes() != (second / name).read_bytes()}
    assert not different
