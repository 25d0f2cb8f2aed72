"""The source of a release: the files of a commit, with its version in place of the one of the checkout."""

import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.testbed.errors import TestbedError
from hack.testbed.place import run

ROOT: Final = Path(__file__).parents[2]
_SEMVER: Final = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?")
_VERSION: Final = re.compile(r'^__version__: Final = "(.+)"$', re.MULTILINE)
_STAMPED: Final = (
    "kavip/__init__.py",
    "pyproject.toml",
    "charts/kavip/Chart.yaml",
    "config/manager/manager.yaml",
    "config/default/kustomization.yaml",
)
"""The files that name the version."""


@dataclass(frozen=True, slots=True)
class Source:
    """A *tree* of files as of a *commit*; *epoch* is the time of the commit."""

    tree: Path
    version: str
    commit: str
    epoch: int


def worktree() -> str:
    """A commit of the files of this checkout as they are; those that git does not know are not in it."""
    return run(["git", "stash", "create"], cwd=ROOT).stdout.strip() or "HEAD"


@contextmanager
def export(version: str, revision: str = "HEAD") -> Iterator[Source]:
    """The committed files of a revision of this repository, in a temporary directory."""
    if not _SEMVER.fullmatch(version):
        raise TestbedError(f"VERSION={version}: want a semantic version without v, such as 1.0.0 or 1.0.0-rc.1")
    commit, epoch = run(["git", "log", "-1", "--format=%H %ct", revision], cwd=ROOT).stdout.split()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with (
        tempfile.TemporaryDirectory(prefix="kavip-release-") as folder,
        tarfile.open(fileobj=io.BytesIO(archive)) as files,
    ):
        tree = Path(folder)
        files.extractall(tree, filter="data")
        stamp(tree, version)
        yield Source(tree, version, commit, int(epoch))


def stamp(tree: Path, version: str) -> None:
    """Replace the version of the checkout in each file that names it."""
    found = _VERSION.search((tree / "kavip" / "__init__.py").read_text())
    assert found is not None, "kavip/__init__.py has no version"
    old = re.compile(rf"(?<![\w.]){re.escape(found[1])}(?![\w.])")
    for name in _STAMPED:
        path = tree / name
        text, count = old.subn(version, path.read_text())
        if not count:
            raise TestbedError(f"{name} does not name the version {found[1]}")
        path.write_text(text)


def replace_once(path: Path, pattern: str, text: str) -> None:
    """Replace the only match of *pattern*; one that is not there, or there twice, is an error."""
    replaced, count = re.subn(pattern, lambda _: text, path.read_text(), flags=re.MULTILINE)
    if count != 1:
        raise TestbedError(f"{path.name}: {count} lines match {pattern!r}: want one")
    path.write_text(replaced)
