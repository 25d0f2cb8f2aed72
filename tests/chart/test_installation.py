"""`helm install` on a real API server, then upgrade, rollback, uninstall, and the same again."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from kavip.admission import registration
from tests.chart.release import BUNDLE, RELEASE, Helm, environment, get, serve_kinds, wait_served, write_bundles
from tests.support import manifests

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

NAMESPACE = f"--namespace={manifests.NAMESPACE}"
ASKING = "--set=webhook.failurePolicy.validating=Ignore"
"""No webhook answers in these tests, so without this no group or pool could be created."""
SERVER_SIDE, CLIENT_SIDE = "--server-side=true", "--server-side=false"
"""How Helm 4 writes, and how Helm 3 did."""
DEPLOYMENT = "kavip-webhook"
STATUS = {"loadBalancer": {"ingress": [{"ip": "192.0.2.129", "ipMode": "VIP"}]}}


@pytest.mark.parametrize("manner", [SERVER_SIDE, CLIENT_SIDE], ids=["server-side", "as-helm-3"])
def test_a_release_lives_and_dies(helm: Helm, server: ControlPlane, manner: str) -> None:
    """Upgrade and rollback keep caBundle; uninstall keeps CRDs, groups, pools and addresses, and no webhook."""
    helm("install", *RELEASE, ASKING, manner, kubeconfig=server.kubeconfig)
    write_bundles(server)
    wait_served(server)
    server.kubectl("create", f"--kustomize={manifests.CONFIG / 'samples'}")
    status = json.dumps({"status": STATUS})
    server.kubectl("patch", "service", "web", "--subresource=status", "--type=merge", "--patch", status)
    users = of_users(server)

    helm("upgrade", *RELEASE, "--set=logLevel=debug", manner, kubeconfig=server.kubeconfig)
    assert environment([get(server, "deployment", DEPLOYMENT)])["KAVIP_LOG_LEVEL"] == "debug"
    assert policies(server) == {"Ignore", "Fail"}
    assert bundles(server) == {BUNDLE}
    helm("rollback", "kavip", "1", NAMESPACE, manner, kubeconfig=server.kubeconfig)
    assert environment([get(server, "deployment", DEPLOYMENT)])["KAVIP_LOG_LEVEL"] == "info"
    assert policies(server) == {"Ignore"}
    assert bundles(server) == {BUNDLE}

    said = helm("uninstall", "kavip", NAMESPACE, kubeconfig=server.kubeconfig)
    assert all(path.stem in said.stdout + said.stderr for path in manifests.CRDS), "it says what it leaves"
    assert of_the_release(server) == [
        f"customresourcedefinition.apiextensions.k8s.io/{path.stem}" for path in manifests.CRDS
    ]
    assert of_users(server) == users
    helm("install", *RELEASE, manner, kubeconfig=server.kubeconfig)
    assert of_users(server) == users


@pytest.mark.parametrize("manner", [SERVER_SIDE, CLIENT_SIDE], ids=["server-side", "as-helm-3"])
def test_releases_may_differ_in_their_webhooks(helm: Helm, server: ControlPlane, tmp_path: Path, manner: str) -> None:
    """
    A webhook that another version of the chart lacks comes with an upgrade and goes with a rollback, with its caBundle.
    """
    other = shutil.copytree(manifests.CHART, tmp_path / "kavip")
    template = other / "templates" / "webhook.yaml"
    without, count = re.subn(r'  - \{\{ include [^\n]*"warn-.*?(?=\n  - )\n', "", template.read_text(), flags=re.DOTALL)
    assert count == 1
    template.write_text(without)
    helm("install", "kavip", str(other), *RELEASE[2:], manner, kubeconfig=server.kubeconfig)
    write_bundles(server)
    before = hooks(server)
    helm("upgrade", *RELEASE, manner, kubeconfig=server.kubeconfig)
    assert bundles(server) == {BUNDLE, ""}, "the new one is trusted nowhere yet"
    write_bundles(server)
    assert hooks(server) == before | {"warn-keepalivedgroup.kavip.io"}
    helm("rollback", "kavip", "1", NAMESPACE, manner, kubeconfig=server.kubeconfig)
    assert hooks(server) == before
    assert bundles(server) == {BUNDLE}


def test_helm_3_is_followed_by_helm_4(helm: Helm, server: ControlPlane) -> None:
    """A release that was applied client-side is upgraded server-side, and caBundle stays."""
    helm("install", *RELEASE, CLIENT_SIDE, kubeconfig=server.kubeconfig)
    write_bundles(server)
    helm("upgrade", *RELEASE, SERVER_SIDE, "--set=externalIPs.scope=all", kubeconfig=server.kubeconfig)
    assert bundles(server) == {BUNDLE}
    conditions = [
        condition["name"]
        for hook in get(server, registration.VALIDATING)["webhooks"]
        for condition in hook["matchConditions"]
    ]
    assert "kavip-or-external-ips" in conditions


@pytest.mark.parametrize("manner", [SERVER_SIDE, CLIENT_SIDE], ids=["server-side", "as-helm-3"])
@pytest.mark.parametrize("mode", ["cert-manager", "service-ca"])
def test_a_bundle_that_others_inject_stays(helm: Helm, server: ControlPlane, mode: str, manner: str) -> None:
    """cert-manager and service-ca write the whole configurations with caBundle; an upgrade keeps it."""
    serve_kinds(server)
    helm("install", *RELEASE, f"--set=certs.mode={mode}", manner, kubeconfig=server.kubeconfig)
    for kind in (registration.MUTATING, registration.VALIDATING):
        found = get(server, kind)
        assert found["metadata"]["annotations"]
        for hook in found["webhooks"]:
            hook["clientConfig"]["caBundle"] = BUNDLE
        server.kubectl("replace", "--filename=-", f"--field-manager={mode}", input=json.dumps(found))
    helm("upgrade", *RELEASE, f"--set=certs.mode={mode},logLevel=debug", manner, kubeconfig=server.kubeconfig)
    assert bundles(server) == {BUNDLE}


@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_without_helm(server: ControlPlane, flags: tuple[str, ...]) -> None:
    """`kubectl apply -k config/default` works, also repeatedly, and keeps caBundle; the samples are accepted."""
    apply = ["apply", *flags, f"--kustomize={manifests.CONFIG / 'default'}"]
    server.kubectl(*apply)
    write_bundles(server)
    again = server.kubectl(*apply).stdout
    assert " created" not in again
    assert bundles(server) == {BUNDLE}
    server.kubectl("delete", registration.VALIDATING, "kavip")
    wait_served(server)
    server.kubectl("apply", *flags, f"--kustomize={manifests.CONFIG / 'samples'}")


def bundles(server: ControlPlane) -> set[str]:
    """Every caBundle of both configurations."""
    kinds = (registration.MUTATING, registration.VALIDATING)
    return {hook["clientConfig"].get("caBundle", "") for kind in kinds for hook in get(server, kind)["webhooks"]}


def hooks(server: ControlPlane) -> set[str]:
    """The names of all webhooks."""
    kinds = (registration.MUTATING, registration.VALIDATING)
    return {hook["name"] for kind in kinds for hook in get(server, kind)["webhooks"]}


def policies(server: ControlPlane) -> set[str]:
    """Every failure policy of both configurations."""
    kinds = (registration.MUTATING, registration.VALIDATING)
    return {hook["failurePolicy"] for kind in kinds for hook in get(server, kind)["webhooks"]}


def of_users(server: ControlPlane) -> dict[str, Any]:
    """The objects that must outlive kavip: groups, pools, and Services with their addresses."""
    listed = server.kubectl("get", "keepalivedgroups,vippools,services", "--all-namespaces", "--output=json").stdout
    return {
        f"{each['kind']} {each['metadata']['name']}": each
        for each in json.loads(listed)["items"]
        if each["metadata"]["name"] not in ("kubernetes", "kavip-webhook")
    }


def of_the_release(server: ControlPlane) -> list[str]:
    """Every object with the labels of the release."""
    kinds = ",".join(server.kubectl("api-resources", "--verbs=list", "--output=name").stdout.split())
    selector = "--selector=app.kubernetes.io/instance=kavip"
    return sorted(server.kubectl("get", kinds, "--all-namespaces", selector, "--output=name").stdout.split())
