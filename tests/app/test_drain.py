"""``kubectl kavip drain`` with a real API server, the controller and fake agents."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, wait_for
from tests.app.fakeagents import FakeAgents
from tests.app.test_explain import kubectl_kavip
from tests.app.test_status import NAMES, reported, typed, wait_for_all

pytestmark = pytest.mark.apiserver

CAUSES = "no controller leads, or all nodes of the group are drained"


def drained(installation: Installation) -> list[str]:
    """The drained nodes in the configuration of the group."""
    text = installation.get("configmap", "edge", "-n", "lb")["data"]["keepalived.conf"]
    return re.findall(r"^# kavip: drained (\S+) 1$", text, re.MULTILINE)


def test_drain_waits_until_the_vips_have_moved(installation: Installation, tmp_path: Path) -> None:
    """It prints who took what; undrain takes the annotation back; the text follows both."""
    with FakeAgents(installation) as agents:
        edge = a_group("edge", default=True, metricsPort=agents.port, advertIntervalMilliseconds=3000)
        installation.apply(a_pool("edge", "192.0.2.128/25"), edge)
        installation.start(webhook=False)
        installation.apply(*(a_service(name) for name in NAMES))
        agents.masters = {"n1"}
        agents.run(NAMES)
        wait_for_all(installation, "Master", "node n1")
        with ThreadPoolExecutor(1) as threads:
            command = ("kavip", "drain", "n1", "--wait", "--timeout=300")
            running = threads.submit(kubectl_kavip, tmp_path, installation, *command)
            wait_for("the text drains n1", lambda: drained(installation) == ["n1"])
            assert not running.done()
            agents.run(NAMES)
            agents.masters = {"n2"}
            done = running.result()
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert (lines[0], lines[-1]) == ("node/n1 drain requested", "node/n1 drained")
        assert sorted(line.rpartition(" ")[0].partition(" ")[2] for line in lines[1:-1]) == sorted(
            f"shop/{name}: on" for name in NAMES
        )
        assert all(line.endswith(": on n2") for line in lines[1:-1])
        late = kubectl_kavip(tmp_path, installation, "kavip", "drain", "n2", "--wait", "--timeout=20")
        assert late.returncode == 1
        held, undrained, group = late.stderr.splitlines()
        assert held.startswith("kavip: after 20 s n2 still holds 192.0.2.128 shop/s1, ")
        assert undrained == f"kavip: after 20 s n2 is not drained in lb/edge: {CAUSES}"
        assert group.startswith("kavip: after 20 s KeepalivedGroup lb/edge: ")
        assert drained(installation) == ["n1"]
        for name in ("n1", "n2"):
            done = kubectl_kavip(tmp_path, installation, "kavip", "undrain", name)
            assert done.stdout == f"node/{name} undrained\n"
        wait_for("the text drains no node", lambda: drained(installation) == [])


def test_drain_waits_while_the_master_is_unknown(installation: Installation, tmp_path: Path) -> None:
    """
    The node may hold the VIPs: the status is 2.

    Without a controller the status of the group is old, so also a node that holds no VIP by it is not drained.
    """
    with FakeAgents(installation) as agents:
        edge = a_group("edge", default=True, metricsPort=agents.port)
        installation.apply(a_pool("edge", "192.0.2.128/25"), edge)
        controller = installation.start(webhook=False)
        installation.apply(a_service("s1"))
        agents.silent = {"n1", "n2"}
        agents.run(["s1"])

        def drain(node: str) -> tuple[int, list[str]]:
            done = kubectl_kavip(tmp_path, installation, "kavip", "drain", node, "--wait", "--timeout=20")
            return done.returncode, done.stderr.splitlines()

        status, lines = drain("n1")
        assert (status, lines[0]) == (
            2,
            "kavip: after 20 s n1 may hold 192.0.2.128 shop/s1: the master is not known",
        )
        agents.silent, agents.masters = set(), {"n1"}
        wait_for("n1 is master", lambda: reported(installation)[0] == "Master")
        controller.stop()
        status, (undrained, _) = drain("n2")
        assert (status, undrained) == (1, f"kavip: after 20 s n2 is not drained in lb/edge: {CAUSES}")


def test_drain_says_at_once_that_pods_keep_vips(installation: Installation, tmp_path: Path) -> None:
    """The VIP of a Service with policy Local follows its only pod, so the command says that before its timeout."""
    with FakeAgents(installation) as agents:
        edge = a_group("edge", default=True, metricsPort=agents.port, advertIntervalMilliseconds=3000)
        installation.apply(a_pool("edge", "192.0.2.128/25"), edge)
        installation.start(webhook=False)
        installation.apply(a_service("s1", externalTrafficPolicy="Local"))
        agents.masters = {"n1"}
        agents.run(["s1"])
        wait_for("n1 is master", lambda: reported(installation)[0] == "Master")
        needed = "kavip: externalTrafficPolicy: Local keeps 192.0.2.128 shop/s1 on the node with a ready pod: "
        command = (sys.executable, "-m", "kavip", "drain", "n1", "--wait", "--timeout=300")
        with typed(installation, tmp_path / "drain", *command) as lines:
            wait_for("the text drains n1", lambda: drained(installation) == ["n1"])
            agents.run(["s1"])
            wait_for("the command says so", lambda: any(line.startswith(needed) for line in lines()), details=lines)


def test_a_node_that_does_not_exist_and_a_right_that_is_missing(installation: Installation, tmp_path: Path) -> None:
    """One line names the node, or the right."""
    missing = kubectl_kavip(tmp_path, installation, "kavip", "drain", "n9")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == "kavip: NODE: 'n9': no such Node\n"
    refused = kubectl_kavip(tmp_path, installation, "kavip", "drain", "n1", user="viewer")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert 'User "viewer" cannot patch resource "nodes"' in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_user_who_may_not_list_everything_cannot_wait(installation: Installation, tmp_path: Path) -> None:
    """VIPs of groups and Services that the user may not list would be missing; the Node is drained all the same."""
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "drainer"}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "drainer"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "drainer"}
    binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    installation.apply({**role, "rules": rules}, binding, node)

    def drain(*more: str) -> tuple[int, str, str]:
        done = kubectl_kavip(tmp_path, installation, "kavip", "drain", "n1", *more, user="drainer")
        return done.returncode, done.stdout, done.stderr

    wait_for("the right", lambda: drain() == (0, "node/n1 drain requested\n", ""))
    status, output, error = drain("--wait")
    assert (status, output) == (2, "node/n1 drain requested\n")
    assert 'User "drainer" cannot list resource "keepalivedgroups"' in error
    assert kubectl_kavip(tmp_path, installation, "kavip", "undrain", "n1", user="drainer").returncode == 0
