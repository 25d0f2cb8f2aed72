"""The cache: things that take long to build, outside the checkout, named by what they were built from.

An entry is complete or absent. It is built beside its place and renamed into it, under a lock, so that an interrupted
build leaves nothing that looks finished and two runs at once build it once.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def root() -> Path:
    """Where everything of the testbed lives: $KAVIP_CACHE, or kavip in the user's cache directory."""
    explicit = os.environ.get("KAVIP_CACHE")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(explicit) if explicit else user / "kavip"
    path = path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def key(*parts: str | bytes | Path) -> str:
    """A short name for the sum of the parts; a Path stands for the contents of that file."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:16]


def entry(name: str, build: Callable[[Path], None]) -> Path:
    """The file or directory of that name; `build` makes it, at the path it is given, when it is not there yet."""
    path = root() / name
    if path.exists():
        return path
    with lock(name):
        if not path.exists():  # else another run has built it while we waited
            draft = path.with_name(f".{path.name}.draft")
            discard(draft)  # what an interrupted build left
            build(draft)
            draft.rename(path)
    return path


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Only one process at a time; the kernel lets go of it when the holder dies, however it dies."""
    path = root() / "locks" / name.replace("/", "-")
    path.parent.mkdir(exist_ok=True)
    (root() / name).parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prune(pattern: str, *, keep: int) -> None:
    """Remove all but the latest entries that match; what a run may still be reading is among the latest."""
    found = sorted(root().glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[keep:]:
        discard(path)


def discard(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
