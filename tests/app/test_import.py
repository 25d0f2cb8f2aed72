"""``kubectl kavip import kube-vip`` with a real API server, the webhook, the controller and fake agents."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kavip import names
from tests.app.conftest import Installation, a_group, a_pool, a_service, object_of
from tests.app.fakeagents import FakeAgents
from tests.app.test_convert import killed_after_a_line
from tests.app.test_explain import is_allowed, kubectl_kavip, let_list

pytestmark = pytest.mark.apiserver

COMMAND = ("import", "kube-vip", "--group=lb/edge")
VIP = "192.0.2.130"
CONFIG = object_of("ConfigMap", "kubevip", namespace="kube-system", data={"range-global": "192.0.2.129-192.0.2.140"})
PORTS = [{"port": 80, "nodePort": 30123}]


def service(installation: Installation) -> Any:
    """The Service as it is stored."""
    return installation.get("service", "web", "-n", "shop")


def serve(installation: Installation) -> None:
    """What kube-vip-cloud-provider and kube-vip write: the address as annotation, and in the status."""
    notes = {"kube-vip.io/loadbalancerIPs": VIP, "kube-vip.io/vipHost": "n9"}
    installation.apply(CONFIG, a_service("web", annotations=notes, ports=PORTS, allocateLoadBalancerNodePorts=True))
    status = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": VIP}]}}})
    installation.plane.kubectl("patch", "service", "web", "-n", "shop", "--subresource=status", "-p", status)


def test_a_service_of_kube_vip_is_handed_over(installation: Installation, tmp_path: Path) -> None:
    """The API server accepts each step; before kavip has a master nothing but the annotations changes."""
    with FakeAgents(installation) as agents:
        installation.apply(a_group("edge", metricsPort=agents.port, advertIntervalMilliseconds=3000))
        installation.start()
        serve(installation)
        printed = kubectl_kavip(tmp_path, installation, "kavip", *COMMAND)
        assert (printed.returncode, printed.stderr) == (0, "")
        installation.plane.kubectl("apply", "--filename=-", input=printed.stdout)
        installation.wait_for_status("vippool", "kube-vip-global")
        with ThreadPoolExecutor(max_workers=1) as executor:
            command = ("kavip", *COMMAND, "--hand-over", "--timeout=300")
            running = executor.submit(kubectl_kavip, tmp_path, installation, *command)
            agents.run(["web"])  # only the annotations make it an instance
            assert service(installation)["spec"]["type"] == "LoadBalancer"
            agents.masters = {"n1"}
        done = running.result()
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "shop/web: handed over (1 of 1)"), done.stderr
    found = service(installation)
    assert (found["spec"]["type"], found["spec"]["loadBalancerClass"]) == ("LoadBalancer", names.LOAD_BALANCER_CLASS)
    assert found["spec"]["ports"][0]["nodePort"] == 30123
    assert found["spec"]["allocateLoadBalancerNodePorts"] is True
    assert "externalIPs" not in found["spec"]
    assert names.HAND_OVER_ANNOTATION not in found["metadata"]["annotations"]
    assert installation.addresses("web") == [VIP]
    assert installation.condition("web")["reason"] == "Assigned"


def test_a_killed_hand_over_continues(installation: Installation) -> None:
    """kill -9 after a write leaves the address in the external IPs or in the status; the last run has all."""
    command = (*COMMAND, "--hand-over", "--timeout=300")
    with FakeAgents(installation) as agents:
        installation.apply(a_group("edge", metricsPort=agents.port, advertIntervalMilliseconds=3000), CONFIG)
        installation.apply(a_pool("kube-vip-global", "192.0.2.129-192.0.2.140"))
        installation.start()
        serve(installation)
        assert killed_after_a_line(installation, *command) is None
        agents.run(["web"])
        agents.masters = {"n1"}
        while (status := killed_after_a_line(installation, *command)) is None:
            found = service(installation)
            assert VIP in {*found["spec"].get("externalIPs", ()), *installation.addresses("web")}
    found = service(installation)
    assert (status, found["spec"]["loadBalancerClass"]) == (0, names.LOAD_BALANCER_CLASS)
    assert found["spec"]["ports"][0]["nodePort"] == 30123
    assert "externalIPs" not in found["spec"]
    assert installation.addresses("web") == [VIP]


def test_the_rights_are_those_of_the_user(installation: Installation, tmp_path: Path) -> None:
    """What may not be listed is a note; without the right to patch, the Service stays as it is."""
    installation.apply(a_group("edge"))
    serve(installation)
    installation.apply(object_of("Node", "n1"))
    version = service(installation)["metadata"]["resourceVersion"]
    for group, resource in (("", "services"), ("", "configmaps"), ("kavip.io", "vippools")):
        let_list(installation, "hal", group, resource)
    assert not is_allowed(installation, "hal", "apps", "daemonsets")
    printed = kubectl_kavip(tmp_path, installation, "kavip", *COMMAND)
    installation.plane.kubectl("apply", "--filename=-", input=printed.stdout)
    let_list(installation, "hal", "redhatcop.redhat.io", "keepalivedgroups")
    done = kubectl_kavip(tmp_path, installation, "kavip", *COMMAND, "--hand-over", user="hal")
    assert done.returncode == 1
    assert "kavip: you may not list daemonsets: what they say is not imported" in done.stderr
    assert "shop/web: not handed over, and still served: " in done.stderr
    assert 'User "hal" cannot patch resource "services"' in done.stderr
    assert service(installation)["metadata"]["resourceVersion"] == version
