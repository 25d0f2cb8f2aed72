"""A second build of the same commit, from Debian's packages up, gives the same bytes."""

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


def test_a_second_build_gives_the_same_bytes(checkout: Source, release: Release, tmp_path: Path) -> None:
    """Image, chart, manifests, plugin, SBOM and notes are equal; only the signature is not made again."""
    second = tmp_path / "cache"
    second.mkdir()
    for pattern in KEPT:
        for path in cache.root().glob(pattern):
            (second / path.name).symlink_to(path)
    command = [sys.executable, "-m", "hack.release", "build", VERSION, f"--revision={checkout.commit}", "--unlocked"]
    command += [f"--registry={REGISTRY}", f"--url={URL}", f"--dist={tmp_path / 'dist'}"]
    command += [f"--arch={each}" for each in ARCHITECTURES]
    try:
        run(command, cwd=ROOT, env={"KAVIP_CACHE": str(second), "COSIGN_KEY": ""}, timeout=7000)
    finally:
        cache.discard(second)
    signature = {"SHA256SUMS.sigstore.json"}
    names = {path.name for path in release.dist.iterdir()}
    assert {path.name for path in (tmp_path / "dist").iterdir()} == names - signature
    different = {
        name
        for name in names - signature
        if (release.dist / name).read_bytes() != (tmp_path / "dist" / name).read_bytes()
    }
    assert not different
