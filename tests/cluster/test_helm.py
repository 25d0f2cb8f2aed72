"""`helm test` on a real cluster: it passes where kavip answers, and fails where it does not."""

import json
from collections.abc import Callable

import pytest

from hack.demo.__main__ import REPOSITORY, TAG, image
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from tests import files

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OWN = f"--namespace={files.NAMESPACE}"
HOOKS = "pods,serviceaccounts,roles,rolebindings"


@pytest.fixture
def installed(cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of one node with kavip on it, and that is all."""
    found = cluster(nodes=1, images=(image(),))
    values = {"image": {"repository": REPOSITORY, "tag": TAG}}
    arguments = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    found.helm("install", "kavip", str(files.CHART), OWN, "--create-namespace", "--wait=watcher", *arguments)
    return found


def test_helm_test_tells_whether_kavip_answers(installed: Cluster) -> None:
    """The test passes and leaves nothing; with kavip scaled to zero it fails, and its log says who did not answer."""
    done = installed.helm("test", "kavip", OWN, "--logs")
    assert "refused, as it should be" in done.stdout
    assert "let through, as it should be" in done.stdout
    left = installed.kubectl("get", HOOKS, "--all-namespaces", "--output=name").stdout
    assert "kavip-test" not in left

    installed.kubectl("scale", "deployment", "kavip", OWN, "--replicas=0")
    wait_for("the pods are gone", lambda: not pods(installed), timeout=120, interval=1)
    failed = installed.helm("test", "kavip", OWN, "--logs", "--timeout=240s", check=False)
    assert failed.returncode
    log = installed.kubectl("logs", "kavip-test", OWN).stdout
    assert "not refused by kavip" in log
    assert "failed calling webhook" in log


def pods(cluster: Cluster) -> str:
    """kavip's pods."""
    return cluster.kubectl("get", "pods", OWN, "--selector=app.kubernetes.io/name=kavip", "--output=name").stdout
