"""The commands of a release: `python -m hack.release COMMAND`, from the root of the repository."""

import os
import sys
from pathlib import Path

import click

from hack.release import build as building
from hack.release import publish, source
from hack.testbed import foreign
from hack.testbed.errors import TestbedError
from hack.testbed.progress import say

DIST = click.option("--dist", type=click.Path(path_type=Path), default="dist", show_default=True, help="The folder.")
KEY = click.option(
    "--key", default=lambda: os.environ.get("COSIGN_KEY", ""), help="Private key of cosign, or its URI. [$COSIGN_KEY]"
)


@click.group()
def main() -> None:
    """Make and publish a release of kavip."""


@main.command("build")
@click.argument("version")
@click.option("--revision", default="HEAD", show_default=True, help="What is released.")
@click.option("--registry", default="localhost", show_default=True, help="Where image and chart will be.")
@click.option("--url", default="", help="Where the files of dist/ will be, for krew. [https://REGISTRY/VERSION]")
@click.option("--arch", "architectures", multiple=True, help="[amd64 and arm64]")
@click.option("--replaces", default="", help="For OLM: the ClusterServiceVersion before this one, as kavip.v0.9.0.")
@click.option("--unlocked", is_flag=True, help="Accept Debian packages that differ from requirements/debian-*.txt.")
@DIST
@KEY
def build(
    version: str,
    revision: str,
    registry: str,
    url: str,
    architectures: tuple[str, ...],
    dist: Path,
    key: str,
    *,
    replaces: str,
    unlocked: bool,
) -> None:
    """Write the release of VERSION to dist/."""
    with source.export(version, revision) as found:
        building.build(
            found,
            dist.absolute(),
            registry=registry,
            architectures=architectures or tuple(foreign.ARCHITECTURES),
            url=url or f"https://{registry}/{version}",
            key=key,
            replaces=replaces,
            locked=not unlocked,
        )
    if registry == "localhost":
        say("REGISTRY is not set: chart and install.yaml name localhost/kavip; set image.registry where you install")
    if not key:
        say("COSIGN_KEY is not set: nothing is signed")
    click.echo((dist / building.SUMS).read_text(), nl=False)


@main.command("publish")
@click.argument("registry")
@DIST
@KEY
@click.option("--ca", type=click.Path(path_type=Path, file_okay=False), help="A folder with the registry's CA, ca.crt.")
def publish_release(registry: str, dist: Path, key: str, ca: Path | None) -> None:
    """Push image and chart of dist/ to REGISTRY, and sign them."""
    publish.push(dist.absolute(), registry, key=key, ca=ca)


if __name__ == "__main__":
    try:
        main()
    except TestbedError as error:
        say(f"release: {error}")
        sys.exit(1)
