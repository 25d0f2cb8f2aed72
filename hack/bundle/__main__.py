"""``python -m hack.bundle``: write the bundle and the catalog for OLM, and let OLM's own code check them."""

import shutil
from pathlib import Path

import click

import kavip
from hack.bundle.csv import Release
from hack.bundle.files import files
from hack.testbed import programs
from hack.testbed.place import run
from hack.testbed.progress import say


@click.command()
@click.option("--image", default=f"localhost/kavip:{kavip.__version__}", show_default=True, help="kavip's, by digest.")
@click.option("--bundle-image", default=f"localhost/kavip-bundle:{kavip.__version__}", show_default=True)
@click.option("--replaces", default="", help="Name of the ClusterServiceVersion that this one replaces.")
@click.option("--created-at", default="", help="RFC 3339; only shown. Without it, two builds are equal.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("dist/olm"), show_default=True)
def main(*, image: str, bundle_image: str, replaces: str, created_at: str, output: Path) -> None:
    """Write the bundle and the catalog."""
    tools = programs.ensure(("helm", "olm"))
    shutil.rmtree(output, ignore_errors=True)
    for path, text in files(tools["helm"], Release(image, replaces, created_at), bundle_image=bundle_image).items():
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        (output / path).write_text(text)
    checked = run([tools["olm"], str(output / "bundle"), str(output / "catalog")], check=False)
    if checked.returncode:
        raise click.ClickException(checked.stdout + checked.stderr)
    say(f"{output}: the bundle and the catalog of {Release(image).name}")


main()
