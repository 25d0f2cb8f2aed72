"""
The rights that the chart grants are the rights that kavip uses: nothing is refused, and nothing is unused.

One run does everything once: it waits for keepalived-operator, serves groups, pools and Services with and without
addresses, emits Events, sends SubjectAccessReviews for external IPs, creates the objects for Prometheus, changes the
leader and renews the CA. Then the API server's audit log is compared with the roles of each account in both directions.
"""

import json
import os
import ssl
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hack.testbed import process, runs
from hack.testbed.audit import Event
from hack.testbed.controlplane import CONTROLLERS, ControlPlane
from hack.testbed.place import run
from hack.testbed.process import Process
from hack.testbed.programs import Programs
from kavip import names
from kavip.kube.resources import GROUPS
from kavip.pki import certificates
from tests.app.conftest import a_group, a_service, free_port, object_of
from tests.chart.release import wait_served
from tests.support import manifests
from tests.support.rbac import Right, granted, used, wait_bound
from tests.webhook.httpclient import review_body

pytestmark = [pytest.mark.apiserver, pytest.mark.chart]

HOME = "lb"  # of the group in config/samples
OWN = manifests.NAMESPACE
PROMETHEUS = "the Roles for Prometheus grant it, and RBAC lets an account grant only rights that it has"
TOPOLOGIES = {"combined": {"kavip": "run"}, "split": {"kavip-webhook": "webhook", "kavip-controller": "controller"}}
"""The accounts of each topology, and the commands that run under them."""

VALUES = {
    "pools": [{"name": "chart", "spec": {"addresses": ["198.51.100.0/28"]}}],
    "groups": [{"name": "chart", "namespace": HOME, "spec": {"interface": "eth1"}}],
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
}
HASH_ANNOTATIONS = "{.items[*].metadata.annotations." + names.CONFIG_HASH_ANNOTATION.replace(".", r"\.") + "}"
SIGNS = (
    ["service", "web", "--output=jsonpath={.status.loadBalancer.ingress[*].ip}"],
    ["daemonset", "edge", f"-n{HOME}", "--output=name"],
    ["configmap", "edge", f"-n{HOME}", "--output=name"],
    ["pods", f"-n{HOME}", f"--output=jsonpath={HASH_ANNOTATIONS}"],
    ["podmonitor", "edge", f"-n{HOME}", "--output=name"],
    ["rolebinding", "edge-prometheus-k8s", f"-n{HOME}", "--output=name"],
    ["events", "--field-selector=reason=Assigned", "--output=name"],
    ["keepalivedgroup", "edge", f"-n{HOME}", "--output=jsonpath={.status.conditions[*].type}"],
    ["vippool", "edge", "--output=jsonpath={.status.ipv4.assigned}"],
    ["vippool", "chart", "--output=name"],
    ["keepalivedgroup", "chart", f"-n{HOME}", "--output=name"],
    ["lease", names.LEASE_NAME, f"-n{OWN}", "--output=jsonpath={.spec.holderIdentity}"],
    ["validatingwebhookconfiguration", "kavip", "--output=jsonpath={.webhooks[0].clientConfig.caBundle}"],
)
"""Arguments of ``kubectl get`` that print something once kavip has done its work."""


def unused(topology: str, groups: str) -> dict[Right, str]:
    """
    Rights that no request of the run needs, each with the reason why kavip holds it.

    *groups* is the namespace of the Roles for groups; "" for rights in all namespaces.
    """
    found = {
        Right(GROUPS.group, "keepalivedgroups/finalizers", "update", groups): "OwnerReferencesPermissionEnforcement",
        Right("", "pods", "delete", groups): "this run has no pods of keepalived-operator's to take over",
        Right("events.k8s.io", "events", "patch", OWN): "no Event of the webhook is repeated in this run",
    }
    found |= {Right("", "endpoints", verb, groups): PROMETHEUS for verb in ("get", "list", "watch")}
    found |= {Right("", kind, "get", groups): PROMETHEUS for kind in ("pods", "services")}
    if groups:  # Services are listed in the whole cluster
        found |= {Right("", "services", verb, groups): PROMETHEUS for verb in ("list", "watch")}
    if topology == "combined":
        handed = {"get", "list", "watch", "patch"}
        found |= {Right("", "configmaps", verb, OWN, names.CA_CONFIGMAP_NAME): "only split hands it" for verb in handed}
        found |= {Right("", "configmaps", "create", OWN): "only split hands the trust bundle over"}
    return found


@dataclass(slots=True)
class Cluster:
    """A control plane with the chart, and replicas of kavip that run as its service accounts."""

    plane: ControlPlane
    folder: Path
    topology: str
    replicas: list[Process] = field(default_factory=list)
    port: int = field(default_factory=free_port)

    def start(self, number: int) -> list[Process]:
        """Start a replica of each Deployment, with its settings; number 0 answers reviews on :attr:`port`."""
        started = [self._start(name, command, number) for name, command in TOPOLOGIES[self.topology].items()]
        self.replicas += started
        return started

    def _start(self, name: str, command: str, number: int) -> Process:
        flags = [
            f"--kubeconfig={self.plane.user(account(name), *SERVICE_ACCOUNTS)}",
            *(f"--namespace={OWN}", f"--identity=replica-{number}", "--webhook-host=127.0.0.1"),
            *(f"--webhook-port={0 if number else self.port}", "--metrics-port=0", "--probe-port=0"),
            *("--lease-seconds=6", "--drain-seconds=0"),
        ]
        log = self.folder / f"{name}-{number}.log"
        return process.spawn([sys.executable, "-m", "kavip", command, *flags], log=log, env=self._environment(name))

    def _environment(self, name: str) -> dict[str, str]:
        """The environment of this process, with the settings of the Deployment."""
        found = json.loads(self.get("deployment", name, f"-n{OWN}", "--output=json"))
        (container,) = found["spec"]["template"]["spec"]["containers"]
        return os.environ | {each["name"]: each["value"] for each in container["env"] if each.get("value")}

    def apply(self, *objects: dict[str, Any]) -> None:
        """Run ``kubectl apply`` for *objects*."""
        self.plane.kubectl("apply", "--filename=-", input="\n---\n".join(json.dumps(each) for each in objects))

    def get(self, *args: str) -> str:
        """The output of ``kubectl get``; "" for a missing object."""
        return str(self.plane.kubectl("get", *args, check=False).stdout)

    def requests(self, name: str = "") -> list[Event]:
        """The requests of the account *name*, or of all accounts of kavip."""
        wanted = {account(each) for each in ([name] if name else TOPOLOGIES[self.topology])}
        return [event for event in self.plane.audit if event.user in wanted]


SERVICE_ACCOUNTS = ("system:serviceaccounts", f"system:serviceaccounts:{OWN}", "system:authenticated")


def account(name: str) -> str:
    """The user of a ServiceAccount of kavip."""
    return f"system:serviceaccount:{OWN}:{name}"


@pytest.fixture(params=[("combined", ""), ("split", ""), ("split", HOME)], ids=lambda given: "-".join(given).strip("-"))
def cluster(programs: Programs, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with the CRDs of OpenShift and Prometheus, and the chart; its webhooks are not reachable."""
    topology, groups = request.param
    with runs.temporary() as state, ControlPlane(programs, state, components=(CONTROLLERS,)) as plane:
        plane.kubectl("create", f"--filename={manifests.FOREIGN_CRDS}")
        plane.kubectl("create", "namespace", HOME)
        plane.wait_established()
        install = ["install", "kavip", str(manifests.CHART), f"--namespace={OWN}", "--create-namespace"]
        down = f"--set=webhook.failurePolicy.validating=Ignore,topology={topology}"
        only = f"--set-json=groupNamespaces={json.dumps([groups] if groups else [])}"
        values = f"--set-json={json.dumps(VALUES)}"
        run(
            [programs["helm"], *install, down, only, values],
            env={"KUBECONFIG": str(plane.kubeconfig), "HOME": str(state)},
        )
        wait_served(plane)
        for name in TOPOLOGIES[topology]:
            wait_bound(plane, account(name), leads=name != "kavip-webhook")
        made = Cluster(plane, tmp_path, topology)
        try:
            yield made
        finally:
            process.stop(made.replicas)
            for log in sorted(tmp_path.glob("kavip*.log")):
                print(f"--- {log.name}", process.tail(log, 60), sep="\n")  # noqa: T201 - shown when the test fails


def test_rights_suffice_and_none_is_unused(cluster: Cluster) -> None:
    """
    No request of a full run is refused, and every right is used, except those that are held for a documented reason.
    """
    do_everything(cluster)
    refused = [event for event in cluster.requests() if event.code in (401, 403)]
    assert [f"{event.user} {event.verb} {event.uri}" for event in refused] == []
    idle = set()
    for name in TOPOLOGIES[cluster.topology]:
        needed, held = used(cluster.requests(name)), set(granted(roles_of(cluster.plane, name)))
        assert {right for right in needed if not any(one.covers(right) for one in held)} == set(), name
        idle |= {right for right in held if not any(right.covers(one) for one in needed)}
    namespaces = {right.namespace for right in idle if right.resource == "endpoints"}
    assert sorted(map(str, idle)) == sorted(map(str, unused(cluster.topology, *namespaces)))


def roles_of(plane: ControlPlane, name: str) -> Iterator[dict[str, Any]]:
    """Every role that is bound to the account *name* in the API server."""
    for kind in ("clusterrolebindings", "rolebindings"):
        for binding in json.loads(plane.kubectl("get", kind, "-A", "-o", "json").stdout)["items"]:
            subjects = {(each["kind"], each["name"], each.get("namespace")) for each in binding.get("subjects", ())}
            if ("ServiceAccount", name, OWN) in subjects:
                ref, where = binding["roleRef"], binding["metadata"].get("namespace", "")
                found = json.loads(
                    plane.kubectl("get", ref["kind"], ref["name"], f"--namespace={where}", "-o", "json").stdout
                )
                found["metadata"]["namespace"] = where
                yield found


# --- the run ----------------------------------------------------------------------------------------------------------
def do_everything(cluster: Cluster) -> None:
    """Do once everything that happens during the life of an installation."""
    create_keepalived_operator(cluster)
    first = cluster.start(0)
    cluster.plane.kubectl("create", "--filename=-", input=json.dumps(NODE))
    cluster.plane.kubectl("apply", "--server-side", "--kustomize", str(manifests.CONFIG / "samples"))
    cluster.apply(a_service("none", namespace="default", annotations={names.POOL_ANNOTATION: "nowhere"}))
    group = ("keepalivedgroup", "edge", f"-n{HOME}")
    wait_for(cluster, "kavip waits for keepalived-operator", *group, has="OldOperatorRunning")
    cluster.plane.kubectl("scale", "deployment", "keepalived-operator", "--replicas=0")
    repeat_an_event(cluster)
    for sign in SIGNS:

        def shows(sign: list[str] = sign) -> bool:
            return bool(cluster.get(*sign))

        process.wait_for(f"kavip does its job: {sign}", shows, timeout=90)
    post_an_external_ip_review(cluster)
    make_the_ca_due(cluster)
    process.wait_for("the CA is renewed", lambda: DUE not in ca(cluster), timeout=90, interval=0.5)
    process.wait_for("the Event becomes a series", lambda: did(cluster, "patch", "events"), timeout=150, interval=1)
    cluster.start(1)
    process.stop(first)
    wait_for(cluster, "the other replica leads", "lease", names.LEASE_NAME, f"-n{OWN}", has="replica-1")


def create_keepalived_operator(cluster: Cluster) -> None:
    """Create its Deployment, with a pod that does not run, and the Lease of its last pod."""
    labels = {"operator": "keepalived-operator"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "old"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    lease = {"holderIdentity": "old-pod", "leaseDurationSeconds": 2}
    cluster.apply(
        object_of("Deployment", "keepalived-operator", namespace="default", version="apps/v1", spec=spec),
        object_of("Lease", names.OLD_OPERATOR_LEASE, namespace="default", version="coordination.k8s.io/v1", spec=lease),
    )


def repeat_an_event(cluster: Cluster) -> None:
    """
    Make a second default group, correct it and make it again: after a minute there is one Event with a series.

    The first Event is awaited: a repetition before its delivery is counted in the Event that is created.
    """
    second = {**a_group("second"), "metadata": {"name": "second", "namespace": HOME}}
    cluster.apply(second)
    group = ("keepalivedgroup", "second", f"-n{HOME}")
    wait_for(cluster, "the group is accepted", *group, has='"Accepted"')
    for label, reason in (("true", "DuplicateDefault"), ("false", "the group is served"), ("true", "DuplicateDefault")):
        cluster.plane.kubectl("label", "--overwrite", *group, f"{names.DEFAULT_GROUP_LABEL}={label}")
        wait_for(cluster, reason, *group, has=reason)
        wait_for(cluster, "the Event exists", "events", f"-n{HOME}", has='"DuplicateDefault"')


def post_an_external_ip_review(cluster: Cluster) -> None:
    """Post a review in place of the API server, which cannot reach kavip's Service here."""
    service = a_service("outside", namespace="default", annotations={names.POOL_ANNOTATION: "edge"})
    service["spec"]["externalIPs"] = ["203.0.113.7"]
    body = review_body(names.VALIDATE_SERVICE_PATH, service)
    url = f"https://127.0.0.1:{cluster.port}{names.VALIDATE_SERVICE_PATH}"
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=30) as answer:
        response = json.loads(answer.read())["response"]
    assert response["allowed"] is False


LONG_AGO = datetime.now(UTC) - timedelta(days=300)
PAIR = certificates.new_ca(LONG_AGO)
DUE = b64encode(PAIR.certificate_pem).decode()


def make_the_ca_due(cluster: Cluster) -> None:
    """Replace the CA by one that is due for renewal."""
    data = {"tls.crt": DUE, "tls.key": b64encode(PAIR.key_pem).decode(), "ca.crt": DUE}
    cluster.plane.kubectl(
        *("patch", "secret", names.CA_SECRET_NAME, f"-n{OWN}", "--type=merge"),
        *("-p", json.dumps({"data": data})),
    )


def ca(cluster: Cluster) -> str:
    """The CA certificate in the Secret."""
    return cluster.get("secret", names.CA_SECRET_NAME, f"-n{OWN}", "-o", r"jsonpath={.data.tls\.crt}")


def did(cluster: Cluster, verb: str, resource: str) -> bool:
    """Whether kavip has sent such a request."""
    return any((event.verb, event.resource) == (verb, resource) for event in cluster.requests())


def wait_for(cluster: Cluster, what: str, *args: str, has: str) -> None:
    """Wait until the object's JSON contains *has*."""
    process.wait_for(what, lambda: has in cluster.get(*args, "-o", "json"), timeout=90, interval=0.3)
