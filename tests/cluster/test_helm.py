"""`helm test` on a real cluster: it passes where kavip answers, and fails where it does not."""

import json

import pytest

from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_service
from tests.cluster.provisioning import (
    OWN,
    PATIENCE,
    apply_objects,
    create_namespaces,
    delete_objects,
    release,
    retry_kubectl,
    web_deployment,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

POOL = "--set=pools[0].name=lan,pools[0].spec.addresses={192.0.2.128/28}"
GROUP = "--set=groups[0].name=edge,groups[0].namespace=lb,groups[0].default=true,groups[0].spec.interface=eth0"
SELECTED = ("--selector=app.kubernetes.io/component=webhook",)
HOOKS = "pods,serviceaccounts,roles,rolebindings"


def test_it_passes_where_kavip_answers(installed: Cluster) -> None:
    """One Service is refused, one is accepted, and no object of the test stays."""
    assert_passes(installed)

    def is_left() -> bool:
        return "kavip-test" in installed.kubectl("get", HOOKS, "--all-namespaces", "--output=name").stdout

    wait_for("nothing is left", lambda: not is_left(), timeout=PATIENCE, interval=1)


def test_it_passes_on_the_host_network(installed: Cluster) -> None:
    """With webhook.hostNetwork the API server reaches kavip at the node's own address."""
    installed.helm("upgrade", *release(installed), "--set=webhook.hostNetwork=true,replicaCount=1")
    wait_for("the old pods are gone", lambda: len(pods(installed).split()) == 1, timeout=PATIENCE, interval=1)
    addresses = "--output=jsonpath={.items[0].status.hostIP} {.items[0].status.podIP}"
    host, pod = installed.kubectl("get", "pods", OWN, *SELECTED, addresses).stdout.split()
    assert host == pod
    assert_passes(installed)


def test_one_command_makes_vips(installed: Cluster) -> None:
    """
    With pools and groups in the values, a plain Service answers on its VIP after one helm command.

    `helm test` fails while the namespace of the group is missing, says so, and passes afterwards.
    """
    session = Session(installed)
    installed.helm("upgrade", *release(installed), POOL, GROUP)
    failed = installed.helm("test", "kavip", OWN, "--logs", "--timeout=240s", check=False)
    assert failed.returncode
    assert "groups[0].namespace: 'lb' does not exist" in installed.kubectl("logs", "kavip-test", OWN).stdout
    create_namespaces(installed, "lb", "shop")
    apply_objects(installed, web_deployment(), a_service("web", selector={"app": "web"}))
    wait_for("it has an address", lambda: bool(session.address("shop/web")), timeout=PATIENCE, interval=1)
    vip = session.address("shop/web")
    wait_for(f"{vip} answers", lambda: bool(session.answers(vip)), timeout=PATIENCE, interval=1)
    assert_passes(installed)
    objects = (("service", "web", "-nshop"), ("keepalivedgroup", "edge", "-nlb"), ("vippool", "lan"))
    delete_objects(installed, *objects, ("namespace", "shop", "lb"))


def test_it_fails_if_no_replica_answers(installed: Cluster) -> None:
    """With the webhook scaled to zero the test fails, and its log says that the webhook was not reached."""
    installed.kubectl("scale", "deployment", "kavip-webhook", OWN, "--replicas=0")
    wait_for("the pods are gone", lambda: not pods(installed), timeout=PATIENCE, interval=1)
    failed = installed.helm("test", "kavip", OWN, "--logs", "--timeout=240s", check=False)
    assert failed.returncode
    log = installed.kubectl("logs", "kavip-test", OWN).stdout
    assert "not refused by kavip" in log
    assert "failed calling webhook" in log


def test_it_goes_without_a_trace(installed: Cluster) -> None:
    """After `helm uninstall` no webhook comes back while the pods end, and Services of kavip can be made again."""
    installed.helm("uninstall", "kavip", OWN, "--wait")
    wait_for("the pods are gone", lambda: not pods(installed), timeout=PATIENCE, interval=1)
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    assert not installed.kubectl("get", kinds, "--output=name").stdout
    subject = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "orphan", "annotations": {names.GROUP_ANNOTATION: "lb/none"}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    retry_kubectl(
        installed, "create", "--filename=-", "--namespace=default", "--dry-run=server", stdin=json.dumps(subject)
    )


def assert_passes(cluster: Cluster) -> None:
    """Run `helm test`, and return its log."""
    logs = cluster.helm("test", "kavip", OWN, "--logs").stdout
    assert "refused, as it should be" in logs
    assert "let through, as it should be" in logs


def pods(cluster: Cluster) -> str:
    """The pods of the webhook."""
    return cluster.kubectl("get", "pods", OWN, *SELECTED, "--output=name").stdout
