"""A release of this checkout, with its changes that are not committed, made once for all tests."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.release import build, source, tools
from hack.release.source import Source
from hack.testbed.place import run
from tests.support.manifests import ROOT

VERSION = "1.0.0"
REGISTRY = "registry.example/team"
URL = "https://example.org/1.0.0"
ARCHITECTURES = tuple(os.environ.get("ARCHITECTURES", "amd64,arm64").split(","))
PASSWORD = "only for tests"


@dataclass(frozen=True, slots=True)
class Release:
    """A release in the folder *dist*; the *public* key of its signature, whose other half is *key*."""

    dist: Path
    key: Path
    public: Path

    @property
    def digests(self) -> dict[str, str]:
        """The digest of image and chart, by repository."""
        lines = (self.dist / build.DIGESTS).read_text().splitlines()
        return {name.partition(":")[0]: digest for digest, name in (line.split() for line in lines)}


def revision() -> str:
    """A commit of the files of this checkout as they are; those that git does not know are not in it."""
    return run(["git", "stash", "create"], cwd=ROOT).stdout.strip() or "HEAD"


def make(checkout: Source, out: Path, *, key: str = "") -> None:
    """Write a release. Newer Debian packages than the locks have are no reason to fail a test."""
    build.build(checkout, out, registry=REGISTRY, architectures=ARCHITECTURES, url=URL, key=key, locked=False)


@pytest.fixture(scope="session")
def checkout() -> Iterator[Source]:
    """The files of the release."""
    with source.export(VERSION, revision()) as found:
        yield found


@pytest.fixture(scope="session")
def release(checkout: Source, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The release, signed with a key of its own."""
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIGN_PASSWORD", PASSWORD)
        run([tools.program("cosign"), "generate-key-pair"], cwd=folder)
        key = folder / "cosign.key"
        make(checkout, folder / "dist", key=str(key))
        yield Release(folder / "dist", key, folder / "cosign.pub")
