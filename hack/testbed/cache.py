"""The cache: things that take long to build, outside the checkout, named by what they were built from.

An entry is complete or absent. It is built beside its place and renamed into it, under a lock, so that an interrupted
build leaves nothing that looks finished and two runs at once build it once.

The name of an entry sums its inputs and the source of the modules that build it. After a change of that code nothing
old is taken, so an entry of an earlier version cannot hide a fault of this one.
"""

import fcntl
import hashlib
import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

Part = str | bytes | Path
Build = Callable[[Path], None]


def root() -> Path:
    """The directory of everything that the testbed keeps: $KAVIP_CACHE, or kavip in the user's cache directory."""
    explicit = os.environ.get("KAVIP_CACHE")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(explicit) if explicit else user / "kavip"
    path = path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def key(*parts: Part) -> str:
    """A short name for the sum of the parts; a Path means the contents of that file."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:16]


def entry(name: str, build: Build, *parts: Part, code: Sequence[ModuleType] = (), suffix: str = "") -> Path:
    """
    The file or directory of that name; *build* makes it at the path that it is given, if it is absent.

    *parts* and *code* are those of :func:`place_of`.
    """
    path = place_of(name, build, *parts, code=code, suffix=suffix)
    if path.exists():
        return path
    with lock(str(path.relative_to(root()))):
        if not path.exists():  # else another run has built it while we waited
            draft = path.with_name(f".{path.name}.draft")
            discard(draft)  # what an interrupted build left
            build(draft)
            draft.rename(path)
    return path


def place_of(
    name: str, build: Callable[..., None], *parts: Part, code: Sequence[ModuleType] = (), suffix: str = ""
) -> Path:
    """
    Where the entry is, or will be: *name*, and the key of all that decides what is in it.

    *parts* are the inputs of *build*, *code* the modules that it calls. Its own module always counts.
    """
    sources = [Path(_source(build)), *(Path(_source(module)) for module in code)]
    return root() / f"{name}-{key(*parts, *sources)}{suffix}"


def _source(made_by: Callable[..., None] | ModuleType) -> str:
    function = getattr(made_by, "func", made_by)  # functools.partial
    return inspect.getfile(function)


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock between processes; the kernel releases it when the holder ends."""
    path = root() / "locks" / name.replace("/", "-")
    path.parent.mkdir(exist_ok=True)
    (root() / name).parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prune(pattern: str, *, keep: int) -> None:
    """Remove all but the latest entries that match; a run that still reads one reads one of the latest."""
    found = sorted(root().glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[keep:]:
        discard(path)


def discard(path: Path) -> None:
    """Remove a file or a directory, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
