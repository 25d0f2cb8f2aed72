"""``make demo``: start a cluster, install kavip, do what a user does. Exit status 1 when anything was not as told."""

import sys
import time
from pathlib import Path

import click

from hack.demo import acts, corruption, migration
from hack.demo.story import Story
from hack.testbed import images, prepare, programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.progress import step

ROOT = Path(__file__).parents[2]
REPOSITORY, TAG = "localhost/kavip", "demo"


def image() -> Path:
    """kavip's own image as an archive."""
    return images.image(
        f"{REPOSITORY}:{TAG}", dockerfile=ROOT / "Dockerfile", requirements=ROOT / "requirements" / "run.txt"
    )


def tell(story: Story) -> None:
    """The whole story."""
    acts.install(story, repository=REPOSITORY, tag=TAG)
    acts.refuse(story)
    acts.use(story)
    acts.assign(story)
    acts.add(story)
    acts.look(story)
    corruption.dismiss(story)
    acts.kill(story)
    corruption.deliver(story, service=acts.SERVICE)
    acts.remove(story)
    migration.take_over(story)
    acts.power_off(story)


@click.command()
def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    built = prepare.everything(programs.CLUSTER, image)
    archive = image()
    ready = time.monotonic()
    with runs.temporary() as state:
        cluster = Cluster(built, state, nodes=3, images=[archive])
        with step("Start a cluster", "three nodes, each a machine of namespaces with kubelet and containerd"):
            cluster.start()
        try:
            story = Story(cluster)
            story.title("The cluster")
            story.kubectl("get", "nodes", "-o", "wide")
            tell(story)
            story.figure("Wall time", f"{time.monotonic() - ready:.0f} s")
            story.figure("Before that, to have programs and images", f"{ready - began:.0f} s")
            good = story.summary()
        finally:
            cluster.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
