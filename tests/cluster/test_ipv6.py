"""A cluster without any IPv4 address: API server, nodes, pods, Services, and all connections of kavip."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.provisioning import OWN, PATIENCE, apply_objects, create_namespaces, release, web_deployment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CHECKS = [
    {"name": "api", "url": "kube-apiserver", "onFailure": "LowerPriority"},
    {"name": "kubelet", "url": "kubelet"},
]
GROUPS: dict[str, dict[str, Any]] = {
    "unicast": {"checks": CHECKS},
    "multicast": {"unicastEnabled": False},
    "shared": {"instances": {"mode": "Shared", "count": 2}, "interfaceFromIP": "2001:db8:2::1"},
}
SERVICES = {"web": "unicast", "local": "unicast", "old": "multicast", "many": "shared"}


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Two nodes with kavip, a backend, and a group of each kind."""
    found = Session(cluster(nodes=2, images=(image(),), families=(6,)))
    found.cluster.helm(
        "upgrade", "--install", *release(found.cluster), "--create-namespace", "--set=image.pullPolicy=Never"
    )
    create_namespaces(found.cluster, "lb", "shop")
    groups = [a_group(name, **spec) for name, spec in GROUPS.items()]
    apply_objects(found.cluster, web_deployment(), a_pool("six", "2001:db8:2::100/120"), *groups)
    yield found


def test_kavip_works_without_ipv4(session: Session) -> None:
    """VIPs of each kind of group answer; agents, checks, admission and the leader work."""
    for name, group in SERVICES.items():
        notes = {names.GROUP_ANNOTATION: f"lb/{group}"}
        policy = "Local" if name == "local" else "Cluster"
        service = a_service(name, annotations=notes, selector={"app": "web"}, externalTrafficPolicy=policy)
        apply_objects(session.cluster, service)
    for name in SERVICES:
        key = f"shop/{name}"

        def has_address(key: str = key) -> bool:
            return bool(session.address(key))

        wait_for(f"{key} has its address", has_address, timeout=PATIENCE, interval=1)

        def answers(vip: str = session.address(key)) -> bool:
            return bool(session.answers(vip))

        wait_for(f"{key} answers", answers, timeout=PATIENCE, interval=1)
        advertised = partial(is_true, session, "service", key, "kavip.io/Advertised")
        wait_for(f"{key} is advertised", advertised, timeout=PATIENCE)
    for name in GROUPS:
        for kind in ("Programmed", "Ready"):
            holds = partial(is_true, session, "keepalivedgroup", f"lb/{name}", kind)
            wait_for(f"{name} is {kind}", holds, timeout=PATIENCE)
    passed = {("api", "status 200"), ("kubelet", "status 200")}
    wait_for("all checks pass", lambda: checks(session) == passed, timeout=PATIENCE, interval=1)
    status = ("exec", "deployment/kavip-controller", OWN, "--", "kavip", "status")

    def all_have_masters() -> bool:  # it exits with another status while one has none
        return session.cluster.kubectl(*status, check=False).stdout.count("Master") == len(SERVICES)

    wait_for("kavip status shows each master", all_have_masters, timeout=PATIENCE, interval=1)
    assert "refused, as it should be" in session.cluster.helm("test", "kavip", OWN, "--logs").stdout


def is_true(session: Session, kind: str, key: str, condition: str) -> bool:
    """Whether a condition of an object holds."""
    return session.condition(kind, key, condition)[0] == "True"


def checks(session: Session) -> set[tuple[str, str]]:
    """The answers to the agents of the group with checks, by URL; IPv6 addresses stand in brackets."""
    found = session.get("keepalivedgroup", "unicast", "-n", "lb")
    port = found["status"]["metricsPort"]
    urls = [f"http://[{node.ipv6}]:{port}{names.STATE_PATH}" for node in session.cluster.nodes]
    outputs = [session.cluster.control.exec("curl", "--silent", "--globoff", url, check=False).stdout for url in urls]
    states = [json.loads(each or "{}") for each in outputs]
    return {(each["name"], each["message"]) for state in states for each in state.get("checks", [])}
