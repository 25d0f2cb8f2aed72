"""A release of this checkout, with its changes that are not committed, made once for all tests."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.release import build, source, tools
from hack.release.source import Source
from hack.testbed import cache
from hack.testbed.place import run

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
        return {name.partition(":")[0]: digest for digest, name in build.digests(self.dist)}


@pytest.fixture(scope="session")
def checkout() -> Iterator[Source]:
    """The files of the release."""
    with source.export(VERSION, source.worktree()) as found:
        yield found


@pytest.fixture(scope="session")
def release(checkout: Source) -> Release:
    """The release, signed with a key of its own. It stays in the cache for the next run on the same commit."""

    def build_and_sign(draft: Path) -> None:
        draft.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COSIGN_PASSWORD", PASSWORD)
            run([tools.program("cosign"), "generate-key-pair"], cwd=draft)
            key = str(draft / "cosign.key")
            build.build(
                checkout,
                draft / "dist",
                registry=REGISTRY,
                architectures=ARCHITECTURES,
                url=URL,
                key=key,
                locked=False,
            )

    folder = cache.entry("releases/test", build_and_sign, checkout.commit, *ARCHITECTURES)
    cache.prune("releases/test-*", keep=2)
    return Release(folder / "dist", folder / "cosign.key", folder / "cosign.pub")
