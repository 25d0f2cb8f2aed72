"""The bundle and the catalog for the Operator Lifecycle Manager, which `make bundle` writes of the release's files."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hack.release import tarball
from hack.release.source import Source
from hack.testbed.place import run

_TIMEOUT: Final = 1800.0


def write(source: Source, out: Path, *, repository: str, digest: str, replaces: str = "") -> None:
    """Write an archive of both; *replaces*: the ClusterServiceVersion of the release before."""
    with TemporaryDirectory() as folder:
        images = (f"--image={repository}@{digest}", f"--bundle-image={repository}-bundle:{source.version}")
        command = [sys.executable, "-m", "hack.bundle", *images, f"--replaces={replaces}", f"--output={folder}"]
        run(command, cwd=source.tree, timeout=_TIMEOUT)  # the first time, it builds the code of OLM that checks them
        tarball.write_compressed(out, tarball.files_below(Path(folder)), epoch=source.epoch)
