"""The notes that `helm install` and `helm upgrade` print."""

import pytest

from hack.testbed.controlplane import ControlPlane
from tests.chart.release import RELEASE, Helm, wait_served
from tests.support import manifests

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

ASKING = "--set=webhook.failurePolicy.validating=Ignore"


def test_ignored_groups_are_named(helm: Helm, server: ControlPlane) -> None:
    """
    A list of namespaces without that of an existing group: the notes have the group, the effect, and both remedies.
    """

    def upgrade(*settings: str) -> str:
        done = helm("upgrade", "--install", *RELEASE, ASKING, *settings, kubeconfig=server.kubeconfig)
        return done.stdout

    notes = upgrade("--set=groupNamespaces={default}")
    assert "GROUPS ARE IGNORED" not in notes
    steps = ("kubectl label node", "Then create a pool and a group", "-- kavip status")
    assert sorted(steps, key=notes.index) == [*steps], "a group finds its nodes"
    wait_served(server)
    server.kubectl("create", f"--kustomize={manifests.CONFIG / 'samples'}")
    assert "GROUPS ARE IGNORED" not in upgrade()
    assert "GROUPS ARE IGNORED" not in upgrade("--set=groupNamespaces={default,lb}")
    notes = upgrade("--set=groupNamespaces={default}")
    assert (
        "GROUPS ARE IGNORED: groupNamespaces is default, and these KeepalivedGroups are in other namespaces:\n  lb/"
        in notes
    )
    assert "THE PODS OF THE GROUP STILL HOLD THE VIPS" in notes
    assert ("Then create a pool and a group" in notes, "-- kavip status" in notes) == (
        False,
        True,
    )  # the samples have pools
    assert "--set groupNamespaces='{default,lb}'" in notes
    assert "  kubectl --namespace lb delete keepalivedgroup " in notes


def test_missing_certificates_are_reported(helm: Helm, server: ControlPlane) -> None:
    """service-ca without OpenShift, and a provided Secret that is missing or incomplete."""

    def upgrade(*settings: str) -> str:
        done = helm("upgrade", "--install", *RELEASE, *settings, kubeconfig=server.kubeconfig)
        return done.stdout

    assert "WILL STAY EMPTY" not in upgrade()
    assert "SECRET kavip-webhook-tls WILL STAY EMPTY" in upgrade("--set=certs.mode=service-ca")
    provided = "--set=certs.mode=provided"
    assert "SECRET kavip-webhook-tls DOES NOT EXIST" in upgrade(provided)
    create = ("create", "secret", "generic", "kavip-webhook-tls", f"--namespace={manifests.NAMESPACE}")
    server.kubectl(*create, "--from-literal=tls.crt=a", "--from-literal=tls.key=b")
    assert "SECRET kavip-webhook-tls LACKS ca.crt." in upgrade(provided)
    server.kubectl("delete", *create[1:2], *create[3:])
    server.kubectl(*create, *(f"--from-literal={name}=a" for name in ("tls.crt", "tls.key", "ca.crt")))
    assert "Secret kavip-webhook-tls exists." in upgrade(provided)


def test_a_namespace_that_permits_no_host_network_is_named(helm: Helm, server: ControlPlane) -> None:
    """With ``webhook.hostNetwork``, and with the label that lets the pods start."""

    def upgrade(*settings: str) -> str:
        done = helm("upgrade", "--install", *RELEASE, *settings, kubeconfig=server.kubeconfig)
        return done.stdout

    upgrade()
    label = ("label", "namespace", manifests.NAMESPACE, "--overwrite")
    server.kubectl(*label, "pod-security.kubernetes.io/enforce=baseline")
    try:
        assert "NO POD OF THE WEBHOOK WILL START" not in upgrade()
        notes = upgrade("--set=webhook.hostNetwork=true")
        assert f"NO POD OF THE WEBHOOK WILL START: namespace {manifests.NAMESPACE} enforces baseline" in notes
        server.kubectl(*label, "pod-security.kubernetes.io/enforce=privileged")
        assert "WILL START" not in upgrade("--set=webhook.hostNetwork=true")
    finally:
        server.kubectl(*label, "pod-security.kubernetes.io/enforce-")
    assert "WILL START" not in upgrade("--set=webhook.hostNetwork=true")


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("certs.mode=cert-manager", "cert-manager.io/v1/Issuer"),
        ("podMonitor.enabled=true", "monitoring.coreos.com/v1/PodMonitor"),
        ("serviceMonitor.enabled=true", "monitoring.coreos.com/v1/ServiceMonitor"),
        ("prometheusRule.enabled=true", "monitoring.coreos.com/v1/PrometheusRule"),
    ],
)
def test_kinds_that_are_not_served_are_named(helm: Helm, server: ControlPlane, setting: str, kind: str) -> None:
    """One line has the value and the missing kind, before anything is created."""
    done = helm("install", *RELEASE, f"--set={setting}", check=False, kubeconfig=server.kubeconfig)
    assert done.returncode
    assert f" needs {kind}, which this cluster does not serve: install " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
