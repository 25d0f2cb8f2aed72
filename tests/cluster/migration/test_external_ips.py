"""``kavip convert external-ips`` on a real cluster: under load no VIP moves, and no answer is lost."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from kavip.names import ConditionType
from tests.app.conftest import a_group, a_pool, object_of
from tests.cluster.migration.load import load
from tests.cluster.provisioning import PATIENCE, WEB_LABELS, apply_objects, retry_kubectl
from tests.cluster.site import site

pytestmark = [pytest.mark.cluster, pytest.mark.migration, pytest.mark.timeout(1800)]

SERVICES = 50
GROUP = "lb/edge"
REST = 15.0
"""Seconds."""
FIRST = 100
"""The last octet of the first VIP."""


def external(number: int) -> dict[str, Any]:
    """One of the Services: most are ClusterIP, some have node ports, some follow their endpoints."""
    spec: dict[str, Any] = {
        "ports": [{"port": 80, "targetPort": 80}],
        "selector": WEB_LABELS,
        "externalIPs": [f"192.0.2.{FIRST + number}"],
    }
    if number % 5 == 1:
        spec["type"] = "NodePort"
    if number % 5 == 2:
        spec["externalTrafficPolicy"] = "Local"
    notes = {names.GROUP_ANNOTATION: GROUP}
    return object_of("Service", f"web-{number}", namespace="shop", annotations=notes, spec=spec)


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Three nodes with a pod each, a group, and all the Services, each with one master."""
    with site(cluster(nodes=3, images=(image(),)), "lb") as found:
        group = a_group("edge", advertIntervalMilliseconds=500)
        apply_objects(found.cluster, a_pool("edge", "192.0.2.96/27", "192.0.2.128/27"), group)
        services = {"apiVersion": "v1", "kind": "List", "items": [external(number) for number in range(SERVICES)]}
        retry_kubectl(found.cluster, "apply", "--filename=-", stdin=json.dumps(services))
        wait_for("every VIP has its master", lambda: has_masters(found), timeout=PATIENCE, interval=1)
        wait_for("no VIP moves any more", at_rest(found), timeout=PATIENCE, interval=1)
        yield found


def services(session: Session) -> list[dict[str, Any]]:
    """All the Services."""
    found: list[dict[str, Any]] = session.get("services", "-n", "shop")["items"]
    return found


def has_masters(session: Session) -> bool:
    """Whether each Service is advertised by one node, and the group runs its configuration everywhere."""
    found = [
        entry["status"]
        for each in services(session)
        for entry in each.get("status", {}).get("conditions", [])
        if entry["type"] == ConditionType.ADVERTISED
    ]
    ready = session.condition("keepalivedgroup", GROUP, ConditionType.PROGRAMMED)[0]
    return found == ["True"] * SERVICES and ready == "True"


def observed(session: Session) -> dict[str, Any]:
    """What may not change: the VRIDs, and for each node how often each instance has changed its state."""
    group = session.get("keepalivedgroup", "edge", "-n", "lb")
    port = group["status"]["metricsPort"]
    counts = {}
    for node in session.cluster.nodes:
        url = f"http://{node.ipv4}:{port}{names.STATE_PATH}"
        state = json.loads(session.cluster.control.exec("curl", "--silent", "--max-time", "60", url).stdout)
        counts[node.name] = {each["name"]: each["transitions"] for each in state["instances"]}
    return {"routerIDs": group["status"]["routerIDs"], "transitions": counts}


def at_rest(session: Session) -> Callable[[], bool]:
    """A function that returns whether nothing has changed for :data:`REST`: a node that joins takes its VIPs later."""
    last, since = observed(session), time.monotonic()

    def is_quiet() -> bool:
        nonlocal last, since
        if (now := observed(session)) != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > REST

    return is_quiet


def test_fifty_services_lose_no_answer(session: Session) -> None:
    """No instance changes its state; each Service keeps its address, VRID and node port; every request is answered."""
    before = observed(session)
    ports = {each["metadata"]["name"]: node_ports(each) for each in services(session)}
    with load(session.cluster, [f"192.0.2.{FIRST + number}" for number in range(SERVICES)], every=0.5) as seen:
        done = session.kavip("convert", "external-ips", "--timeout=120")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"shop/web-9: converted ({SERVICES} of {SERVICES})")
    assert seen.problems == {}
    after = observed(session)
    assert len(before["routerIDs"]) == SERVICES and len(before["transitions"]) == 3
    assert after == before
    for each in services(session):
        number = int(each["metadata"]["name"].partition("-")[2])
        assert "externalIPs" not in each["spec"]
        assert [entry["ip"] for entry in each["status"]["loadBalancer"]["ingress"]] == [f"192.0.2.{FIRST + number}"]
    kept = {each["metadata"]["name"]: node_ports(each) for each in services(session)}
    assert kept == ports
    session.figure("requests during the conversion", f"{seen.requests}, none lost")


def node_ports(service: dict[str, Any]) -> list[int]:
    """The node ports of a Service."""
    return [each["nodePort"] for each in service["spec"]["ports"] if "nodePort" in each]
