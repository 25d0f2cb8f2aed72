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
from hack.testbed.images import WEB
from hack.testbed.process import wait_for
from tests.app.conftest import object_of
from tests.support import manifests

OWN = f"--namespace={manifests.NAMESPACE}"
IMAGE = f"--set=image.repository={REPOSITORY},image.tag={TAG}"
PATIENCE = 240.0
WEB_LABELS = {"app": "web"}
REQUESTS = {"requests": {"cpu": "100m"}}
"""Of containers that answer for a VIP: without a request, a busy machine leaves them next to no time."""
_WEBHOOK = Path("templates") / "webhook.yaml"
_LONGEST = "timeoutSeconds: 30"


def chart(cluster: Cluster) -> Path:
    """
    The chart, with the longest webhook timeout that an API server allows.

    Otherwise a machine that stalls for seconds loses a call, and an unrelated test fails.
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


def create_namespaces(cluster: Cluster, *namespaces: str) -> None:
    """Create *namespaces*, after those of an earlier test are deleted: its pods hold ports and addresses."""
    for name in namespaces:
        retry_kubectl(cluster, "create", "namespace", name)


def apply_objects(cluster: Cluster, *objects: dict[str, Any]) -> None:
    """Apply objects, and retry while a replica of kavip has not seen what an object refers to."""
    for each in objects:
        retry_kubectl(cluster, "apply", "--filename=-", stdin=json.dumps(each))


def web_deployment(*, replicas: int = 1) -> dict[str, Any]:
    """A web server in the namespace shop, for Services that select `WEB_LABELS`."""
    pod = {"containers": [{"name": "web", "image": WEB, "resources": REQUESTS}]}
    template = {"metadata": {"labels": WEB_LABELS}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": WEB_LABELS}, "template": template}
    return object_of("Deployment", "web", namespace="shop", version="apps/v1", spec=spec)


def delete_objects(cluster: Cluster, *what: tuple[str, ...]) -> None:
    """Delete in this order, and retry while kavip does not answer or has not seen that a pool is free."""
    for each in what:
        retry_kubectl(cluster, "delete", *each, "--ignore-not-found", "--timeout=60s")


def retry_kubectl(cluster: Cluster, *command: str, stdin: str | None = None) -> None:
    """Run kubectl until it succeeds; a failure shows its last error."""
    stderr = ""

    def succeeds() -> bool:
        nonlocal stderr
        done = cluster.kubectl(*command, input=stdin, check=False)
        stderr = done.stderr
        return done.returncode == 0

    try:
        wait_for(f"kubectl {' '.join(command)} succeeds", succeeds, timeout=PATIENCE, interval=1)
    except TestbedError as error:
        raise AssertionError(f"{error}: {stderr}") from None
