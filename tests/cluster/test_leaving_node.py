"""On a real kubelet VIPs leave a pod that ends before keepalived stops, and a node soon after it is cordoned."""

import json
import time
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
    placement = {"preferred": [first]}
    try:
        apply_objects(
            found,
            a_group("edge", virtualIPs=[{"address": f"{VIP}/24"}], placement=placement, drainOn=["Cordon"]),
        )
        wait_for("the node has the VIP", lambda: holders(found) == found.nodes[:1], timeout=PATIENCE, interval=1)
        found.kubectl("rollout", "status", "daemonset", "edge", "--namespace=lb", f"--timeout={PATIENCE:.0f}s")
        yield found
    finally:
        found.kubectl("delete", "namespace", "lb", "--wait=false")


def holders(found: Cluster) -> tuple[Node, ...]:
    """The nodes that have the VIP."""
    return tuple(node for node in found.nodes if has(node, VIP))


def test_the_hook_hands_the_vip_over(pair: Cluster, tmp_path: Path) -> None:
    """The other node has the VIP before the pod ends, and no hook has failed."""
    holder = pair.nodes[0]
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
    wait_for("it has the VIP again", lambda: holders(pair) == (holder,), timeout=PATIENCE, interval=1)
    failed = "--field-selector=reason=FailedPreStopHook"
    assert pair.kubectl("get", "events", "--namespace=lb", failed, "--output=name").stdout == ""


def test_a_cordoned_node_loses_its_vip(pair: Cluster) -> None:
    """The other node has it soon, and the first again when the node is uncordoned."""
    first, second = pair.nodes
    seconds = list[float]()
    for _ in range(5):
        begun = time.monotonic()
        pair.kubectl("cordon", first.name)
        wait_for("the other node has the VIP", lambda: holders(pair) == (second,), timeout=PATIENCE)
        seconds.append(time.monotonic() - begun)
        pair.kubectl("uncordon", first.name)
        wait_for("the first node has it again", lambda: holders(pair) == (first,), timeout=PATIENCE)
    print("VIP left after", *(f"{each:.1f}" for each in seconds), "s")  # noqa: T201 - a figure for docs/howto/drain.md


def has_event(log: Path, event: Mapping[str, object]) -> bool:
    """Whether *log* has a line with the fields of *event*."""
    whole = log.read_text().rpartition("\n")[0]  # kubectl may be writing the last line
    lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return any(event.items() <= line.items() for line in lines)
