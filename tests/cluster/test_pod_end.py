"""A pod that a real kubelet ends hands its VIPs over before keepalived stops."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from hack.demo.__main__ import image
from hack.testbed import process
from hack.testbed.cluster import Cluster
from hack.testbed.node import Node
from hack.testbed.process import wait_for
from tests.app.conftest import a_group
from tests.cluster.provisioning import PATIENCE, apply_objects, create_namespaces, release
from tests.cluster.test_checks import has

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

VIP = "192.0.2.252"
HANDED_OVER = {"event": "handed over", "left": []}


@pytest.fixture
def pair(cluster: Callable[..., Cluster]) -> Iterator[Cluster]:
    """Two nodes with a group whose VIP belongs on the first."""
    found = cluster(nodes=2, images=(image(),))
    found.helm("upgrade", "--install", *release(found), "--create-namespace", "--set=replicaCount=2")
    create_namespaces(found, "lb")
    first = {"weight": 100, "nodeSelector": {"kubernetes.io/hostname": found.nodes[0].name}}
    apply_objects(found, a_group("edge", virtualIPs=[{"address": f"{VIP}/24"}], placement={"preferred": [first]}))
    try:
        yield found
    finally:
        found.kubectl("delete", "namespace", "lb", "--wait=false")


def holders(found: Cluster) -> list[Node]:
    """The nodes that have the VIP."""
    return [node for node in found.nodes if has(node, VIP)]


def test_the_hook_hands_the_vip_over(pair: Cluster, tmp_path: Path) -> None:
    """The other node has the VIP before the pod ends, and no hook has failed."""
    rollout = ("rollout", "status", "daemonset", "edge", "--namespace=lb", f"--timeout={PATIENCE:.0f}s")
    holder = pair.nodes[0]
    wait_for("the node has the VIP", lambda: holders(pair) == [holder], timeout=PATIENCE, interval=1)
    pair.kubectl(*rollout)
    path = f"--output=jsonpath={{.items[?(@.spec.nodeName=='{holder.name}')].metadata.name}}"
    pod = pair.kubectl("get", "pods", "--namespace=lb", "--selector=keepalivedGroup=edge", path).stdout
    log = tmp_path / "agent.log"
    command = pair.plane.kubectl_command("logs", "--follow", pod, "--namespace=lb", "--container=agent")
    follower = process.spawn(command, log=log)
    try:
        wait_for("its log is read", lambda: log.stat().st_size > 0, timeout=PATIENCE)
        pair.kubectl("delete", "pod", pod, "--namespace=lb", "--wait=false")
        wait_for("it hands over", partial(has_event, log, HANDED_OVER), timeout=PATIENCE)
    finally:
        process.kill([follower])
    wait_for("it has the VIP again", lambda: holders(pair) == [holder], timeout=PATIENCE, interval=1)
    failed = "--field-selector=reason=FailedPreStopHook"
    assert pair.kubectl("get", "events", "--namespace=lb", failed, "--output=name").stdout == ""


def has_event(log: Path, event: Mapping[str, object]) -> bool:
    """Whether *log* has a line with the fields of *event*."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return any(event.items() <= line.items() for line in lines)
