"""
``externalTrafficPolicy: Local`` with the real kube-proxy: VIPs follow endpoints, and clients keep their addresses.

VIPs that no node can answer for are reported by condition, metric and ``kavip status`` alike.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_pool, a_service, object_of
from tests.cluster.caller import EVERY, Row
from tests.cluster.provisioning import (
    PATIENCE,
    REQUESTS,
    apply_objects,
    create_namespaces,
    delete_objects,
    release,
    retry_kubectl,
)
from tests.support import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

HOME = "local"
NOTES = {names.GROUP_ANNOTATION: f"{HOME}/follow", names.POOL_ANNOTATION: "local"}
BACKEND = Path(__file__).with_name("backend.py")
SECOND = "192.0.2.206"
# seconds for which a deleted pod still serves: the VIP takes about 2 s to move, and longer on a busy machine
SLEEP = 40


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Three nodes, kavip, a group and a pool; removed afterwards."""
    found = Session(cluster(nodes=3, images=(image(),)))
    found.cluster.helm(
        "upgrade", "--install", *release(found.cluster), "--create-namespace", "--set=image.pullPolicy=Never"
    )
    group = object_of("KeepalivedGroup", "follow", namespace=HOME, version="redhatcop.redhat.io/v1alpha1")
    group["spec"] = {"interface": "eth0"}
    create_namespaces(found.cluster, HOME)
    apply(found, group, a_pool("local", "192.0.2.192/28", autoAssign=False))
    try:
        yield found
    finally:
        delete_objects(
            found.cluster,
            ("services", "--all", f"--namespace={HOME}"),
            ("namespace", HOME, "--wait=false"),
            ("vippool", "local"),
        )


def apply(session: Session, *objects: dict[str, Any]) -> None:
    """Apply objects as a user does."""
    apply_objects(session.cluster, *objects)


def deploy(session: Session, node: str, *, replicas: int = 1) -> None:
    """Move the backend to *node* by a rolling update that never has fewer pods than wanted."""
    container = {
        "name": "backend",
        "image": "localhost/kavip:demo",
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", BACKEND.read_text(), "8080"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": SLEEP}}},
        "resources": REQUESTS,
    }
    labels = {"app": "backend"}
    pod = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": SLEEP + 30,
    }
    strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    spec = {
        "replicas": replicas,
        "strategy": strategy,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    apply(session, object_of("Deployment", "backend", namespace=HOME, version="apps/v1", spec=spec))
    retry_kubectl(session.cluster, "rollout", "status", "deployment/backend", f"--namespace={HOME}", "--timeout=100s")


@contextmanager
def open_connections(session: Session, address: str) -> Iterator[list[Row]]:
    """Open a connection every 10 ms from outside while the block runs; the rows are complete afterwards."""
    command = session.cluster.client.command(sys.executable, "-m", "tests.cluster.caller", address)
    rows: list[Row] = []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    try:
        yield rows
    finally:
        output, _ = process.communicate(timeout=120)
        rows.extend(Row(*each) for each in json.loads(output))


def answer(session: Session, address: str, *, pods: int) -> bool:
    """Whether twenty calls in sequence are answered, by that many pods."""
    found = {session.answers(address).partition(" ")[0] for _ in range(20)}
    return "" not in found and len(found) == pods


def is_on(session: Session, address: str, node: str) -> None:
    """Wait until *node* alone has *address*, and a pod answers there to the client's own address."""
    own = session.cluster.client.ipv4

    def is_served() -> bool:
        return [each.name for each in session.holders(address)] == [node] and session.answers(address).split()[1:] == [
            own
        ]

    wait_for(f"{address} is on {node}", is_served, timeout=PATIENCE)


def is_settled(session: Session) -> None:
    """Wait until every agent runs the text with the VIPs: before that, a node that starts may still take them."""
    for name, condition in (
        ("keepalivedgroup/follow", "Programmed"),
        ("keepalivedgroup/follow", "Ready"),
        ("service/web", "kavip.io/Advertised"),
        ("service/plain", "kavip.io/Advertised"),
    ):
        retry_kubectl(
            session.cluster, "wait", name, f"--namespace={HOME}", f"--for=condition={condition}", "--timeout=100s"
        )


def test_vips_follow_the_endpoints_of_a_real_kube_proxy(session: Session) -> None:
    """VIPs follow endpoints also with UDP, session affinity and source ranges, and without a health port."""
    local = {"externalTrafficPolicy": "Local", "selector": {"app": "backend"}}
    ports = [{"name": kind.lower(), "port": 80, "targetPort": 8080, "protocol": kind} for kind in ("TCP", "UDP")]
    web = a_service("web", namespace=HOME, annotations=NOTES, **local, ports=ports)
    plain = a_service("plain", namespace=HOME, annotations=NOTES)
    plain["spec"] = {**local, "type": "NodePort", "ports": ports[:1], "externalIPs": [SECOND]}
    apply(session, web, plain)
    deploy(session, "n2")
    wait_for("the Service has its address", lambda: bool(session.address(f"{HOME}/web")), timeout=PATIENCE)
    vip = session.address(f"{HOME}/web")
    is_settled(session)
    for address in (vip, SECOND):
        is_on(session, address, "n2")
    with open_connections(session, vip) as first, open_connections(session, SECOND) as second:
        for node in ("n3", "n1"):
            deploy(session, node)
            for address in (vip, SECOND):
                is_on(session, address, node)
    for rows in (first, second):
        outcomes = Counter(row.outcome for row in rows)
        assert outcomes["answered"] and not outcomes["refused"]
        good = [row for row in rows if row.outcome == "answered"]
        # at the same time: more than one on a busy machine
        under_way = 1 + int(max(row.seconds for row in good) / EVERY)
        assert outcomes["cut"] <= 2 * under_way  # while the VIP moves: it moved twice
        assert {row.body.split()[1] for row in good} == {session.cluster.client.ipv4}
    check_service_features(session, vip)


def check_service_features(session: Session, vip: str) -> None:
    """UDP, session affinity and source ranges work while the VIP stays on its node."""
    command = session.cluster.client.command(sys.executable, "-m", "tests.cluster.caller", vip, "--udp")

    def datagram() -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    own = session.cluster.client.ipv4
    wait_for("a datagram is answered to the client's own address", lambda: datagram()[1:] == [own], timeout=PATIENCE)
    deploy(session, "n1", replicas=2)
    patch = ("patch", "service", "web", f"--namespace={HOME}", "--type=merge", "--patch")
    wait_for("both pods answer", lambda: answer(session, vip, pods=2), timeout=PATIENCE)
    session.cluster.kubectl(*patch, json.dumps({"spec": {"sessionAffinity": "ClientIP"}}))
    wait_for("one pod answers", lambda: answer(session, vip, pods=1), timeout=PATIENCE)
    session.cluster.kubectl(*patch, json.dumps({"spec": {"loadBalancerSourceRanges": ["203.0.113.0/24"]}}))
    wait_for("clients outside the source ranges get no answer", lambda: not session.answers(vip), timeout=PATIENCE)
    wait_for("n1 has the VIP", lambda: [node.name for node in session.holders(vip)] == ["n1"], timeout=PATIENCE)
    session.cluster.kubectl(*patch, json.dumps({"spec": {"loadBalancerSourceRanges": [f"{own}/32"]}}))
    is_on(session, vip, "n1")


def advertised(session: Session) -> tuple[str, str]:
    """Reason and message of `Advertised` of the Service."""
    return session.condition("service", f"{HOME}/web", names.ConditionType.ADVERTISED)[1:]


def counted(session: Session) -> dict[str, int]:
    """The metric of the leader: Services of the group by the reason of `Advertised`, without zeros."""
    selector = "--selector=app.kubernetes.io/component=controller"
    pods = session.get("pods", f"--namespace={manifests.NAMESPACE}", selector)["items"]
    found: dict[str, int] = {}
    for pod in pods:
        path = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        text = session.cluster.kubectl("get", "--raw", path).stdout
        pattern = rf'^kavip_services_advertised{{group="{HOME}/follow",reason="(\w+)"}} ([1-9].*)$'
        found |= {reason: int(float(number)) for reason, number in re.findall(pattern, text, re.MULTILINE)}
    return found


def reported_alike(session: Session, reason: str, **row: str) -> str:
    """Wait until condition, metric and *row* of `kavip status` tell the same; return the condition's message."""
    wait_for(f"Advertised is {reason}", lambda: advertised(session)[0] == reason, timeout=PATIENCE)
    wait_for(f"the metric counts {reason}", lambda: counted(session) == {reason: 1}, timeout=PATIENCE)

    def is_listed() -> bool:
        listed = session.kavip("status", "--output=json")
        (found,) = json.loads(listed.stdout)["virtualIPs"]
        return row.items() <= found.items() and listed.returncode == int(reason != "Master")

    wait_for(f"kavip status lists {row}", is_listed, timeout=PATIENCE)
    return advertised(session)[1]


def test_vips_that_no_node_can_answer_for_are_reported_alike(session: Session) -> None:
    """A pod outside the group, and a group without nodes: condition, metric and `kavip status` tell the same."""
    group = f"keepalivedgroup/follow --namespace={HOME}".split()
    label = "kavip-test/holds-vips"
    session.cluster.kubectl("label", "node", "n1", "n2", f"{label}=")
    try:
        selector = json.dumps({"spec": {"nodeSelector": {label: ""}}})
        retry_kubectl(session.cluster, "patch", *group, "--type=merge", "--patch", selector)
        local = {"externalTrafficPolicy": "Local", "selector": {"app": "backend"}}
        ports = [{"port": 80, "targetPort": 8080}]
        apply(session, a_service("web", namespace=HOME, annotations=NOTES, **local, ports=ports))
        deploy(session, "n3")
        row = {"state": "EndpointsOutsideGroup"}
        message = reported_alike(session, "EndpointsOutsideGroup", **row)
        reported_alike(session, "EndpointsOutsideGroup", **row, message=message)
        assert "ready on n3, which is not in KeepalivedGroup local/follow" in message
        deploy(session, "n2")
        vip = session.address(f"{HOME}/web")
        reported_alike(session, "Master", address=vip, state="Master", node="n2")
        is_on(session, vip, "n2")
        session.cluster.kubectl("label", "node", "n1", "n2", f"{label}-")
        message = reported_alike(session, "NoMaster", state="NoNodes", node="")  # the row names the cause
        assert message == f"no node holds {vip}: see kavip.io/Programmed"
        wait_for("no node has the address", lambda: not session.holders(vip), timeout=PATIENCE)
    finally:
        session.cluster.kubectl("label", "node", "n1", "n2", f"{label}-")
