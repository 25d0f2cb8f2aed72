"""The images of the testbed, each a docker-archive in the cache, named by what it was built from.

pause   holds a pod's namespaces
web     a web server that answers with the name of its pod
base    Debian with Python and keepalived: replaces the official Python image below kavip's own
kavip   any Dockerfile of the checkout, on the base image, with wheels that pip fetched on this machine
"""

import functools
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.testbed import buildah, cache, debian, need, place
from hack.testbed.errors import TestbedError
from hack.testbed.place import build_environment, run
from hack.testbed.progress import step

PAUSE = "localhost/pause:1"
WEB = "localhost/web:1"
BASE = "localhost/kavip-base"
PACKAGES = ("python3", "python3-pip", "python3-venv", "keepalived", "iproute2", "ca-certificates")
KEYRING = debian.PACKAGES["debian-archive-keyring"]  # Debian's own keys, whichever mirror is used
_CODE = (buildah, place)  # what builds an image, besides this module
_KEEP = 3  # archives of one tag: each is a third of a gigabyte
_RECIPES = Path(__file__).parent / "images"
_STRIP = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache/apt", "var/lib/apt/lists")


def pause() -> Path:
    """The archive of PAUSE."""
    return _small(PAUSE, "pause", ["pause.c", "pause.dockerfile"])


def web() -> Path:
    """The archive of WEB."""
    return _small(WEB, "web", ["web.c", "web.dockerfile"])


def base() -> tuple[str, Path]:
    """Name and archive of the base image; the first time this takes about a minute."""
    need.packages("the base image", need.IMAGES)
    inputs = (_RECIPES / "base.dockerfile", *PACKAGES, *_STRIP)
    path = cache.place_of("images/base", _debootstrap, *inputs, code=_CODE, suffix=".tar")
    # so that two checkouts with different bases do not use each other's image
    tag = f"{BASE}:bookworm-{path.stem.removeprefix('base-')}"
    build = functools.partial(_debootstrap, tag)
    return tag, cache.entry("images/base", build, *inputs, code=_CODE, suffix=".tar")


def image(
    tag: str,
    *,
    dockerfile: Path,
    base_tag: str | None = None,
    args: Mapping[str, str] | None = None,
    volumes: Sequence[str] = (),
    requirements: Path | None = None,
) -> Path:
    """
    The archive of an image of a checkout, on our base image unless another is named.

    It is built again only when one of its inputs changed.
    """
    context = dockerfile.absolute().parent
    inputs = [*_copied(dockerfile, context), dockerfile]
    if base_tag is None:
        base_tag, archive = base()
        buildah.load(base_tag, archive)
    args = {"BASE": base_tag, **(args or {})}
    if requirements:
        wheels = download(requirements)
        args["PIP_ARGS"] = "--no-index --find-links /wheels"
        volumes = [*volumes, f"{wheels}:/wheels:ro"]
    names = [str(path.relative_to(context)) for path in inputs]
    named = (tag, repr(sorted(args.items())), repr(sorted(volumes)), repr(names))

    def make(draft: Path) -> None:
        with step(f"Build image {tag}", f"from {dockerfile.name}, on {base_tag}"):
            buildah.build(tag, dockerfile=dockerfile, context=context, archive=draft, args=args, volumes=volumes)

    name = re.sub(r"[^a-z0-9.]+", "-", tag.lower())
    archive = cache.entry(f"images/{name}", make, *named, *inputs, code=_CODE, suffix=".tar")
    cache.prune(f"images/{name}-*.tar", keep=_KEEP)
    return archive


def download(requirements: Path) -> Path:
    """A directory with the wheels that a requirements file pins, for the Python of the base image."""

    def make(draft: Path) -> None:
        options = ["--quiet", "--require-hashes", "--only-binary=:all:", "--python-version=3.11"]
        with step("Download wheels", f"what {requirements.name} pins, for the image"):
            run(
                [sys.executable, "-m", "pip", "download", *options, f"--requirement={requirements}", f"--dest={draft}"],
                timeout=1800,
            )

    return cache.entry("wheels", make, requirements, code=[place])


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


def _debootstrap(tag: str, draft: Path) -> None:
    """Install Debian into a directory, remove what an image does not need, and build the image from a tar of it."""
    context = draft.with_suffix(".context")
    cache.discard(context)
    context.mkdir(parents=True)
    root = context / "root"
    with step("Install Debian for the base image", "debootstrap with Python and keepalived; about a minute"):
        # in a mount namespace of its own, so that nothing stays mounted below it if it is interrupted
        command = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        command += [f"--keyring={KEYRING}", "--force-check-gpg"]  # without a keyring it would only warn
        run([*command, "bookworm", str(root), *_mirror()], timeout=1800, env=build_environment(), inherit=False)
    for path in _STRIP:
        cache.discard(root / path)
    for needed in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):
        (root / needed).mkdir(parents=True)
    run(
        ["tar", "--create", f"--file={context / 'root.tar'}", f"--directory={root}", "--one-file-system", "."],
        timeout=600,
    )
    with step("Build the base image", "from that directory"):
        buildah.build(tag, dockerfile=_RECIPES / "base.dockerfile", context=context, archive=draft)
    shutil.rmtree(context)


def _mirror() -> list[str]:
    """
    The URL from which this machine's own apt gets bookworm; empty if it does not, then debootstrap has its default.
    """
    form = ["--format", "$(REPO_URI)", "Codename: bookworm", "Component: main", "Identifier: Packages"]
    done = run(["apt-get", "indextargets", *form], check=False)
    return done.stdout.split()[:1]


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
