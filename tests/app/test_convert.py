"""``kubectl kavip convert external-ips`` with a real API server, the webhook and the controller."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kavip import names
from kavip.cli.views.conversion import NOT_SERVED
from tests.app.conftest import Installation, a_group, a_pool, object_of, wait_for
from tests.app.test_explain import kubectl_kavip, may_list
from tests.support.manifests import ROOT

pytestmark = pytest.mark.apiserver

COMMAND = ("kavip", "convert", "external-ips")
NOTES = {names.GROUP_ANNOTATION: "lb/edge"}
RBAC = "rbac.authorization.k8s.io"


def external(name: str, *addresses: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A Service of the group with external IPs; a ClusterIP one unless *spec* says otherwise."""
    given = {"ports": [{"port": 80}], "externalIPs": list(addresses), **spec}
    return object_of("Service", name, namespace="shop", annotations={**NOTES, **(annotations or {})}, spec=given)


SERVICES = (
    external("web", "192.0.2.130"),
    external("ports", "192.0.2.131", type="NodePort", ports=[{"port": 80, "nodePort": 30123}]),
    external("several", "192.0.2.132", "192.0.2.133", "192.0.2.134"),
    external("spread", "192.0.2.135", "192.0.2.136", annotations={names.SPREAD_ANNOTATION: "true"}),
    external("local", "192.0.2.137", externalTrafficPolicy="Local"),
    external("one", "192.0.2.138", ports=[{"port": 81}]),
    external("other", "192.0.2.138", ports=[{"port": 82}]),
    external("half", "192.0.2.140", type="LoadBalancer", allocateLoadBalancerNodePorts=False),
)
LEFT = object_of("Service", "plain", namespace="shop", spec={"ports": [{"port": 80}], "externalIPs": ["198.51.100.7"]})
OUTSIDE = external("outside", "203.0.113.7")


def service(installation: Installation, name: str) -> Any:
    """The Service as it is stored."""
    return installation.get("service", name, "-n", "shop")


def written(installation: Installation, name: str) -> Any:
    """The Service without what the controller writes: its status, and the version that comes with it."""
    found = service(installation, name)
    kept = {key: value for key, value in found["metadata"].items() if key != "resourceVersion"}
    return {**found, "metadata": kept, "status": None}


def published(installation: Installation) -> tuple[str, dict[str, int]]:
    """The text of the group, and its VRIDs."""
    config = installation.get("configmap", "edge", "-n", "lb") or {}
    group = installation.get("keepalivedgroup", "edge", "-n", "lb")
    return config.get("data", {}).get("keepalived.conf", ""), group.get("status", {}).get("routerIDs", {})


@pytest.fixture
def running(installation: Installation) -> Installation:
    """kavip with a node, a group, and all these Services, which are older than kavip, in its text."""
    node, pool = object_of("Node", "n1"), a_pool("edge", "192.0.2.128/28")
    installation.apply(node, pool, a_group("edge"), *SERVICES, LEFT)
    addresses = json.dumps({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}})
    installation.plane.kubectl("patch", "node", "n1", "--subresource=status", "-p", addresses)
    installation.start("--lease-seconds=6")

    def is_published() -> bool:
        text, ids = published(installation)
        vips = {each for one in SERVICES for each in one["spec"]["externalIPs"]}
        assigned = installation.addresses("half")  # which gets one beside its external IP
        is_whole = bool(assigned) and all(f"{vip}/32" in text for vip in (*vips, *assigned))
        return is_whole and len(ids) == len(SERVICES) + 1  # one ID for each spread VIP

    wait_for("every VIP is in the text", is_published, details=lambda: published(installation))
    return installation


Run = Callable[..., Any]


def test_every_service_keeps_its_addresses_its_vrid_and_its_node_ports(running: Installation, tmp_path: Path) -> None:
    """The text that the nodes run is the same before, during and after, and a second run has nothing to do."""
    before = published(running)
    dry = kubectl_kavip(tmp_path, running, *COMMAND, "--dry-run")
    assert dry.returncode == 1
    assert dry.stdout.count("+++ converted: Service shop/") == len(SERVICES)
    assert service(running, "web")["spec"]["type"] == "ClusterIP"
    running.plane.audit.mark()
    done = kubectl_kavip(tmp_path, running, *COMMAND)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "shop/web: converted (8 of 8)"), done.stderr
    assert done.stderr == f"shop/plain: left as it is: {NOT_SERVED}\n"
    for each in SERVICES:
        found = service(running, each["metadata"]["name"])
        assert "externalIPs" not in found["spec"]
        assert found["spec"]["type"] == "LoadBalancer"
        assert set(running.addresses(each["metadata"]["name"])) >= set(each["spec"]["externalIPs"])
        assert running.condition(each["metadata"]["name"])["reason"] == "Assigned"
    assert service(running, "ports")["spec"]["ports"][0]["nodePort"] == 30123
    assert "nodePort" not in service(running, "web")["spec"]["ports"][0]
    assert service(running, "web")["spec"]["loadBalancerClass"] == names.LOAD_BALANCER_CLASS
    assert len(running.addresses("half")) == 2, "a LoadBalancer keeps the address that it had beside the external IP"
    assert published(running) == before
    patches = running.plane.audit.events(resource="services", subresource="", verb="patch")
    assert {event.agent.partition("/")[0] for event in patches} == {"kavip"}
    assert all(event.body["metadata"]["resourceVersion"] for event in patches)
    again = kubectl_kavip(tmp_path, running, *COMMAND)
    assert (again.returncode, again.stdout) == (0, "")


def test_what_kavip_could_not_serve_is_not_touched(running: Installation, tmp_path: Path) -> None:
    """An address outside every pool stays in externalIPs; a pool for it is printed, and then it is converted."""
    running.plane.kubectl("annotate", "vippool", "edge", f"{names.ALLOW_STRANDING_ANNOTATION}=true")
    wait_for("the pool is gone", lambda: not running.plane.kubectl("delete", "vippool", "edge", check=False).returncode)
    before = written(running, "web")
    refused = kubectl_kavip(tmp_path, running, *COMMAND, "shop/web")
    assert refused.returncode == 1
    assert "shop/web: not converted: metadata.annotations[kavip.io/addresses]: " in refused.stderr
    assert written(running, "web") == before
    printed = kubectl_kavip(tmp_path, running, *COMMAND, "--pool", "old", "shop/web")
    assert printed.returncode == 0
    running.plane.kubectl("apply", "-f", "-", input=printed.stdout)
    running.wait_for_status("vippool", "old")
    done = kubectl_kavip(tmp_path, running, *COMMAND, "web", "-n", "shop")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "shop/web: converted (1 of 1)"), done.stderr


def test_an_interrupted_run_continues(running: Installation, tmp_path: Path) -> None:
    """While kavip is away a Service waits with its external IPs; the next run converts it."""
    before = published(running)
    running.leader().kill()
    hooks = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
    for kind in hooks:
        running.plane.kubectl("delete", kind, "kavip")
    relabelled = ("label", "service", "web", "-n", "shop", "a=b", "--dry-run=server")
    wait_for("no webhook is called", lambda: not running.plane.kubectl(*relabelled, check=False).returncode)
    waiting = kubectl_kavip(tmp_path, running, *COMMAND, "--timeout=2", "shop/ports", "shop/web")
    assert waiting.returncode == 1
    assert "not converted, and still served: after 2 s kavip has not assigned 192.0.2." in waiting.stderr
    assert service(running, "ports")["spec"]["type"] == "LoadBalancer"
    assert service(running, "web")["spec"]["type"] == "ClusterIP", "the first Service that waits ends the run"
    assert all(service(running, each["metadata"]["name"])["spec"]["externalIPs"] for each in SERVICES)
    running.start()
    done = kubectl_kavip(tmp_path, running, *COMMAND)
    assert (done.returncode, "externalIPs" in json.dumps(service(running, "web")["spec"])) == (0, False), done.stderr
    assert published(running) == before


def killed_after_a_line(installation: Installation, *command: str) -> int | None:
    """Run ``kavip`` and kill it when it has written once; its exit status if it ends before that."""
    arguments = [sys.executable, "-m", "kavip", *command, f"--kubeconfig={installation.plane.kubeconfig}"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        if process.stdout.readline():
            process.kill()
            return None
    return process.returncode


def test_a_killed_run_continues(running: Installation) -> None:
    """kill -9 after a write leaves each address in the external IPs or in the status; the last run has all."""
    chosen = [each for each in SERVICES if each["metadata"]["name"] in ("one", "other", "several")]
    before, kills = published(running), 0
    while killed_after_a_line(running, *COMMAND[1:], *(f"shop/{each['metadata']['name']}" for each in chosen)) is None:
        kills += 1
        for each in chosen:
            found = service(running, each["metadata"]["name"])
            held = {*found["spec"].get("externalIPs", ()), *running.addresses(each["metadata"]["name"])}
            assert held >= set(each["spec"]["externalIPs"])
    assert kills, "on a busy machine the first kill may come late, but not after all Services"
    assert not any("externalIPs" in service(running, each["metadata"]["name"])["spec"] for each in chosen)
    assert published(running) == before


def test_a_user_needs_no_more_than_the_right_to_patch_services(running: Installation, tmp_path: Path) -> None:
    """Without it each Service is refused with the API server's message; what else may not be listed is noted."""
    rights = may_list("gil", "", "services", namespace="shop")
    running.apply(*rights)
    wait_for("gil may", lambda: kubectl_kavip(tmp_path, running, *COMMAND, "-n", "shop", user="gil").returncode == 1)
    refused = kubectl_kavip(tmp_path, running, *COMMAND, "web", "-n", "shop", user="gil")
    assert 'User "gil" cannot patch resource "services"' in refused.stderr
    assert "you may not list vippools of the whole cluster: references to pools are not checked" in refused.stderr
    rule = {"apiGroups": [""], "resources": ["services"], "verbs": ["patch"]}
    ref = {"apiGroup": RBAC, "kind": "Role", "name": "patcher"}
    running.apply(
        object_of("Role", "patcher", namespace="shop", version=f"{RBAC}/v1", rules=[rule]),
        object_of(
            "RoleBinding",
            "patcher",
            namespace="shop",
            version=f"{RBAC}/v1",
            roleRef=ref,
            subjects=[{"kind": "User", "name": "gil"}],
        ),
    )
    wait_for(
        "gil converts",
        lambda: kubectl_kavip(tmp_path, running, *COMMAND, "web", "-n", "shop", user="gil").returncode == 0,
    )
    assert "externalIPs" not in service(running, "web")["spec"]
