"""A node that shuts down gives its VIP to another node first, by kubelet or by a unit of systemd."""

from collections.abc import Callable, Iterator
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
def pair(cluster: Clusters) -> Iterator[Cluster]:
    """Two nodes on systemd with a group; its VIP belongs on the first."""
    found = cluster(nodes=2, images=(image(),), kind=SystemdNode)
    found.helm("upgrade", "--install", *release(found), "--create-namespace", "--set=replicaCount=2")
    create_namespaces(found, "lb")
    first = {"weight": 100, "nodeSelector": {"kubernetes.io/hostname": found.nodes[0].name}}
    vips = [{"address": f"{VIP}/24"}]
    apply_objects(found, a_group("edge", virtualIPs=vips, placement={"preferred": [first]}))
    yield found
    cluster.end()  # a node of it is off


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
    """The states of the instance, by node."""
    reports = (state(node, names.AGENT_PORT) for node in cluster.nodes)
    return [each["state"] for report in reports for each in report.get("instances", ())]


@pytest.mark.parametrize("prepare", [by_kubelet, by_unit])
def test_a_shutdown_loses_no_answer(pair: Cluster, prepare: Callable[[SystemdNode, Cluster], None]) -> None:
    """The other node is master before the first one stops."""
    first, second = pair.nodes
    assert isinstance(first, SystemdNode)
    prepare(first, pair)
    for node in pair.nodes:
        serve_vips(node)
    wait_for("the first node is master", lambda: roles(pair) == ["MASTER", "BACKUP"], timeout=PATIENCE, interval=1)
    path = r"--output=jsonpath={.data.keepalived\.conf}"
    text = pair.kubectl("get", "configmap", "edge", "--namespace=lb", path).stdout
    recorded = Recording(router_ids=router_ids(text), instances=instances(text, [VIP]))
    with requested(pair, [VIP], recorded, masters=1):
        first.exec("systemctl", "poweroff")
        wait_for("it is off", lambda: not first.running, timeout=PATIENCE)
    assert has(second, VIP)
    assert recorded.moved_cleanly(VIP, moves=1), recorded.timeline()
    print(recorded.timeline())  # noqa: T201 - shown by -s
