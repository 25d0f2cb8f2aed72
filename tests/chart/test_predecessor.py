"""`helm install` in a cluster with keepalived-operator: its CRD, Lease, group and Services."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import Process, spawn, stop, tail, wait_for
from tests.chart.release import RELEASE, Helm, wait_served
from tests.support import manifests

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

HERE = Path(__file__).parent / "predecessor"
GROUP = "keepalivedgroups.redhatcop.redhat.io"
HELM, OLM = "helm", "catalog"
"""The field managers under which the definition of keepalived-operator comes to be."""
SILENT = ("--set=crds.install=false,replicaCount=0,webhook.failurePolicy.validating=Ignore",)
KINDS = "deployments,daemonsets,configmaps,services,leases,keepalivedgroups"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
}
STATUS = {
    "routerIDs": {"default/svc1": 3, "default/svc2": 4},
    "conditions": [
        {
            "type": "ReconcileSuccess",
            "status": "True",
            "reason": "LastReconcileCycleSucceded",
            "message": "",
            "lastTransitionTime": "2023-03-11T10:00:00Z",
        }
    ],
}


@pytest.fixture(params=[HELM, OLM])
def operator_plane(server: ControlPlane, request: pytest.FixtureRequest) -> ControlPlane:
    """A control plane with keepalived-operator, installed by Helm or by OLM."""
    by = f"--field-manager={request.param}"
    server.kubectl("create", by, f"--filename={HERE / 'crd.yaml'}")
    wait_served(server, "KeepalivedGroup")
    server.kubectl("create", by, f"--filename={HERE / 'objects.yaml'}")
    status = ["--subresource=status", "--type=merge", "--patch", json.dumps({"status": STATUS})]
    server.kubectl("patch", "keepalivedgroup", "keepalivedgroup-router", "-nkeepalived-operator", *status)
    return server


def test_an_existing_crd_is_not_overwritten(helm: Helm, operator_plane: ControlPlane) -> None:
    """Without an option for the existing CRD, helm refuses to install."""
    done = helm("install", *RELEASE, kubeconfig=operator_plane.kubeconfig, check=False)
    assert done.returncode
    assert "cannot be imported into the current release" in done.stderr


@pytest.mark.parametrize(
    "flags",
    [["--take-ownership", "--force-conflicts"], ["--take-ownership", "--server-side=false"], []],
    ids=["server-side", "as-helm-3", "without-definitions"],
)
def test_nothing_of_it_is_changed(helm: Helm, operator_plane: ControlPlane, flags: list[str]) -> None:
    """
    For each way of installing kavip, groups, Services, Lease and DaemonSet are unchanged; the notes have the next step.
    """
    before = found(operator_plane)
    definitions = operator_plane.kubectl("get", "crd", GROUP, "--output=json").stdout
    crds = [] if flags else ["--set=crds.install=false"]
    done = helm("install", *RELEASE, *flags, *crds, kubeconfig=operator_plane.kubeconfig)
    assert found(operator_plane) == before
    assert "scale deployment keepalived-operator-controller-manager --replicas=0" in done.stdout
    assert "held in namespace keepalived-operator by keepalived-operator-controller-manager-6c9f_1" in done.stdout

    after = operator_plane.kubectl("get", "crd", GROUP, "--output=json").stdout
    assert (after == definitions) is (not flags)
    assert ("files/crds/vippools.kavip.io.yaml" in done.stdout) is (not flags)
    if flags:
        helm("uninstall", "kavip", f"--namespace={manifests.NAMESPACE}", kubeconfig=operator_plane.kubeconfig)
        assert found(operator_plane) == before, "after the removal of kavip the objects are those of before"


def test_a_definition_of_helm_is_taken_over_without_force(helm: Helm, server: ControlPlane) -> None:
    """`--take-ownership` alone is enough if Helm created the CRD: the field manager is the same."""
    server.kubectl("create", f"--field-manager={HELM}", f"--filename={HERE / 'crd.yaml'}")
    helm("install", *RELEASE, "--take-ownership", kubeconfig=server.kubeconfig)
    found = json.loads(server.kubectl("get", "crd", GROUP, "--output=json").stdout)
    assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def found(server: ControlPlane) -> dict[str, Any]:
    """All objects of keepalived-operator and its users, without kavip's namespace."""
    listed = json.loads(server.kubectl("get", KINDS, "--all-namespaces", "--output=json").stdout)["items"]
    named = {
        f"{each['kind']} {each['metadata']['namespace']}/{each['metadata']['name']}": each
        for each in listed
        if each["metadata"]["namespace"] not in (manifests.NAMESPACE, "kube-system", "kube-node-lease")
    }
    named.pop("Service default/kubernetes", None)  # created by the API server at some time
    return named


@pytest.fixture
def kavip(helm: Helm, server: ControlPlane, tmp_path: Path) -> Iterator[Process]:
    """kavip on a cluster with the CRD of keepalived-operator, which no longer runs."""
    server.kubectl("create", f"--filename={HERE / 'crd.yaml'}")
    wait_served(server, "KeepalivedGroup")
    helm("install", *RELEASE, *SILENT, kubeconfig=server.kubeconfig)
    server.kubectl("apply", "--server-side", f"--filename={manifests.CONFIG}/crd/bases/vippools.kavip.io.yaml")
    wait_served(server)
    flags = ["--webhook-host=127.0.0.1", "--webhook-port=0", "--metrics-port=0", "--probe-port=0"]
    command = [sys.executable, "-m", "kavip", "run", f"--kubeconfig={server.kubeconfig}", *flags]
    started = spawn(command, log=tmp_path / "kavip.log")
    yield started
    stop([started])
    sys.stdout.write(f"--- kavip\n{tail(tmp_path / 'kavip.log', 60)}\n")


def test_the_old_definition_is_enough(server: ControlPlane, kavip: Process) -> None:
    """With a CRD that drops every field of kavip, a group gets its objects, VRIDs and old conditions."""
    server.kubectl("create", "--filename=-", input=json.dumps(NODE))
    server.kubectl("create", f"--kustomize={manifests.CONFIG / 'samples'}")
    for subject, field, value in (
        ("-ndefault service/web", "{.status.loadBalancer.ingress[0].ip}", "192.0.2.129"),
        ("-nlb daemonset/edge", "{.metadata.name}", "edge"),
        ("-nlb configmap/edge", "{.metadata.labels.keepalivedGroup}", "edge"),
        ("-nlb keepalivedgroup/edge", "{.status.routerIDs.default/shop}", "1"),
        ("-nlb keepalivedgroup/edge", "{.status.conditions[?(@.type=='ReconcileSuccess')].status}", "True"),
    ):
        command = ["get", *subject.split(), f"--output=jsonpath={field}"]
        wait_for(f"{subject} {field} is {value}", partial(says, server, command, value), timeout=150, interval=0.5)


def says(server: ControlPlane, command: list[str], value: str) -> bool:
    """Whether kubectl prints *value*."""
    return server.kubectl(*command, check=False).stdout == value
