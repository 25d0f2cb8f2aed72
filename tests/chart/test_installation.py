"""`helm install` and what follows, on a real API server."""

import json

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from kavip import names
from kavip.webhook import registration
from tests import files
from tests.chart.release import BUNDLE, MARKED, Helm, environment, get, refused, service, write_bundles

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]


class TestInstallation:
    """`helm install` and what follows, on a real API server."""

    def test_install_upgrade_uninstall(self, helm: Helm, server: ControlPlane) -> None:
        """Everything is accepted; an upgrade keeps the caBundle that kavip wrote; the CRDs outlive the release."""
        release = ["kavip", str(files.CHART), f"--namespace={files.NAMESPACE}"]
        helm("install", *release, "--create-namespace", kubeconfig=server.kubeconfig)
        write_bundles(server)

        helm("upgrade", *release, "--set=logLevel=debug", kubeconfig=server.kubeconfig)
        assert environment([get(server, "deployment")])["KAVIP_LOG_LEVEL"] == "debug"
        for kind in (registration.MUTATING, registration.VALIDATING):
            assert {hook["clientConfig"]["caBundle"] for hook in get(server, kind)["webhooks"]} == {BUNDLE}

        helm("uninstall", "kavip", f"--namespace={files.NAMESPACE}", kubeconfig=server.kubeconfig)
        kinds = f"customresourcedefinition,deployment,poddisruptionbudget,{registration.VALIDATING}"
        left = server.kubectl("get", kinds, "--all-namespaces", "--output=name").stdout.split()
        assert left == [f"customresourcedefinition.apiextensions.k8s.io/{path.stem}" for path in files.CRDS]

    def test_with_kavip_down_other_services_pass(self, helm: Helm, server: ControlPlane) -> None:
        """Installed but not running, kavip stops what concerns it, and nothing else; what goes may go."""
        release = ["kavip", str(files.CHART), f"--namespace={files.NAMESPACE}", "--create-namespace"]
        server.kubectl("create", "--filename=-", input=json.dumps(service("old", **MARKED)))
        server.kubectl("create", "--filename=-", input=json.dumps(service("held", finalizers=["kavip.io/test"])))
        server.kubectl("delete", "service", "held", "--wait=false")
        helm("install", *release, kubeconfig=server.kubeconfig)
        wait_for("the API server asks", lambda: refused(server, service("marked", **MARKED)), timeout=60, interval=0.2)

        for passing in (service("plain"), service("system", namespace="kube-system", **MARKED)):
            assert not refused(server, passing), passing
        patch = ["--type=merge", "--patch", json.dumps({"metadata": {"finalizers": []}})]
        server.kubectl("patch", "service", "held", *patch)
        unmarked = server.kubectl("annotate", "service", "old", f"{names.POOL_ANNOTATION}-", check=False)
        assert "failed calling webhook" in unmarked.stderr, "it was marked before"
        server.kubectl("delete", "service", "old")
