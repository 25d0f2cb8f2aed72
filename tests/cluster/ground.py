"""
Helpers of the tests on a cluster: they install kavip, and isolate tests from each other.

The tests run in any order, and each alone. The next test finds no Service, pool or namespace of the previous one.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from hack.demo.__main__ import REPOSITORY, TAG
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from hack.testbed.process import wait_for
from tests.support import manifests

OWN = f"--namespace={manifests.NAMESPACE}"
IMAGE = f"--set=image.repository={REPOSITORY},image.tag={TAG}"
PATIENCE = 240.0
_WEBHOOK = Path("templates") / "webhook.yaml"
_LONGEST = "timeoutSeconds: 30"


def chart(cluster: Cluster) -> Path:
    """
    The chart, with the longest webhook timeout that an API server allows.

    Otherwise a machine that stalls for seconds loses a call, and a test that is about something else fails.
    """
    folder = cluster.state / "chart"
    if not folder.exists():
        shutil.copytree(manifests.CHART, folder)
        text, changed = re.subn(r"timeoutSeconds: \d+", _LONGEST, (folder / _WEBHOOK).read_text())
        assert changed
        (folder / _WEBHOOK).write_text(text)
    return folder


def release(cluster: Cluster) -> tuple[str, ...]:
    """The arguments of `helm upgrade`."""
    return "kavip", str(chart(cluster)), OWN, "--wait=watcher", IMAGE


def made(cluster: Cluster, *namespaces: str) -> None:
    """Make *namespaces* as soon as those of an earlier test are gone: its pods hold ports and addresses."""
    for name in namespaces:
        insist(cluster, "create", "namespace", name)


def applied(cluster: Cluster, *objects: dict[str, Any]) -> None:
    """Apply objects, and retry while a replica of kavip has not seen what an object refers to."""
    for each in objects:
        insist(cluster, "apply", "--filename=-", given=json.dumps(each))


def removed(cluster: Cluster, *what: tuple[str, ...]) -> None:
    """Delete in this order, and retry while kavip does not answer or has not seen that a pool is free."""
    for each in what:
        insist(cluster, "delete", *each, "--ignore-not-found", "--timeout=60s")


def insist(cluster: Cluster, *command: str, given: str | None = None) -> None:
    """Run kubectl until it succeeds; a failure shows its last error."""
    said = ""

    def succeeds() -> bool:
        nonlocal said
        done = cluster.kubectl(*command, input=given, check=False)
        said = done.stderr
        return done.returncode == 0

    try:
        wait_for(f"kubectl {' '.join(command)} succeeds", succeeds, timeout=PATIENCE, interval=1)
    except TestbedError as error:
        raise AssertionError(f"{error}: {said}") from None
