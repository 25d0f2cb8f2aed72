"""buildah without a daemon, a registry or a configuration of the machine: one image store in the cache.

It works as root in a container too: files are copied instead of stacked (vfs) and RUN is a chroot.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.testbed import cache, need
from hack.testbed.place import run

_ANYTHING = {"default": [{"type": "insecureAcceptAnything"}]}


def build(
    tag: str,
    *,
    dockerfile: Path,
    context: Path,
    archive: Path,
    args: Mapping[str, str] | None = None,
    volumes: Sequence[str] = (),
    keep: bool = False,
) -> None:
    """Build an image and write it as a docker-archive; `keep` it in the store when others build upon it."""
    need.packages(f"image {tag}", need.IMAGES)
    options = [f"--build-arg={name}={value}" for name, value in (args or {}).items()]
    options += [f"--volume={volume}" for volume in volumes]
    options += [f"--cni-config-dir={cache.root() / 'containers/cni'}"]  # unused, but made: by default below /etc
    options += [
        "--pull=never",
        "--isolation=chroot",
        "--network=host",
        "--format=docker",
        f"--signature-policy={_policy()}",
    ]
    with cache.lock("containers"):
        _buildah("build", *options, f"--tag={tag}", f"--file={dockerfile}", str(context))
        _buildah("push", f"--signature-policy={_policy()}", tag, f"docker-archive:{archive}:{tag}")
        if not keep:
            _buildah("rmi", tag)


def load(tag: str, archive: Path) -> None:
    """Have an image in the store that was built and archived earlier."""
    with cache.lock("containers"):
        if _buildah("images", "--quiet", tag, check=False):
            return
        _buildah("pull", f"--signature-policy={_policy()}", f"docker-archive:{archive}")


def _buildah(*args: str, check: bool = True) -> str:
    store = cache.root() / "containers"
    where = [f"--root={store / 'root'}", f"--runroot={store / 'run'}", "--storage-driver=vfs"]
    return run(["buildah", *where, *args], check=check, timeout=1800).stdout


@functools.cache
def _policy() -> Path:
    """A signature policy that takes our own unsigned images; the machine may have none at all."""
    path = cache.root() / "policy.json"
    path.write_text(json.dumps(_ANYTHING))
    return path
