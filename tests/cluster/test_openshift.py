"""
keepalived-operator's demo on OpenShift, on a real cluster with kavip: project, group, Service, DaemonSet.

OpenShift's own part, assigning the external IP, is done by hand.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hack.demo.__main__ import image
from hack.demo.session import MANIFESTS, Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import stop, wait_for
from kavip import names
from tests.app.conftest import a_pool, a_service, crd, object_of
from tests.cluster.prometheus import ACCOUNT, Prometheus, scraping
from tests.cluster.provisioning import PATIENCE, apply_objects, create_namespaces, delete_objects, release
from tests.support import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

HOME, NAME = "keepalived-operator", "keepalivedgroup-workers"
NOTES = {names.GROUP_ANNOTATION: f"{HOME}/{NAME}"}
ROLE = "node-role.kubernetes.io/loadbalancer"
VIP, INGRESS = "192.0.2.178", "192.0.2.195"
KINDS = {"PodMonitor": "podmonitors", "ServiceMonitor": "servicemonitors"}
KINDS_OF_OPENSHIFT = [
    crd("config.openshift.io", "Network", "networks", scope="Cluster"),
    crd("config.openshift.io", "Infrastructure", "infrastructures", scope="Cluster"),
]
INFRASTRUCTURE = {
    "apiServerInternalURI": "https://api-int.elm.example.com:6443",
    "platformStatus": {"type": "BareMetal", "baremetal": {"apiServerInternalIPs": ["172.30.0.250"]}},
}  # OpenShift's keepalived has the VRIDs 3, 14 and 98 in a cluster of this name


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Three nodes, two of them load balancers, kavip, and OpenShift's own objects; removed afterwards."""
    found = Session(cluster(nodes=3, images=(image(),)))
    kubectl = found.cluster.kubectl
    apply(found, *KINDS_OF_OPENSHIFT)
    found.cluster.plane.wait_established()
    external = {"autoAssignCIDRs": ["192.0.2.176/28"], "policy": {"allowedCIDRs": ["192.0.2.176/28"]}}
    apply(
        found,
        object_of("Network", "cluster", version="config.openshift.io/v1", spec={"externalIP": external}),
        object_of("Infrastructure", "cluster", version="config.openshift.io/v1"),
    )
    status = json.dumps({"status": INFRASTRUCTURE})
    kubectl("patch", "infrastructure", "cluster", "--subresource=status", "--type=merge", f"--patch={status}")
    found.cluster.helm(
        "upgrade", "--install", *release(found.cluster), "--create-namespace", "--set=image.pullPolicy=Never"
    )
    start_controllers(found)
    create_namespaces(found.cluster, HOME, "demo", ACCOUNT[0])
    apply(
        found,
        object_of("ServiceAccount", ACCOUNT[1], namespace=ACCOUNT[0]),
        a_pool("own", "192.0.2.184/29", "2001:db8:2::180/124", autoAssign=False),
    )
    for node in ("n1", "n2"):
        kubectl("label", "node", node, f"{ROLE}=", "--overwrite")
    try:
        yield found
    finally:
        plurals = (f"{plural}.monitoring.coreos.com" for plural in KINDS.values())
        delete_objects(
            found.cluster,
            ("services", "--all", "--namespace=demo"),
            ("namespaces", "demo", HOME, ACCOUNT[0], "--wait=false"),
            ("vippool", "own"),
            ("crd", *(each["metadata"]["name"] for each in KINDS_OF_OPENSHIFT), *plurals),
        )
        kubectl("label", "nodes", "--all", f"{ROLE}-")


def apply(session: Session, *objects: dict[str, Any]) -> None:
    """Apply objects as a user does."""
    apply_objects(session.cluster, *objects)


def start_controllers(session: Session) -> None:
    """Start kavip after OpenShift's kinds exist, as on OpenShift: an earlier test may have left kavip running."""
    kubectl, own = session.cluster.kubectl, f"--namespace={manifests.NAMESPACE}"
    kubectl("delete", "pods", own, "--selector=app.kubernetes.io/name=kavip-controller")  # waits until they have ended
    kubectl("rollout", "status", "deployment/kavip-controller", own, f"--timeout={PATIENCE:.0f}s")


def served(session: Session, vip: str) -> bool:
    """Whether a client outside gets an answer, from one of the nodes that are load balancers."""
    holders = [node.name for node in session.holders(vip)]
    return len(holders) == 1 and holders[0] in ("n1", "n2") and bool(session.answers(vip))


def assigned(session: Session, name: str, vip: str) -> None:
    """Do what OpenShift does: write the address to the external IPs and to status (its demo shows both)."""
    patch = ("patch", "service", name, "--namespace=demo", "--type=merge")
    session.cluster.kubectl(*patch, "--patch", json.dumps({"spec": {"externalIPs": [vip]}}))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": vip}]}}}
    session.cluster.kubectl(*patch, "--subresource=status", "--patch", json.dumps(status))


def kavips(session: Session) -> str:
    """kavip's pods and how often their containers were started."""
    path = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{'\\n'}{end}"
    selected = ("--selector=app.kubernetes.io/part-of=kavip", f"--output=jsonpath={path}")
    return "".join(
        sorted(session.cluster.kubectl("get", "pods", f"--namespace={manifests.NAMESPACE}", *selected).stdout)
    )


def test_the_demo_of_the_predecessor_on_openshift(session: Session, tmp_path: Path) -> None:
    """Its VIP answers from outside, a deleted DaemonSet comes back, and a real Prometheus reads every node."""
    group = {"interface": "eth0", "nodeSelector": {ROLE: ""}, "blacklistRouterIDs": [1, 2]}
    workers = object_of("KeepalivedGroup", NAME, namespace=HOME, version="redhatcop.redhat.io/v1alpha1", spec=group)
    pods = (MANIFESTS / "web.yaml").read_text().replace("namespace: shop", "namespace: demo")
    _, deployment, _ = pods.split("---\n")
    session.cluster.kubectl("apply", "--filename=-", input=deployment)
    apply(session, workers, a_service("demo", namespace="demo", annotations=NOTES, selector={"app": "web"}))
    wait_for("kavip leaves it to the platform", lambda: left(session), timeout=PATIENCE)
    assigned(session, "demo", VIP)
    wait_for("the VIP answers", lambda: served(session, VIP), timeout=PATIENCE)
    assert session.get("keepalivedgroup", NAME, "-n", HOME)["status"]["routerIDs"] == {"demo/demo": 4}

    owned = str(session.get("daemonset", NAME, "-n", HOME)["metadata"]["uid"])
    session.cluster.kubectl("delete", "daemonset", NAME, f"--namespace={HOME}")

    def again() -> bool:
        return str((session.get("daemonset", NAME, "-n", HOME) or {}).get("metadata", {}).get("uid", owned)) != owned

    wait_for("there is another DaemonSet", again, timeout=PATIENCE)
    wait_for("the VIP answers again", lambda: served(session, VIP), timeout=PATIENCE)
    check_families(session)
    check_ingress(session, tmp_path)
    check_monitoring(session, tmp_path)


def left(session: Session) -> bool:
    """Whether the Service's condition says that OpenShift assigns the address."""
    return session.condition("service", "demo/demo", names.ConditionType.ADDRESS_ASSIGNED)[1] == "LeftToPlatform"


def check_families(session: Session) -> None:
    """One Service of each kind, which names a pool of kavip: the platform does not assign its addresses."""
    pooled = {**NOTES, names.POOL_ANNOTATION: "own"}
    kinds = {"four": ["IPv4"], "six": ["IPv6"], "both": ["IPv4", "IPv6"]}
    for name, families in kinds.items():
        policy = "RequireDualStack" if len(families) == 2 else "SingleStack"
        spec = {"ipFamilies": families, "ipFamilyPolicy": policy, "selector": {"app": "web"}}
        apply(session, a_service(name, namespace="demo", annotations=pooled, **spec))
    for name, families in kinds.items():

        def has_all(name: str = name, wanted: int = len(families)) -> bool:
            return len(session.addresses(f"demo/{name}")) == wanted

        wait_for(f"{name} has its addresses", has_all, timeout=PATIENCE)
        for vip in session.addresses(f"demo/{name}"):
            wait_for(f"{vip} of {name} answers", partial(served, session, vip), timeout=PATIENCE)


def check_ingress(session: Session, home: Path) -> None:
    """A VIP without a Service, as in keepalived-ingress-vip: it leaves a node whose ingress is unhealthy."""
    serve = (sys.executable, "-m", "http.server", "10254", "--bind=127.0.0.1", f"--directory={home}")
    nodes = {name: session.cluster.node(name) for name in ("n1", "n2")}
    ingresses = {name: node.spawn(*serve, log=home / f"{name}.log") for name, node in nodes.items()}
    check = {"name": "ingress", "url": "http://127.0.0.1:10254/", "intervalSeconds": 1, "failAfter": 2}
    spec = {"interface": "eth0", "nodeSelector": {ROLE: ""}, "checks": [check]}
    spec |= {"virtualIPs": [{"address": f"{INGRESS}/24"}]}
    kind = {"namespace": HOME, "version": "redhatcop.redhat.io/v1alpha1"}
    apply(session, object_of("KeepalivedGroup", "ingress", spec=spec, **kind))

    def holder() -> str:
        held = [node.name for node in session.holders(INGRESS)]
        return held[0] if len(held) == 1 else ""

    try:
        first = session.holder(INGRESS).name
        stop([ingresses[first]])
        (other,) = {"n1", "n2"} - {first}
        wait_for("the VIP moves to the node with a healthy ingress", lambda: holder() == other, timeout=PATIENCE)
    finally:
        stop([each for each in ingresses.values() if each.alive])


def check_monitoring(session: Session, home: Path) -> None:
    """
    Prometheus' CRDs are installed later: kavip makes its objects without a restart, with working rights and selectors.
    """
    before = kavips(session)
    for kind, plural in KINDS.items():
        apply(session, crd("monitoring.coreos.com", kind, plural, scope="Namespaced"))
    wait_for("there is a PodMonitor", lambda: session.get("podmonitor", NAME, "-n", HOME), timeout=PATIENCE)
    session.cluster.helm("upgrade", *release(session.cluster), "--reuse-values", "--set=serviceMonitor.enabled=true")
    assert kavips(session) == before, "nothing was restarted"
    pod_monitor = session.get("podmonitor", NAME, "-n", HOME)
    service_monitor = session.get("servicemonitor", "kavip", "-n", manifests.NAMESPACE)
    account = f"{ACCOUNT[0]}:{ACCOUNT[1]}"
    reader = ("rolebinding", "prometheus", "--clusterrole=view", f"--serviceaccount={account}")
    session.cluster.kubectl(
        "create", *reader, f"--namespace={manifests.NAMESPACE}"
    )  # as users of its operator grant it
    try:
        with scraping(session.cluster, home, pod_monitor, service_monitor) as prometheus:
            check_metrics(session, prometheus)
    finally:
        session.cluster.kubectl("delete", "rolebinding", "prometheus", f"--namespace={manifests.NAMESPACE}")
        # a release cannot be upgraded any more when the kind of one of its objects is deleted
        session.cluster.helm(
            "upgrade", *release(session.cluster), "--reuse-values", "--set=serviceMonitor.enabled=false"
        )


def check_metrics(session: Session, prometheus: Prometheus) -> None:
    """Every node of the group and every replica is seen, and the master of the VIP counts its advertisements."""
    port = session.get("keepalivedgroup", NAME, "-n", HOME)["status"]["metricsPort"]
    nodes = {f"{session.cluster.node(name).ipv4}:{port}": 1.0 for name in ("n1", "n2")}
    prometheus.wait_until("both nodes are scraped", lambda: prometheus.query("keepalived_up") == nodes)
    master = 'rate(keepalived_vrrp_advert_sent{name="demo/demo"}[30s]) > 0'

    def is_sent() -> bool:  # a VIP that moves on a busy machine has had two masters in these seconds
        return set(prometheus.query(master)) == {f"{each.ipv4}:{port}" for each in session.holders(VIP)}

    prometheus.wait_until("only the master sends", is_sent)
    leaders = "sum(kavip_leader)"
    prometheus.wait_until("one replica leads", lambda: prometheus.query(leaders) == {"": 1.0})
    replicas = "count(kavip_build_info)"
    prometheus.wait_until("both replicas of both Deployments are seen", lambda: prometheus.query(replicas) == {"": 4.0})
