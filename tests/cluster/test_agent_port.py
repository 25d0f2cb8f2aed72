"""`agent.port` of the chart on a real cluster: a running group keeps its port and says so, until its spec names one."""

import json
from collections.abc import Callable, Iterator

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group
from tests.cluster.provisioning import PATIENCE, apply_objects, create_namespaces, release, retry_kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

GROUP = "lb/ports"
NEW = 9700


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """One node, kavip, and a group that is ready."""
    found = cluster(nodes=1, images=(image(),))
    found.helm("upgrade", "--install", *release(found), "--create-namespace", "--set=image.pullPolicy=Never")
    create_namespaces(found, "lb")
    apply_objects(found, a_group("ports"))
    try:
        yield Session(found)
    finally:
        found.kubectl("delete", "namespace", "lb", "--wait=false")


def is_ready(session: Session, note: str) -> Callable[[], bool]:
    """Whether the group is ready, and its message has *note*."""

    def is_so() -> bool:
        status, _, message = session.condition("keepalivedgroup", GROUP, "Ready")
        return status == "True" and note in message

    return is_so


def port(session: Session) -> int:
    """The port in the status of the group."""
    return int(session.get("keepalivedgroup", "ports", "--namespace=lb")["status"]["metricsPort"])


def pods(session: Session) -> set[str]:
    """The uids of the pods of the group."""
    return {each["metadata"]["uid"] for each in session.get("pods", "--namespace=lb")["items"]}


def test_a_running_group_keeps_its_port(session: Session) -> None:
    """`helm upgrade --set agent.port` replaces no pod of it; `spec.metricsPort` does, and the agent answers there."""
    wait_for("the group is ready", is_ready(session, "every pod is ready"), timeout=PATIENCE)
    assert port(session) == names.AGENT_PORT
    before = pods(session)
    session.cluster.helm(
        "upgrade", *release(session.cluster), "--set=image.pullPolicy=Never", f"--set=agent.port={NEW}"
    )
    note = f"its agents keep port {names.AGENT_PORT}: agent.port {NEW} is for new groups"
    wait_for("the group says so", is_ready(session, note), timeout=PATIENCE)
    assert note in session.kavip("status").stdout
    assert (port(session), pods(session)) == (names.AGENT_PORT, before)
    patch = json.dumps({"spec": {"metricsPort": NEW}})
    retry_kubectl(session.cluster, "patch", "keepalivedgroup", "ports", "--namespace=lb", "--type=merge", "-p", patch)
    (node,) = session.cluster.nodes
    command = ("curl", "--silent", "--fail", "--max-time", "5", f"http://{node.ipv4}:{NEW}{names.STATE_PATH}")
    wait_for(
        "the new agent answers",
        lambda: not session.cluster.control.exec(*command, check=False).returncode,
        timeout=PATIENCE,
    )
    wait_for("nothing is left to say", lambda: note not in session.kavip("status").stdout, timeout=PATIENCE)
    wait_for("the old pod is gone", lambda: pods(session).isdisjoint(before), timeout=PATIENCE)
