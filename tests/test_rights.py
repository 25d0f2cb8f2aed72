"""What the chart grants is enough: kavip, under its own service account, does its job and is refused nothing."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed import process, runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import run
from hack.testbed.process import Process
from hack.testbed.programs import Programs
from kavip import names
from tests import files

pytestmark = [pytest.mark.apiserver, pytest.mark.chart]

ACCOUNT = f"system:serviceaccount:{files.NAMESPACE}:kavip"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
}
SIGNS = (
    ["service", "web", "--output=jsonpath={.status.loadBalancer.ingress[*].ip}"],
    ["daemonset", "edge", "--output=name"],
    ["configmap", "edge", "--output=name"],
    ["events", "--field-selector=reason=Assigned", "--output=name"],
    ["keepalivedgroup", "edge", "--output=jsonpath={.status.conditions[*].type}"],
    ["vippool", "edge", "--output=jsonpath={.status.ipv4.assigned}"],
    ["lease", names.LEASE_NAME, f"-n{files.NAMESPACE}", "--output=jsonpath={.spec.holderIdentity}"],
    ["validatingwebhookconfiguration", "kavip", "--output=jsonpath={.webhooks[0].clientConfig.caBundle}"],
)
"""What each prints once kavip has done it."""


@pytest.fixture
def server(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane with the chart installed, whose webhooks nobody can reach: there is no network of pods."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        install = ["install", "kavip", str(files.CHART), f"--namespace={files.NAMESPACE}", "--create-namespace"]
        down = "--set=webhook.failurePolicy.validating=Ignore"
        run([programs["helm"], *install, down], env={"KUBECONFIG": str(started.kubeconfig), "HOME": str(state)})
        yield started


@pytest.fixture
def kavip(server: ControlPlane, tmp_path: Path) -> Iterator[Process]:
    """kavip as its service account, on ports that are free."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{files.NAMESPACE}", "system:authenticated")
    flags = [
        f"--kubeconfig={server.user(ACCOUNT, *groups)}",
        f"--namespace={files.NAMESPACE}",
        "--webhook-host=127.0.0.1",
    ]
    flags += ["--webhook-port=0", "--metrics-port=0", "--probe-port=0"]
    started = process.spawn([sys.executable, "-m", "kavip", "run", *flags], log=tmp_path / "kavip.log")
    yield started
    process.stop([started])


def test_rights_suffice(server: ControlPlane, kavip: Process) -> None:
    """Addresses, DaemonSet, ConfigMap, Events, statuses, Lease and caBundle are written; no call is forbidden."""
    server.kubectl("create", "--filename=-", input=json.dumps(NODE))
    server.kubectl("apply", "--server-side", "--kustomize", str(files.CONFIG / "samples"))

    def done() -> bool:
        return all(server.kubectl("get", *each, check=False).stdout for each in SIGNS)

    process.wait_for("kavip does its job", done, timeout=60, interval=0.5)
    asked = [event for event in server.audit if event.user == ACCOUNT]
    assert asked
    assert [f"{event.verb} {event.uri}" for event in asked if event.code in (401, 403)] == []
