"""A node that shuts down gives its VIP to another node first, by kubelet or by a unit of systemd."""

from collections.abc import Iterator
from typing import Final

import pytest

from hack.demo.__main__ import image
from hack.testbed.cluster import Cluster
from hack.testbed.fixtures import Clusters
from hack.testbed.process import wait_for
from hack.testbed.systemdnode import SystemdNode
from kavip import names
from tests.app.conftest import a_group
from tests.cluster.provisioning import PATIENCE, apply_objects, create_namespaces, release
from tests.cluster.test_checks import has, state
from tests.support import manifests
from tests.transitions.livegroup import serve_vips
from tests.transitions.recording import Recording, instances, requested, router_ids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

VIP = "192.0.2.252"
UNIT = "kavip-hand-over"
PAGE = (manifests.ROOT / "docs" / "howto" / "drain.md").read_text()
GRACE: Final[dict[str, object]] = {"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "15s"}


@pytest.fixture
def three(cluster: Clusters) -> Iterator[Cluster]:
    """Three nodes on systemd with a group; its VIP belongs on the first, and then on the second."""
    found = cluster(nodes=3, images=(image(),), kind=SystemdNode)
    found.helm("upgrade", "--install", *release(found), "--create-namespace", "--set=replicaCount=2")
    create_namespaces(found, "lb")
    preferred = [
        {"weight": weight, "nodeSelector": {"kubernetes.io/hostname": node.name}}
        for weight, node in zip((100, 50), found.nodes, strict=False)
    ]
    vips = [{"address": f"{VIP}/24"}]
    apply_objects(found, a_group("edge", virtualIPs=vips, placement={"preferred": preferred}))
    yield found
    cluster.end()  # nodes of it are off


def by_kubelet(node: SystemdNode, cluster: Cluster) -> None:
    """Let kubelet delay the shutdown."""
    node.kubelet = GRACE
    node.join(cluster.state)


def by_unit(node: SystemdNode, _: Cluster) -> None:
    """Install the unit of the page; systemd finds no fault in it."""
    node.write_unit(UNIT, PAGE.partition("```ini\n")[2].partition("```")[0])
    found = node.exec("systemd-analyze", "verify", f"{UNIT}.service")
    assert UNIT not in found.stdout + found.stderr
    node.exec("systemctl", "enable", "--now", UNIT)


def roles(cluster: Cluster) -> list[str]:
    """The states of the instance on the nodes that are on, by node."""
    reports = (state(node, names.AGENT_PORT) for node in cluster.nodes if node.running)
    return [each["state"] for report in reports for each in report.get("instances", ())]


def test_a_shutdown_loses_no_answer(three: Cluster) -> None:
    """Another node is master before the first one stops, by kubelet; and before the second one stops, by the unit."""
    for node in three.nodes:
        serve_vips(node)
    for node, prepare, others in zip(three.nodes, (by_kubelet, by_unit), (2, 1), strict=False):
        assert isinstance(node, SystemdNode)
        prepare(node, three)
        expected = ["MASTER", *["BACKUP"] * others]
        wait_for("it is master", lambda now=expected: roles(three) == now, timeout=PATIENCE, interval=1)  # type: ignore[misc]  # a default
        path = r"--output=jsonpath={.data.keepalived\.conf}"
        text = three.kubectl("get", "configmap", "edge", "--namespace=lb", path).stdout
        recorded = Recording(router_ids=router_ids(text), instances=instances(text, [VIP]))
        with requested(three, [VIP], recorded, masters=1):
            node.exec("systemctl", "poweroff")
            wait_for("it is off", lambda node=node: not node.running, timeout=PATIENCE)  # type: ignore[misc]  # a default
        assert recorded.moved_cleanly(VIP, moves=1), recorded.timeline()
    assert has(three.nodes[2], VIP)
