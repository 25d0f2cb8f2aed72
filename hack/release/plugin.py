"""kubectl-kavip for machines without kavip's image: one file for each platform, for each Python that kavip supports.

pex, because wheels with compiled modules cannot be imported from a zip: it unpacks what the machine's Python needs into
its cache. The file holds the wheels of all Pythons, so that krew, which knows platforms only, installs it.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml
from packaging import tags

from hack.release import tarball
from hack.release.source import Source
from hack.testbed import cache, place
from hack.testbed.place import run
from hack.testbed.progress import step

NAME: Final = "kubectl-kavip"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_PEX: Final = Path(__file__).parent / "pex.txt"
_TIMEOUT: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Platform:
    """A system and architecture, as krew calls them; what Python calls the latter; and the wheels that run there."""

    system: str
    architecture: str
    machine: str
    wheels: tuple[str, ...]

    @property
    def name(self) -> str:
        """The platform in the name of a file."""
        return f"{self.system}_{self.architecture}"


PLATFORMS: Final = (
    Platform("linux", "amd64", "x86_64", ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")),
    Platform(
        "linux", "arm64", "aarch64", ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
    ),
    Platform("darwin", "arm64", "arm64", ("macosx_11_0_arm64", "macosx_10_9_universal2")),
)


def write(source: Source, out: Path) -> dict[Platform, Path]:
    """Write an archive for each platform into *out*."""
    archives = {}
    with TemporaryDirectory() as folder:
        wheel = _wheel(source, Path(folder))
        for platform in PLATFORMS:
            with step(f"Write {NAME} for {platform.name}", f"for Python {', '.join(PYTHONS)}"):
                program = Path(folder) / platform.name / NAME
                _write_program(source, platform, wheel, program)
            archives[platform] = out / f"{NAME}_{source.version}_{platform.name}.tar.gz"
            files = {NAME: program, "LICENSE": source.tree / "LICENSE"}
            tarball.write_compressed(archives[platform], files, epoch=source.epoch)
    return archives


def krew_manifest(source: Source, sums: Mapping[Platform, str], *, url: str) -> str:
    """The manifest of the plugin for krew: *sums* of the archives, which users download below *url*."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": platform.system, "arch": platform.architecture}},
            "uri": f"{url}/{NAME}_{source.version}_{platform.name}.tar.gz",
            "sha256": digest,
            "bin": NAME,
        }
        for platform, digest in sums.items()
    ]
    return yaml.safe_dump(
        {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "kavip"},
            "spec": {
                "version": f"v{source.version}",
                "shortDescription": "Explain and check LoadBalancer Services of kavip",
                "description": _DESCRIPTION,
                "caveats": f"Needs Python {PYTHONS[0]} to {PYTHONS[-1]} on the PATH as python3.\n",
                "platforms": platforms,
            },
        },
        sort_keys=False,
    )


_DESCRIPTION: Final = """\
kubectl kavip explains why a Service has its address or is pending, shows which node holds which VIP, drains nodes,
and checks manifests without a cluster.
"""


def _wheel(source: Source, folder: Path) -> Path:
    """The wheel of kavip."""
    command = [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={folder}"]
    run(command, cwd=source.tree, env={"SOURCE_DATE_EPOCH": str(source.epoch)})
    (found,) = folder.glob("*.whl")
    return found


def _write_program(source: Source, platform: Platform, wheel: Path, out: Path) -> None:
    out.parent.mkdir()
    chosen = []
    for python in PYTHONS:
        chosen.append(out.parent / f"{python}.json")
        chosen[-1].write_text(json.dumps(_environment(platform, python)))
    wheels = _download(source.tree / "requirements" / "run.txt", platform)
    pex = cache.entry("pex", _install, _PEX)
    command = [sys.executable, "-m", "pex", "kavip", f"--script={NAME}", f"--output-file={out}", "--no-compile"]
    command += [
        "--python-shebang=/usr/bin/env python3",
        f"--pre-resolved-dists={wheels}",
        f"--pre-resolved-dists={wheel}",
    ]
    command += [f"--complete-platform={each}" for each in chosen]
    variables = {"PYTHONPATH": str(pex), "PEX_ROOT": str(out.parent / "root"), "SOURCE_DATE_EPOCH": str(source.epoch)}
    run(command, env=variables, timeout=_TIMEOUT)


def _environment(platform: Platform, python: str) -> dict[str, object]:
    """What pex must know of a Python that is not on this machine."""
    major, minor = (int(part) for part in python.split("."))
    abi = f"cp{major}{minor}"
    supported = (*tags.cpython_tags((major, minor), [abi], platform.wheels), *_compatible(major, minor, platform))
    return {
        "compatible_tags": [str(each) for each in supported],
        "marker_environment": {
            "implementation_name": "cpython",
            "implementation_version": f"{python}.0",
            "os_name": "posix",
            "platform_machine": platform.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": platform.system.capitalize(),
            "platform_version": "",
            "python_full_version": f"{python}.0",
            "python_version": python,
            "sys_platform": platform.system,
        },
    }


def _compatible(major: int, minor: int, platform: Platform) -> Iterator[tags.Tag]:
    return tags.compatible_tags((major, minor), f"cp{major}{minor}", platform.wheels)


def _download(requirements: Path, platform: Platform) -> Path:
    """The wheels that the requirements pin, for all Pythons of the platform."""

    def make(draft: Path) -> None:
        options = ["--quiet", "--require-hashes", "--only-binary=:all:", f"--dest={draft}"]
        options += [f"--platform={each}" for each in platform.wheels]
        for python in PYTHONS:
            command = [sys.executable, "-m", "pip", "download", *options, f"--python-version={python}"]
            run([*command, f"--requirement={requirements}"], timeout=_TIMEOUT)

    return cache.entry(f"wheels-{platform.name}", make, requirements, *PYTHONS, code=[place])


def _install(draft: Path) -> None:
    """Install pex beside the environment of the checkout, which need not change for it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    run([*command, f"--target={draft}", f"--requirement={_PEX}"], timeout=_TIMEOUT)
