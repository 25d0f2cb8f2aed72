"""
What tests on a cluster have in common: how kavip is installed, and how they stay out of each other's way.

They run in any order, and each alone. Who comes next finds no Service, pool or namespace of the one before.
"""

from hack.demo.__main__ import REPOSITORY, TAG
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from tests import files

OWN = f"--namespace={files.NAMESPACE}"
RELEASE = ("kavip", str(files.CHART), OWN, "--wait=watcher", f"--set=image.repository={REPOSITORY},image.tag={TAG}")
"""What `helm upgrade` is told."""

PATIENCE = 240.0


def made(cluster: Cluster, *namespaces: str) -> None:
    """Make *namespaces*, as soon as what a test before had in them is gone: its pods hold ports and addresses."""
    for name in namespaces:
        insist(cluster, "create", "namespace", name)


def removed(cluster: Cluster, *what: tuple[str, ...]) -> None:
    """Delete, in this order; again where kavip does not answer yet, or has not seen yet that a pool is free."""
    for each in what:
        insist(cluster, "delete", *each, "--ignore-not-found", "--timeout=60s")


def insist(cluster: Cluster, *command: str) -> None:
    """Have kubectl try until it succeeds."""

    def succeeds() -> bool:
        return cluster.kubectl(*command, check=False).returncode == 0

    wait_for(f"kubectl {' '.join(command)} succeeds", succeeds, timeout=PATIENCE, interval=1)
