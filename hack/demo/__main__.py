"""``make demo``: start a cluster, install kavip, do what a user does. The exit status is 1 if a claim does not hold."""

import sys
import time
from pathlib import Path

import click

from hack.demo import corruption, migration, page, steps
from hack.demo.session import Session
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


def run_steps(session: Session) -> None:
    """Run all steps."""
    steps.install(session, repository=REPOSITORY, tag=TAG)
    steps.refuse(session)
    steps.use(session)
    steps.assign(session)
    steps.spread(session)
    steps.avoid_conflict(session)
    steps.add(session)
    steps.look(session)
    page.look_at_page(session, steps.SERVICE)
    steps.drain(session)
    steps.measure_memory(session)
    corruption.stop_kavip(session)
    steps.kill(session)
    corruption.break_config(session, service=steps.SERVICE)
    steps.remove(session)
    migration.take_over(session)
    steps.power_off(session)


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
            session = Session(cluster)
            session.title("The cluster")
            session.kubectl("get", "nodes", "-o", "wide")
            run_steps(session)
            session.figure("Wall time", f"{time.monotonic() - ready:.0f} s")
            session.figure("Before that, to have programs and images", f"{ready - began:.0f} s")
            good = session.summary()
            page.offer(session)
        finally:
            cluster.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
