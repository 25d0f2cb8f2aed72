"""The images of the testbed, each a docker-archive in the cache, named by what it was built from.

pause   holds a pod's namespaces
web     a web server that answers with the name of its pod
base    Debian with Python, keepalived and nftables: replaces the official Python image below kavip's own
kavip   any Dockerfile of the checkout, on the base image, with wheels that pip fetched on this machine
"""

import functools
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.testbed import buildah, cache, debianroot, foreign, need, place
from hack.testbed.errors import TestbedError
from hack.testbed.place import run
from hack.testbed.progress import step

PAUSE = "localhost/pause:1"
WEB = "localhost/web:1"
BASE = "localhost/kavip-base"
_CODE = (buildah, debianroot, foreign, place)  # what builds an image, besides this module
_KEEP = 3  # archives of one tag: each is a third of a gigabyte
_RECIPES = Path(__file__).parent / "images"


def pause() -> Path:
    """The archive of PAUSE."""
    return _small(PAUSE, "pause", ["pause.c", "pause.dockerfile"])


def web() -> Path:
    """The archive of WEB."""
    return _small(WEB, "web", ["web.c", "web.dockerfile"])


def base(architecture: str = "") -> tuple[str, Path]:
    """Name and archive of the base image, for this machine unless another architecture is named; it takes minutes."""
    need.packages("the base image", need.IMAGES)
    architecture = architecture or foreign.native()
    name, inputs = f"images/base-{architecture}", (_RECIPES / "base.dockerfile", architecture)
    path = cache.place_of(name, _make_base, *inputs, code=_CODE, suffix=".tar")
    # so that two checkouts with different bases do not use each other's image
    tag = f"{BASE}:{debianroot.SUITE}-{path.stem.removeprefix('base-')}"
    build = functools.partial(_make_base, tag, architecture)
    return tag, cache.entry(name, build, *inputs, code=_CODE, suffix=".tar")


def image(
    tag: str,
    *,
    dockerfile: Path,
    base_tag: str | None = None,
    args: Mapping[str, str] | None = None,
    volumes: Sequence[str] = (),
    requirements: Path | None = None,
    architecture: str = "",
) -> Path:
    """
    The archive of an image of a checkout, on our base image unless another is named; by default for this machine.

    It is built again only when one of its inputs changed.
    """
    context = dockerfile.absolute().parent
    inputs = [*_copied(dockerfile, context), dockerfile]
    architecture = architecture or foreign.native()
    if base_tag is None:
        base_tag, archive = base(architecture)
        buildah.load(base_tag, archive)
    args = {"BASE": base_tag, **(args or {})}
    if requirements:
        wheels = download(requirements, architecture)
        args["PIP_ARGS"] = "--no-index --find-links /wheels"
        volumes = [*volumes, f"{wheels}:/wheels:ro"]
    names = [str(path.relative_to(context)) for path in inputs]
    named = (tag, repr(sorted(args.items())), repr(sorted(volumes)), repr(names))

    def make(draft: Path) -> None:
        with step(f"Build image {tag}", f"from {dockerfile.name}, on {base_tag}"), foreign.emulated(architecture):
            buildah.build(
                tag,
                dockerfile=dockerfile,
                context=context,
                archive=draft,
                args=args,
                volumes=volumes,
                architecture=architecture,
            )

    name = re.sub(r"[^a-z0-9.]+", "-", tag.lower())
    archive = cache.entry(f"images/{name}", make, *named, *inputs, code=_CODE, suffix=".tar")
    cache.prune(f"images/{name}-*.tar", keep=_KEEP)
    return archive


def download(requirements: Path, architecture: str = "") -> Path:
    """A directory with the wheels that a requirements file pins, for the Python of the base image."""
    machine = foreign.ARCHITECTURES[architecture or foreign.native()].machine

    def make(draft: Path) -> None:
        options = ["--quiet", "--require-hashes", "--only-binary=:all:", f"--python-version={debianroot.PYTHON}"]
        options += [f"--platform=manylinux_2_{minor}_{machine}" for minor in (28, 17)]
        with step("Download wheels", f"what {requirements.name} pins, for the image"):
            run(
                [sys.executable, "-m", "pip", "download", *options, f"--requirement={requirements}", f"--dest={draft}"],
                timeout=1800,
            )

    return cache.entry("wheels", make, requirements, machine, code=[place, debianroot])


def _small(tag: str, name: str, recipe: Sequence[str]) -> Path:
    """An image of one static program."""

    def make(draft: Path) -> None:
        need.packages(f"image {tag}", need.IMAGES)
        context = draft.with_suffix(".context")
        shutil.copytree(_RECIPES, context, dirs_exist_ok=True)
        run(["gcc", "-Os", "-static", "-o", str(context / name), str(context / f"{name}.c")])
        buildah.build(tag, dockerfile=context / f"{name}.dockerfile", context=context, archive=draft)
        shutil.rmtree(context)

    return cache.entry(f"images/{name}", make, *(_RECIPES / file for file in recipe), code=_CODE, suffix=".tar")


def _make_base(tag: str, architecture: str, draft: Path) -> None:
    """Install Debian into a directory, and build the image from a tar of it."""
    context = draft.with_suffix(".context")
    cache.discard(context)
    context.mkdir(parents=True)
    root = context / "root"
    with (
        step(f"Install Debian for {architecture}", f"debootstrap {debianroot.SUITE} with Python and keepalived"),
        foreign.emulated(architecture),
    ):
        debianroot.make(root, architecture)
    run(
        ["tar", "--create", f"--file={context / 'root.tar'}", f"--directory={root}", "--one-file-system", "."],
        timeout=600,
    )
    with step("Build the base image", "from that directory"):
        recipe = _RECIPES / "base.dockerfile"
        buildah.build(tag, dockerfile=recipe, context=context, archive=draft, architecture=architecture)
    shutil.rmtree(context)


def _copied(dockerfile: Path, context: Path) -> list[Path]:
    """The files that a Dockerfile copies: a change of one makes the image stale."""
    text = dockerfile.read_text().replace("\\\n", " ")
    found: list[Path] = []
    for line in re.findall(r"^\s*(?:COPY|ADD)\s+(.*)$", text, re.MULTILINE | re.IGNORECASE):
        if "--from=" in line:
            continue
        words = [word for word in re.split(r'[\s,\["\]]+', line) if word and not word.startswith("--")]
        found += [file for pattern in words[:-1] for file in _files(context, pattern)]
    return sorted(set(found))


def _files(context: Path, pattern: str) -> list[Path]:
    if pattern in {".", "./"}:
        raise TestbedError(
            "the Dockerfile copies its whole directory: name what it needs, so that it is known when to build"
        )
    named = list(context.glob(pattern.strip("/")))
    inside = (file for path in named for file in ([path] if path.is_file() else path.rglob("*")))
    return [file for file in inside if file.is_file() and "__pycache__" not in file.parts]
