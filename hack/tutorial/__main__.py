"""``make tutorial``: run the commands of the tutorial on a new cluster, and write their output into the page."""

import sys

import click

from hack.demo.__main__ import ROOT, TAG, image
from hack.testbed import prepare, programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from hack.testbed.progress import say, step
from hack.tutorial import pages
from hack.tutorial.alike import is_alike
from hack.tutorial.run import Terminal

_PATIENCE = 15.0  # seconds: an output that the page does not show yet is taken as it is then


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; the exit status is 1 if an output differs.")
def main(*, check: bool) -> None:
    """Run the commands of docs/tutorial.md, and write the outputs that differ into it."""
    built, archive = prepare.everything(programs.CLUSTER, image), image()
    with runs.temporary() as state:
        cluster = Cluster(built, state, nodes=3, images=[archive])
        with step("Start a cluster", "three nodes"):
            cluster.start()
        try:
            differing = _follow(Terminal(cluster, ROOT, {"image.tag=dev": f"image.tag={TAG}"}), is_written=not check)
        finally:
            cluster.stop()
    say(f"{differing} outputs differ from those of the page")
    sys.exit(1 if check and differing else 0)


def _follow(terminal: Terminal, *, is_written: bool) -> int:
    """Run all commands; return how many outputs differ from those of the page."""
    text, outputs, differing = pages.TUTORIAL.read_text(), list[str](), 0
    for command, printed in terminal.follow(pages.shown(text), patience=_PATIENCE):
        is_same = is_alike(command.output, printed.output)
        say(f"{'same   ' if is_same else 'differs'}  {command.command}")
        if not is_same:
            say(printed.output)
        differing += not is_same
        outputs.append(command.output if is_same else printed.output)
    if is_written:
        pages.TUTORIAL.write_text(pages.with_outputs(text, outputs))
    return differing


if __name__ == "__main__":
    try:
        main()
    except TestbedError as error:
        say(f"tutorial: {error}")
        sys.exit(1)
