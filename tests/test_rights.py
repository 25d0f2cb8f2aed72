"""
The rights that the chart grants are the rights that kavip uses: nothing is refused, and nothing is unused.

One run does everything once: it waits for keepalived-operator, serves groups, pools and Services with and without
addresses, emits Events, asks whether a user may set external IPs, creates the objects for Prometheus, changes the
leader and renews the CA. Then the API server's audit log is compared with the roles in both directions.
"""

import json
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

ACCOUNT = f"system:serviceaccount:{manifests.NAMESPACE}:kavip"
PROMETHEUS = "the Roles for Prometheus grant it, and RBAC lets an account grant only rights that it has"
HELD = {
    Right(GROUPS.group, "keepalivedgroups/finalizers", "update"): "OwnerReferencesPermissionEnforcement asks for it",
    Right("", "endpoints", "get"): PROMETHEUS,
    Right("", "endpoints", "list"): PROMETHEUS,
    Right("", "endpoints", "watch"): PROMETHEUS,
    Right("", "pods", "delete"): "this run has no pods of keepalived-operator's to take over",
    Right("", "pods", "get"): PROMETHEUS,
    Right("", "services", "get"): PROMETHEUS,
}
"""Rights that no request ever needs, each with the reason why kavip holds it."""

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
}
TOLD = "{.items[*].metadata.annotations." + names.CONFIG_HASH_ANNOTATION.replace(".", r"\.") + "}"
SIGNS = (
    ["service", "web", "--output=jsonpath={.status.loadBalancer.ingress[*].ip}"],
    ["daemonset", "edge", "--output=name"],
    ["configmap", "edge", "--output=name"],
    ["pods", f"--output=jsonpath={TOLD}"],
    ["podmonitor", "edge", "--output=name"],
    ["rolebinding", "edge-prometheus-k8s", "--output=name"],
    ["events", "--field-selector=reason=Assigned", "--output=name"],
    ["keepalivedgroup", "edge", "--output=jsonpath={.status.conditions[*].type}"],
    ["vippool", "edge", "--output=jsonpath={.status.ipv4.assigned}"],
    ["lease", names.LEASE_NAME, f"-n{manifests.NAMESPACE}", "--output=jsonpath={.spec.holderIdentity}"],
    ["validatingwebhookconfiguration", "kavip", "--output=jsonpath={.webhooks[0].clientConfig.caBundle}"],
)
"""Arguments of ``kubectl get`` that print something once kavip has done its work."""


@dataclass(slots=True)
class Cluster:
    """A control plane with the chart, and replicas of kavip that run as its service account."""

    plane: ControlPlane
    folder: Path
    replicas: list[Process] = field(default_factory=list)
    port: int = field(default_factory=free_port)

    def start(self) -> Process:
        """Start another replica; the first one answers reviews on :attr:`port`."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{manifests.NAMESPACE}", "system:authenticated")
        number = len(self.replicas)
        flags = [
            f"--kubeconfig={self.plane.user(ACCOUNT, *groups)}",
            *(f"--namespace={manifests.NAMESPACE}", f"--identity=replica-{number}", "--webhook-host=127.0.0.1"),
            *(f"--webhook-port={0 if number else self.port}", "--metrics-port=0", "--probe-port=0"),
            *("--lease-seconds=6", "--drain-seconds=0"),
        ]
        log = self.folder / f"kavip-{number}.log"
        self.replicas.append(process.spawn([sys.executable, "-m", "kavip", "run", *flags], log=log))
        return self.replicas[-1]

    def apply(self, *objects: dict[str, Any]) -> None:
        """Run ``kubectl apply`` for *objects*."""
        self.plane.kubectl("apply", "--filename=-", input="\n---\n".join(json.dumps(each) for each in objects))

    def get(self, *args: str) -> str:
        """The output of ``kubectl get``; "" for a missing object."""
        return str(self.plane.kubectl("get", *args, check=False).stdout)

    def requests(self) -> list[Event]:
        """The requests of kavip."""
        return [event for event in self.plane.audit if event.user == ACCOUNT]


@pytest.fixture
def cluster(programs: Programs, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with the CRDs of OpenShift and Prometheus, and the chart; its webhooks are not reachable."""
    with runs.temporary() as state, ControlPlane(programs, state, components=(CONTROLLERS,)) as plane:
        plane.kubectl("create", f"--filename={manifests.FOREIGN_CRDS}")
        plane.wait_established()
        install = ["install", "kavip", str(manifests.CHART), f"--namespace={manifests.NAMESPACE}", "--create-namespace"]
        down = "--set=webhook.failurePolicy.validating=Ignore"
        run([programs["helm"], *install, down], env={"KUBECONFIG": str(plane.kubeconfig), "HOME": str(state)})
        wait_served(plane)
        wait_bound(plane, ACCOUNT)
        made = Cluster(plane, tmp_path)
        try:
            yield made
        finally:
            process.stop(made.replicas)
            for log in sorted(tmp_path.glob("kavip-*.log")):
                print(f"--- {log.name}", process.tail(log, 60), sep="\n")  # noqa: T201 - shown when the test fails


def test_rights_suffice_and_none_is_unused(cluster: Cluster) -> None:
    """
    No request of a full run is refused, and every right is used, except those that are held for a documented reason.
    """
    do_everything(cluster)
    asked = cluster.requests()
    assert [f"{event.verb} {event.uri}" for event in asked if event.code in (401, 403)] == []
    needed, held = used(asked), set(granted(roles_of(cluster.plane)))
    assert {right for right in needed if not any(one.covers(right) for one in held)} == set()
    idle = {right for right in held if not any(right.covers(one) for one in needed)}
    assert sorted(map(str, idle)) == sorted(map(str, HELD))


def roles_of(plane: ControlPlane) -> Iterator[dict[str, Any]]:
    """Every role that is bound to kavip's account in the API server."""
    for kind in ("clusterrolebindings", "rolebindings"):
        for binding in json.loads(plane.kubectl("get", kind, "-A", "-o", "json").stdout)["items"]:
            subjects = {(each["kind"], each["name"], each.get("namespace")) for each in binding.get("subjects", ())}
            if ("ServiceAccount", "kavip", manifests.NAMESPACE) in subjects:
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
    first = cluster.start()
    cluster.plane.kubectl("create", "--filename=-", input=json.dumps(NODE))
    cluster.plane.kubectl("apply", "--server-side", "--kustomize", str(manifests.CONFIG / "samples"))
    cluster.apply(a_service("none", namespace="default", annotations={names.POOL_ANNOTATION: "nowhere"}))
    wait_for(cluster, "kavip waits for keepalived-operator", "keepalivedgroup", "edge", has="OldOperatorRunning")
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
    cluster.start()
    process.stop([first])
    wait_for(cluster, "the other replica leads", "lease", names.LEASE_NAME, f"-n{manifests.NAMESPACE}", has="replica-1")


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
    """Make a second default group, correct it and make it again: after a minute there is one Event with a series."""
    second = {**a_group("second"), "metadata": {"name": "second", "namespace": "default"}}
    cluster.apply(second)
    wait_for(cluster, "the group is accepted", "keepalivedgroup", "second", has='"Accepted"')
    for label, reason in (("true", "DuplicateDefault"), ("false", "the group is served"), ("true", "DuplicateDefault")):
        cluster.plane.kubectl(
            "label", "--overwrite", "keepalivedgroup", "second", f"{names.DEFAULT_GROUP_LABEL}={label}"
        )
        wait_for(cluster, reason, "keepalivedgroup", "second", has=reason)


def post_an_external_ip_review(cluster: Cluster) -> None:
    """Post a review in place of the API server, which cannot reach kavip's Service here."""
    asked = a_service("outside", namespace="default", annotations={names.POOL_ANNOTATION: "edge"})
    asked["spec"]["externalIPs"] = ["203.0.113.7"]
    body = review_body(names.VALIDATE_SERVICE_PATH, asked)
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
        *("patch", "secret", names.CA_SECRET_NAME, f"-n{manifests.NAMESPACE}", "--type=merge"),
        *("-p", json.dumps({"data": data})),
    )


def ca(cluster: Cluster) -> str:
    """The CA certificate in the Secret."""
    return cluster.get("secret", names.CA_SECRET_NAME, f"-n{manifests.NAMESPACE}", "-o", r"jsonpath={.data.tls\.crt}")


def did(cluster: Cluster, verb: str, resource: str) -> bool:
    """Whether kavip has sent such a request."""
    return any((event.verb, event.resource) == (verb, resource) for event in cluster.requests())


def wait_for(cluster: Cluster, what: str, *args: str, has: str) -> None:
    """Wait until the object's JSON contains *has*."""
    process.wait_for(what, lambda: has in cluster.get(*args, "-o", "json"), timeout=90, interval=0.3)
