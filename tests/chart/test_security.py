"""kavip's own pods on a real API server that enforces the strictest Pod Security level."""

import json

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import Result
from tests.chart.release import RELEASE, Helm, pods, rendered
from tests.support import manifests

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]


def test_own_pods_are_restricted(helm: Helm, server: ControlPlane) -> None:
    """The pods of the Deployments and of `helm test` are accepted in a namespace with the level `restricted`."""
    helm("install", *RELEASE, "--set=crds.install=false", kubeconfig=server.kubeconfig)
    server.kubectl("label", "namespace", manifests.NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    for name in ("kavip-test", "default"):
        server.kubectl("create", "serviceaccount", name, f"--namespace={manifests.NAMESPACE}", check=False)
    for setting in ("openshift.enabled=false", "openshift.enabled=true"):
        objects = rendered(helm, setting)
        for pod in pods(objects):
            create(server, pod["spec"])
        create(server, manifests.only(objects, "Pod")["spec"])
    loose = create(server, {"containers": [{"name": "a", "image": "a"}]}, check=False)
    assert "violates PodSecurity" in loose.stderr, "the level is enforced"


def create(server: ControlPlane, spec: manifests.Object, *, check: bool = True) -> Result:
    """Create a pod in kavip's namespace, dry-run."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": manifests.NAMESPACE}, "spec": spec}
    return server.kubectl("create", "--filename=-", "--dry-run=server", input=json.dumps(pod), check=check)
