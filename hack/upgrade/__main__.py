"""Upgrade from COMMIT on a new cluster for each way."""

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from hack.demo.__main__ import image
from hack.testbed import images, programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.progress import say, step
from hack.upgrade import measure, ways
from hack.upgrade.release import Release

ROOT: Final = Path(__file__).parents[2]
WAYS: Final = {*ways.OF_A_CHECKOUT, *ways.OF_A_RELEASE}


@contextmanager
def source_tree(commit: str) -> Iterator[Path]:
    """The files of *commit* in a temporary directory."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as found:
        found.extractall(folder, filter="data")
        yield Path(folder)


def older_image(tree: Path) -> Path:
    """The image of an older source tree, as an archive."""
    requirements = tree / "requirements" / "run.txt"
    return images.image(ways.OLDER, dockerfile=tree / "Dockerfile", requirements=requirements)


def upgraded(name: str, tree: Path, vips: int) -> bool:
    """Upgrade by the way *name*, on a new cluster; returns whether nothing was lost or changed."""
    built = programs.ensure()
    with runs.temporary() as state:
        cluster = Cluster(built, state, nodes=2, images=[older_image(tree), image()])
        release = Release.for_cluster(cluster) if name in ways.OF_A_RELEASE else None
        with step("Start a cluster", "two nodes"):
            cluster.start()
        try:
            if release:
                return measure.measure(cluster, ways.OF_A_RELEASE[name](cluster, tree, release), vips)
            return measure.measure(cluster, ways.OF_A_CHECKOUT[name](cluster, tree), vips)
        finally:
            cluster.stop()


@click.command()
@click.argument("commit")
@click.option("--by", "names", type=click.Choice(sorted(WAYS)), multiple=True, default=["helm"], show_default=True)
@click.option("--vips", default=0, show_default=True, help="VIPs of two more groups, one of them with OnDelete.")
def main(commit: str, names: tuple[str, ...], vips: int) -> None:
    """Upgrade from COMMIT, and roll back."""
    good = True
    with source_tree(commit) as older:
        for name in names:
            held = upgraded(name, older, vips)
            say(f"{name}: {'nothing was lost or changed' if held else 'something was lost or changed'}")
            good = good and held
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
