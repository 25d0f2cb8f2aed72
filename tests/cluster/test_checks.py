"""Health checks and static pods on a real kubelet: the presets' addresses answer on a real node."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from hack.demo.__main__ import REPOSITORY, TAG
from hack.testbed.cluster import Cluster
from hack.testbed.node import Node
from hack.testbed.process import wait_for
from kavip import names
from kavip.cli.main import cli
from tests.agent.pod import connected
from tests.app.conftest import a_group
from tests.cluster.provisioning import PATIENCE, apply_objects, create_namespaces

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CHECKS = [
    {"name": "api", "url": "kube-apiserver", "onFailure": "LowerPriority"},
    {"name": "kubelet", "url": "kubelet"},
]
VIP, STATIC_VIP = "192.0.2.250", "192.0.2.251"
STATIC_PORT = 9777


def state(node: Node, port: int) -> dict[str, Any]:
    """The /state of the agent on *node*; empty while it does not answer."""
    answer = b""
    try:
        with connected(node.netns, node.ipv4, port) as connection:
            connection.sendall(f"GET {names.STATE_PATH} HTTP/1.1\r\n\r\n".encode())
            while chunk := connection.recv(65536):
                answer += chunk
    except OSError:
        return {}
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2] or b"{}")
    return found


def has(node: Node, address: str) -> bool:
    """Whether *node* has *address*."""
    return f" {address}/" in node.exec("ip", "-oneline", "address").stdout


def test_the_presets_pass_on_a_real_node(installed: Cluster) -> None:
    """The kubelet's health and the way to the API, verified with the cluster's own CA, without a token."""
    (node,) = installed.nodes
    create_namespaces(installed, "lb")
    group = a_group("edge", checks=CHECKS, virtualIPs=[{"address": f"{VIP}/24"}])
    try:
        apply_objects(installed, group)
        wait_for("the node has the VIP", lambda: has(node, VIP), timeout=PATIENCE, interval=1)
        passed = {"api": "status 200", "kubelet": "status 200"}
        wait_for("both pass", lambda: answers(node) == passed, timeout=PATIENCE, interval=1)
    finally:
        installed.kubectl("delete", "namespace", "lb", "--wait=false")


def answers(node: Node) -> dict[str, str]:
    """The last answers to the checks of the group's agent on *node*."""
    checks = state(node, names.AGENT_PORT).get("checks", [])
    return {each["name"]: each["message"] for each in checks}


@pytest.mark.parametrize("further", [[], ["--follow-nodes"]], ids=["fixed nodes", "nodes that follow"])
def test_a_static_pod_holds_its_vip(installed: Cluster, further: list[str]) -> None:
    """The output of ``kavip render --static`` runs from kubelet's folder, and ends when its file is removed."""
    (node,) = installed.nodes
    spec: dict[str, Any] = {
        "metricsPort": STATIC_PORT,
        "blacklistRouterIDs": [1],
        "virtualIPs": [{"address": f"{STATIC_VIP}/24"}],
    }
    group = json.dumps(a_group("edge", **spec) | {"metadata": {"name": "api", "namespace": "kube-system"}})
    flags = ["--static", f"--image={REPOSITORY}:{TAG}", f"--node={node.name}={node.ipv4}"]
    rendered = CliRunner().invoke(cli, ["render", "--filename=-", *flags, *further], input=group)
    assert rendered.exit_code == 0, rendered.output
    manifest = node.home / "manifests" / "kavip-api.yaml"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text(rendered.stdout)
    try:
        wait_for("the node has the VIP", lambda: has(node, STATIC_VIP), timeout=PATIENCE, interval=1)
        wait_for(
            "its agent answers", lambda: state(node, STATIC_PORT).get("refused") == "", timeout=PATIENCE, interval=1
        )
    finally:
        manifest.unlink()
    wait_for("the VIP is gone", lambda: not has(node, STATIC_VIP), timeout=PATIENCE, interval=1)
