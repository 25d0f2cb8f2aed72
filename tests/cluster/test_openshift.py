"""
The story of keepalived-operator's demo on OpenShift, on a real cluster with kavip: project, group, Service, DaemonSet.

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
from hack.demo.story import MANIFESTS, Story
from hack.testbed.cluster import Cluster
from hack.testbed.process import stop, wait_for
from kavip import names
from tests.app.conftest import a_pool, a_service, crd, object_of
from tests.cluster.ground import PATIENCE, applied, made, release, removed
from tests.cluster.prometheus import ACCOUNT, Prometheus, scraping
from tests.support import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

HOME, NAME = "keepalived-operator", "keepalivedgroup-workers"
NOTES = {names.GROUP_ANNOTATION: f"{HOME}/{NAME}"}
ROLE = "node-role.kubernetes.io/loadbalancer"
VIP, INGRESS = "192.0.2.178", "192.0.2.195"
KINDS = {"PodMonitor": "podmonitors", "ServiceMonitor": "servicemonitors"}
NETWORK = crd("config.openshift.io", "Network", "networks", scope="Cluster")


@pytest.fixture
def story(cluster: Callable[..., Cluster]) -> Iterator[Story]:
    """Three nodes, two of them load balancers, kavip, and OpenShift's policy for external IPs; removed afterwards."""
    found = Story(cluster(nodes=3, images=(image(),)))
    kubectl = found.cluster.kubectl
    found.cluster.helm(
        "upgrade", "--install", *release(found.cluster), "--create-namespace", "--set=image.pullPolicy=Never"
    )
    made(found.cluster, HOME, "demo", ACCOUNT[0])
    apply(found, NETWORK)
    found.cluster.plane.wait_established()
    external = {"autoAssignCIDRs": ["192.0.2.176/28"], "policy": {"allowedCIDRs": ["192.0.2.176/28"]}}
    apply(
        found,
        object_of("Network", "cluster", version="config.openshift.io/v1", spec={"externalIP": external}),
        object_of("ServiceAccount", ACCOUNT[1], namespace=ACCOUNT[0]),
        a_pool("own", "192.0.2.184/29", "2001:db8:2::180/124", autoAssign=False),
    )
    for node in ("n1", "n2"):
        kubectl("label", "node", node, f"{ROLE}=", "--overwrite")
    try:
        yield found
    finally:
        plurals = (f"{plural}.monitoring.coreos.com" for plural in KINDS.values())
        removed(
            found.cluster,
            ("services", "--all", "--namespace=demo"),
            ("namespaces", "demo", HOME, ACCOUNT[0], "--wait=false"),
            ("vippool", "own"),
            ("crd", "networks.config.openshift.io", *plurals),
        )
        kubectl("label", "nodes", "--all", f"{ROLE}-")


def apply(story: Story, *objects: dict[str, Any]) -> None:
    """Apply objects as a user does."""
    applied(story.cluster, *objects)


def served(story: Story, vip: str) -> bool:
    """Whether a client outside gets an answer, from one of the nodes that are load balancers."""
    holders = [node.name for node in story.holders(vip)]
    return len(holders) == 1 and holders[0] in ("n1", "n2") and bool(story.answers(vip))


def assigned(story: Story, name: str, vip: str) -> None:
    """Do what OpenShift does: write the address to the external IPs and to status (its demo shows both)."""
    patch = ("patch", "service", name, "--namespace=demo", "--type=merge")
    story.cluster.kubectl(*patch, "--patch", json.dumps({"spec": {"externalIPs": [vip]}}))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": vip}]}}}
    story.cluster.kubectl(*patch, "--subresource=status", "--patch", json.dumps(status))


def kavips(story: Story) -> str:
    """kavip's pods and how often their containers were started."""
    path = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{'\\n'}{end}"
    selected = ("--selector=app.kubernetes.io/name=kavip", f"--output=jsonpath={path}")
    return "".join(sorted(story.cluster.kubectl("get", "pods", f"--namespace={manifests.NAMESPACE}", *selected).stdout))


def test_the_demo_of_the_predecessor_on_openshift(story: Story, tmp_path: Path) -> None:
    """Its VIP answers from outside, a deleted DaemonSet comes back, and a real Prometheus reads every node."""
    group = {"interface": "eth0", "nodeSelector": {ROLE: ""}, "blacklistRouterIDs": [1, 2]}
    made = object_of("KeepalivedGroup", NAME, namespace=HOME, version="redhatcop.redhat.io/v1alpha1", spec=group)
    pods = (MANIFESTS / "web.yaml").read_text().replace("namespace: shop", "namespace: demo")
    _, deployment, _ = pods.split("---\n")
    story.cluster.kubectl("apply", "--filename=-", input=deployment)
    apply(story, made, a_service("demo", namespace="demo", annotations=NOTES, selector={"app": "web"}))
    wait_for("kavip leaves it to the platform", lambda: left(story), timeout=PATIENCE)
    assigned(story, "demo", VIP)
    wait_for("the VIP answers", lambda: served(story, VIP), timeout=PATIENCE)

    owned = str(story.get("daemonset", NAME, "-n", HOME)["metadata"]["uid"])
    story.cluster.kubectl("delete", "daemonset", NAME, f"--namespace={HOME}")

    def again() -> bool:
        return str((story.get("daemonset", NAME, "-n", HOME) or {}).get("metadata", {}).get("uid", owned)) != owned

    wait_for("there is another DaemonSet", again, timeout=PATIENCE)
    wait_for("the VIP answers again", lambda: served(story, VIP), timeout=PATIENCE)
    check_families(story)
    check_ingress(story, tmp_path)
    check_monitoring(story, tmp_path)


def left(story: Story) -> bool:
    """Whether the Service's condition says that OpenShift assigns the address."""
    return story.condition("service", "demo/demo", names.ConditionType.ADDRESS_ASSIGNED)[1] == "LeftToPlatform"


def check_families(story: Story) -> None:
    """One Service of each kind from a pool of kavip's own, which it names: the platform has no say in them."""
    pooled = {**NOTES, names.POOL_ANNOTATION: "own"}
    kinds = {"four": ["IPv4"], "six": ["IPv6"], "both": ["IPv4", "IPv6"]}
    for name, families in kinds.items():
        policy = "RequireDualStack" if len(families) == 2 else "SingleStack"
        spec = {"ipFamilies": families, "ipFamilyPolicy": policy, "selector": {"app": "web"}}
        apply(story, a_service(name, namespace="demo", annotations=pooled, **spec))
    for name, families in kinds.items():

        def has_all(name: str = name, wanted: int = len(families)) -> bool:
            return len(story.addresses(f"demo/{name}")) == wanted

        wait_for(f"{name} has its addresses", has_all, timeout=PATIENCE)
        for vip in story.addresses(f"demo/{name}"):
            wait_for(f"{vip} of {name} answers", partial(served, story, vip), timeout=PATIENCE)


def check_ingress(story: Story, home: Path) -> None:
    """A VIP without a Service, as in keepalived-ingress-vip: it leaves a node whose ingress is unhealthy."""
    serve = (sys.executable, "-m", "http.server", "10254", "--bind=127.0.0.1", f"--directory={home}")
    nodes = {name: story.cluster.node(name) for name in ("n1", "n2")}
    ingresses = {name: node.spawn(*serve, log=home / f"{name}.log") for name, node in nodes.items()}
    check = {"name": "ingress", "url": "http://127.0.0.1:10254/", "intervalSeconds": 1, "failAfter": 2}
    spec = {"interface": "eth0", "nodeSelector": {ROLE: ""}, "checks": [check]}
    spec |= {"virtualIPs": [{"address": f"{INGRESS}/24"}]}
    kind = {"namespace": HOME, "version": "redhatcop.redhat.io/v1alpha1"}
    apply(story, object_of("KeepalivedGroup", "ingress", spec=spec, **kind))

    def holder() -> str:
        held = [node.name for node in story.holders(INGRESS)]
        return held[0] if len(held) == 1 else ""

    try:
        first = story.holder(INGRESS).name
        stop([ingresses[first]])
        (other,) = {"n1", "n2"} - {first}
        wait_for("the VIP goes where the ingress is well", lambda: holder() == other, timeout=PATIENCE)
    finally:
        stop([each for each in ingresses.values() if each.alive])


def check_monitoring(story: Story, home: Path) -> None:
    """
    Prometheus' CRDs are installed later: kavip makes its objects without a restart, with working rights and selectors.
    """
    before = kavips(story)
    for kind, plural in KINDS.items():
        apply(story, crd("monitoring.coreos.com", kind, plural, scope="Namespaced"))
    wait_for("there is a PodMonitor", lambda: story.get("podmonitor", NAME, "-n", HOME), timeout=PATIENCE)
    story.cluster.helm("upgrade", *release(story.cluster), "--reuse-values", "--set=serviceMonitor.enabled=true")
    assert kavips(story) == before, "nothing was restarted"
    pod_monitor = story.get("podmonitor", NAME, "-n", HOME)
    service_monitor = story.get("servicemonitor", "kavip", "-n", manifests.NAMESPACE)
    account = f"{ACCOUNT[0]}:{ACCOUNT[1]}"
    reader = ("rolebinding", "prometheus", "--clusterrole=view", f"--serviceaccount={account}")
    story.cluster.kubectl("create", *reader, f"--namespace={manifests.NAMESPACE}")  # as users of its operator grant it
    try:
        with scraping(story.cluster, home, pod_monitor, service_monitor) as prometheus:
            check_metrics(story, prometheus)
    finally:
        story.cluster.kubectl("delete", "rolebinding", "prometheus", f"--namespace={manifests.NAMESPACE}")
        # a release cannot be upgraded any more when the kind of one of its objects is gone
        story.cluster.helm("upgrade", *release(story.cluster), "--reuse-values", "--set=serviceMonitor.enabled=false")


def check_metrics(story: Story, prometheus: Prometheus) -> None:
    """Every node of the group and every replica is seen, and the master of the VIP counts its advertisements."""
    port = story.get("keepalivedgroup", NAME, "-n", HOME)["status"]["metricsPort"]
    nodes = {f"{story.cluster.node(name).ipv4}:{port}": 1.0 for name in ("n1", "n2")}
    prometheus.wait_until("both nodes are scraped", lambda: prometheus.query("keepalived_up") == nodes)
    master = 'rate(keepalived_vrrp_advert_sent{name="demo/demo"}[30s]) > 0'

    def is_sent() -> bool:  # a VIP that moves on a busy machine has had two masters in these seconds
        return set(prometheus.query(master)) == {f"{each.ipv4}:{port}" for each in story.holders(VIP)}

    prometheus.wait_until("only the master sends", is_sent)
    leaders = "sum(kavip_leader)"
    prometheus.wait_until("one replica leads", lambda: prometheus.query(leaders) == {"": 1.0})
    replicas = "count(kavip_build_info)"
    prometheus.wait_until("both replicas are seen", lambda: prometheus.query(replicas) == {"": 2.0})
