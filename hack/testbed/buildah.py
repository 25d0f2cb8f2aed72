"""buildah without a daemon, a registry or a configuration of the machine: one image store in the cache.

RUN is a chroot, so no container runtime is involved. Layers are kept: after a change of the code only the last ones are
made again.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.testbed import cache, need, place
from hack.testbed.place import build_environment, run

_ANYTHING = {"default": [{"type": "insecureAcceptAnything"}]}


def build(
    tag: str,
    *,
    dockerfile: Path,
    context: Path,
    archive: Path,
    args: Mapping[str, str] | None = None,
    volumes: Sequence[str] = (),
    architecture: str = "",
) -> None:
    """Build an image and write it as a docker-archive; it stays in the store for others to build upon."""
    need.packages(f"image {tag}", need.IMAGES)
    options = [f"--build-arg={name}={value}" for name, value in (args or {}).items()]
    options += [f"--volume={volume}" for volume in volumes]
    options += [f"--arch={architecture}"] if architecture else []
    options += [f"--cni-config-dir={_store() / 'cni'}"]  # unused, but made: by default below /etc
    options += [
        "--layers",
        "--pull=never",
        "--isolation=chroot",
        "--network=host",
        "--format=docker",
        f"--signature-policy={_policy()}",
    ]
    with cache.lock("containers"):
        _buildah("build", *options, f"--tag={tag}", f"--file={dockerfile}", str(context))
        _buildah("push", f"--signature-policy={_policy()}", tag, f"docker-archive:{archive}:{tag}")
        _buildah("rmi", "--prune", check=False)  # the image that had the tag before


def load(tag: str, archive: Path) -> None:
    """Load an image that was built and archived earlier into the store."""
    with cache.lock("containers"):
        if _buildah("images", "--quiet", tag, check=False):
            return
        _buildah("pull", f"--signature-policy={_policy()}", f"docker-archive:{archive}")


def _buildah(*args: str, check: bool = True) -> str:
    where = [f"--root={_store() / 'root'}", f"--runroot={_store() / 'run'}", "--storage-driver=overlay"]
    command = ["buildah", *where, *args]
    return run(command, check=check, timeout=1800, env=build_environment(), inherit=False).stdout


@functools.cache
def _store() -> Path:
    """The directory of images and layers; layers of an earlier version of this module are not used."""
    return cache.place_of("containers", build, code=[place])


@functools.cache
def _policy() -> Path:
    """A signature policy that accepts our own unsigned images; the machine may have no policy at all."""
    path = cache.root() / "policy.json"
    path.write_text(json.dumps(_ANYTHING))
    return path
