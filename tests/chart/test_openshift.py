"""The chart on a cluster with SecurityContextConstraints."""

from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from kavip.api.group import CaFrom, Check, GroupSpec, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.reconcile.group import manifests
from tests.chart.release import RELEASE, Helm, pods, rendered, serve_kinds
from tests.support.manifests import only

pytestmark = pytest.mark.chart

ON = "openshift.enabled=true"
KIND = "SecurityContextConstraints"


def test_constraints_allow_exactly_the_pods_of_a_group(helm: Helm) -> None:
    """The constraints allow what the pods need, and nothing else."""
    found = only(rendered(helm, ON), KIND)
    check = Check(name="app", url="https://127.0.0.1:8443/", ca_from=CaFrom(name="app"))
    group = KeepalivedGroup(
        metadata=Metadata(name="edge", namespace="lb"), spec=GroupSpec(interface="eth0", checks=[check])
    )
    pod = manifests.daemon_set(group, image="kavip", port=9650, secrets=["vrrp"])["spec"]["template"]["spec"]
    contexts = [each["securityContext"] for each in (*pod["initContainers"], *pod["containers"])]
    assert added(contexts) == set(found["allowedCapabilities"])
    assert all(context["capabilities"]["drop"] == found["requiredDropCapabilities"] for context in contexts)
    assert {each for volume in pod["volumes"] for each in volume if each != "name"} == set(found["volumes"])
    assert pod["hostNetwork"] is found["allowHostNetwork"]
    assert found["allowHostPorts"] is True
    assert found["readOnlyRootFilesystem"] is all(context["readOnlyRootFilesystem"] for context in contexts)
    assert found["seccompProfiles"] == ["runtime/default"]
    assert found["runAsUser"] == {"type": "RunAsAny"}
    never = ("Privileged", "HostPID", "HostIPC", "HostDir", "PrivilegeEscalation")
    for name in (name for name in found if name.startswith("allow") and name[len("allow") :].startswith(never)):
        assert found[name] is False, name
    assert not pod.get("hostPID")
    assert not pod.get("hostIPC")


def test_accounts_that_are_named_may_use_it(helm: Helm) -> None:
    """Each account of openshift.serviceAccounts is bound in its own namespace, and no other account."""
    objects = rendered(helm, ON, 'openshift.serviceAccounts=["lb/default","edge/keepalived","lb/default"]')
    bindings = [each for each in objects if each["kind"] == "RoleBinding" and each["roleRef"]["name"] == "kavip-node"]
    assert [(each["metadata"]["namespace"], each["subjects"]) for each in bindings] == [
        ("edge", [{"kind": "ServiceAccount", "name": "keepalived", "namespace": "edge"}]),
        ("lb", [{"kind": "ServiceAccount", "name": "default", "namespace": "lb"}]),
    ]
    constraints = only(objects, KIND)
    assert (constraints["users"], constraints["groups"]) == ([], [])


def test_own_pods_run_as_the_namespace_says(helm: Helm) -> None:
    """No user is set, because each namespace has its own range; root is still refused."""
    for pod in pods(rendered(helm, ON)):
        context = pod["spec"]["securityContext"]
        assert "runAsUser" not in context
        assert context["runAsNonRoot"] is True


@pytest.mark.apiserver
def test_the_kind_decides(helm: Helm, server: ControlPlane) -> None:
    """If the kind exists, helm creates the constraints, and the notes name the account; the same for monitors."""
    serve_kinds(server)
    server.kubectl("create", "namespace", "lb")
    monitoring = [f"{each}.enabled=true" for each in ("podMonitor", "serviceMonitor", "prometheusRule")]
    wanted = ["openshift.serviceAccounts={lb/default}", *monitoring]
    done = helm("install", *RELEASE, *(f"--set={each}" for each in wanted), kubeconfig=server.kubeconfig)
    assert "create rolebinding kavip-node" in done.stdout
    kinds = f"{KIND},podmonitors,servicemonitors,prometheusrules,rolebindings"
    made = server.kubectl(
        "get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/instance=kavip", "--output=name"
    )
    assert sorted(made.stdout.split()) == [
        "podmonitor.monitoring.coreos.com/kavip",
        "prometheusrule.monitoring.coreos.com/kavip",
        "rolebinding.rbac.authorization.k8s.io/kavip-controller",
        "rolebinding.rbac.authorization.k8s.io/kavip-node-default",
        "rolebinding.rbac.authorization.k8s.io/kavip-webhook",
        "securitycontextconstraints.security.openshift.io/kavip-node",
        "servicemonitor.monitoring.coreos.com/kavip",
    ]
    may = "use", "securitycontextconstraints.security.openshift.io/kavip-node", "--namespace=lb"

    def permits(account: str) -> str:
        as_account = f"--as=system:serviceaccount:{account}"
        return server.kubectl("auth", "can-i", *may, as_account, check=False).stdout.strip()

    wait_for("the account may", lambda: permits("lb:default") == "yes", timeout=150)  # RBAC is read by watches
    for account in ("kavip:default", "kavip:kavip-controller"):
        assert permits(account) == "no", account


def added(contexts: list[dict[str, Any]]) -> set[str]:
    """The capabilities that containers request."""
    return {capability for context in contexts for capability in context["capabilities"]["add"]}
