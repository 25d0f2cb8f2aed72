"""The runs of the testbed on this machine: one directory per run, which is enough to remove the run completely.

A run belongs to the process that started it, unless it was detached to stay. `sweep` removes runs whose owner was
killed; `remove` removes one. Both need only the directory: pid files lead to the processes, and the processes, mounts
and interfaces of a machine end with its init.
"""

import functools
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.testbed import cache, place, process
from hack.testbed.errors import TestbedError

CGROUPS = ".cgroups"
"""How a file ends that lists the cgroups of a machine, one a line."""

_OWNER = "owner"  # not *.pid, because removing a run must not end its owner
_CGROUPS = Path("/sys/fs/cgroup")
_LOG_BYTES = 4 * 2**20  # of each log of a test that failed
_FAILURES = 30


def folder() -> Path:
    """The directory of all runs."""
    path = cache.root() / "run"
    path.mkdir(exist_ok=True)
    return path


def names() -> list[str]:
    """All runs, including those whose owner has ended."""
    return sorted(path.name for path in folder().iterdir())


def create(name: str = "") -> Path:
    """A directory for a new run, owned by this process; without a name it gets a unique one."""
    state = folder() / (name or f"r{uuid.uuid4().hex[:8]}")
    try:
        state.mkdir()
    except FileExistsError:
        raise TestbedError(f"a run named {name} exists; `down --name {name}` removes it") from None
    _own_process().record(state / _OWNER)
    return state


def detach(state: Path) -> None:
    """Keep a run when its owner exits."""
    (state / _OWNER).unlink()


@contextmanager
def temporary() -> Iterator[Path]:
    """A run that ends with the block. Runs of killed owners are removed before."""
    sweep()
    state = create()
    try:
        yield state
    finally:
        remove(state)


@contextmanager
def in_memory() -> Iterator[Path]:
    """The same on a tmpfs, if it can be mounted: a daemon that writes its answer to a busy disk is slow."""
    with temporary() as state:
        place.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(state)], check=False)
        _own_process().record(state / _OWNER)
        yield state


def sweep() -> list[str]:
    """Remove the runs whose owner has ended; a lock separates concurrent sweeps."""
    with cache.lock("sweep"):
        orphans = [folder() / name for name in names() if _orphaned(folder() / name)]
        for state in orphans:
            remove(state)
    return [state.name for state in orphans]


def own() -> list[Path]:
    """The runs of this process."""
    ours = _own_process()
    return [folder() / name for name in names() if process.recorded(folder() / name / _OWNER) == ours]


def keep_logs(name: str, report: str = "") -> Path | None:
    """Copy the logs of this process' runs to a directory that stays, named for the test that failed; None without logs.

    The last failures are kept. Of a long log the end is kept. *report* goes into ``report.txt``: a run that is stopped
    prints none.
    """
    logs = [(state, log) for state in own() for log in _files(state, ".log")]
    if not logs:
        return None
    kept = cache.root() / "failures" / f"{time.strftime('%Y%m%dT%H%M%S')}-{re.sub(r'[^A-Za-z0-9_]+', '-', name)[-80:]}"
    for state, log in logs:
        target = kept / state.name / log.relative_to(state)
        target.parent.mkdir(parents=True, exist_ok=True)
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            target.write_bytes(file.read())
    (kept / "report.txt").write_text(report)
    cache.prune("failures/*", keep=_FAILURES)
    return kept


def remove(state: Path) -> None:
    """End every process of a run and remove its files, for any owner, alive or not."""
    found = (process.recorded(file) for file in _files(state, ".pid"))
    process.kill([one for one in found if one])
    _remove_cgroups(state)
    while state.is_mount():
        place.run(["umount", "--lazy", str(state)])
    for _ in range(300):  # a process that was just killed may still hold a directory for a moment
        shutil.rmtree(state, ignore_errors=True)
        if not state.exists():
            return
        time.sleep(0.1)
    shutil.rmtree(state)


def describe(state: Path) -> str:
    """The state of a run in a few words."""
    alive = sum(1 for file in _files(state, ".pid") if process.recorded(file))
    if _orphaned(state):
        return f"left behind by a run that was killed; {alive} processes"
    return f"{'belongs to a running test' if (state / _OWNER).exists() else 'stays until `down`'}; {alive} processes"


def _files(state: Path, suffix: str) -> Iterator[Path]:
    """The testbed's own files in a run with that *suffix*, sorted: not those in the file systems of containers."""
    for parent, folders, files in os.walk(state):
        folders[:] = sorted(set(folders) - {"containerd"})
        yield from (Path(parent, name) for name in sorted(files) if name.endswith(suffix))


def _own_process() -> process.Process:
    found = process.find(os.getpid())
    assert found is not None
    return found


def _orphaned(state: Path) -> bool:
    try:
        owner = (state / _OWNER).read_text()  # once: another process may be writing it, detaching or removing the run
    except FileNotFoundError:
        return False
    return process.named(owner) is None


def _remove_cgroups(state: Path) -> None:
    """Remove the empty cgroups of a run's containers, which a power cut leaves, and their parents if unused."""
    for parent in [*_CGROUPS.glob("k8s.io"), *_CGROUPS.glob("*/k8s.io")]:  # version 2, version 1
        for group in (parent / container for container in _containers(state)):
            process.wait_for(f"cgroup {group} is empty", functools.partial(_rmdir, group), timeout=60)
        _rmdir(parent)
    for top in (Path(line) for file in _files(state, CGROUPS) for line in file.read_text().splitlines()):
        for group in sorted((Path(folder) for folder, *_ in os.walk(top)), reverse=True):  # children first
            process.wait_for(f"cgroup {group} is empty", functools.partial(_rmdir, group), timeout=60)


def _containers(state: Path) -> list[str]:
    """The identifiers of all containers of a run's nodes, from containerd's directories."""
    return [path.name for path in state.glob("n*/containerd/io.containerd.grpc.v1.cri/*/*")]


def _rmdir(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # in use, until the last process has been reaped
        return False
    return True
