"""kavip is installed but does not answer: which requests the API server accepts then."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import Result
from hack.testbed.process import wait_for
from kavip import names
from tests.chart.release import MARKED, RELEASE, Helm, refused, service, wait_served
from tests.support import manifests

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

HELD = {"finalizers": ["kavip.io/test"]}
EXTERNAL = ["192.0.2.200"]
CROWD = [f"{number:05}" for number in range(52_000)]
"""As many annotations as an object has room for, 256 KiB."""
PLAIN = {
    "plain": service("new"),
    "ClusterIP": service("new", type="ClusterIP"),
    "NodePort": service("new", type="NodePort"),
    "ExternalName": service("new", type="ExternalName", externalName="example.net"),
    "headless": service("new", type="ClusterIP", clusterIP="None"),
    "other class": service("new", loadBalancerClass="example.net/other"),
    "other annotations": service("new", metadata={"annotations": {"example.net/pool": "edge"}}),
    "wish for an address": service("new", loadBalancerIP="192.0.2.7"),
    "external IPs": service("new", externalIPs=EXTERNAL),
    "in kube-system": service("new", metadata={"namespace": "kube-system", **MARKED}),
    "beside kavip": service("new", metadata={"namespace": manifests.NAMESPACE, **MARKED}),
}
"""Services that are none of kavip's business, or that a cluster needs to come up."""
OURS = {
    "an annotation of ours": service("new", metadata=MARKED),
    "an annotation of the predecessor": service("new", metadata={"annotations": {names.GROUP_ANNOTATION: "lb/edge"}}),
    "our class": service("new", loadBalancerClass=names.LOAD_BALANCER_CLASS),
}


@pytest.fixture
def before(server: ControlPlane) -> ControlPlane:
    """A control plane with objects that are older than kavip's webhooks; some are in deletion."""
    server.kubectl("apply", "--server-side", f"--kustomize={manifests.CONFIG / 'crd'}")
    wait_served(server)
    group = {
        "apiVersion": f"{names.REDHATCOP_GROUP}/{names.VERSION}",
        "kind": names.KEEPALIVED_GROUP,
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"interface": "eth0"},
    }
    create(server, group)
    create(server, service("marked", metadata=MARKED))
    create(server, service("plain"))
    create(server, service("external", externalIPs=EXTERNAL))
    create(server, service("held", metadata={**MARKED, **HELD}))
    server.kubectl("delete", "service", "held", "--wait=false")
    return server


@pytest.fixture
def leaving(before: ControlPlane) -> ControlPlane:
    """The same with one object of each kind in deletion, made by ``kubectl apply`` and held by a finalizer."""
    before.kubectl("create", f"--filename={manifests.CONFIG}/samples/vippool.yaml")
    before.kubectl("apply", "-f", "-", input=json.dumps(_leaving_service()))
    create(before, service("crowded", metadata={"annotations": dict.fromkeys(CROWD, ""), **HELD}))
    for each in ("keepalivedgroup/edge", "vippool/edge"):
        patch(before, each, {"metadata": HELD})
    leaving = ("service/leaving", "service/crowded", "keepalivedgroup/edge", "vippool/edge")
    before.kubectl("delete", *leaving, "--wait=false")
    return before


def _leaving_service(**metadata: Any) -> dict[str, Any]:
    return service("leaving", metadata={**MARKED, **HELD, **metadata})


@pytest.fixture
def installed(helm: Helm, before: ControlPlane) -> Callable[..., ControlPlane]:
    """A function that installs kavip; no replica runs."""

    def install(*flags: str) -> ControlPlane:
        helm("install", *RELEASE, "--set=replicaCount=0,crds.install=false", *flags, kubeconfig=before.kubeconfig)
        ours = service("new", metadata=MARKED)
        wait_for("the API server asks", lambda: refused(before, ours), timeout=150, interval=0.2)
        return before

    return install


def test_other_objects_are_not_affected(installed: Callable[..., ControlPlane]) -> None:
    """Services without kavip's annotation or class are created, changed and deleted; deletions finish."""
    server = installed()
    assert [what for what, subject in PLAIN.items() if refused(server, subject)] == []
    assert [what for what, subject in OURS.items() if not refused(server, subject)] == []

    patch(server, "service/plain", {"metadata": {"labels": {"a": "b"}}, "spec": {"externalIPs": EXTERNAL}})
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}
    patch(server, "service/marked", status, "--subresource=status")
    patch(server, "keepalivedgroup/edge", {"status": {"routerIDs": {"a/b": 7}}}, "--subresource=status")
    patch(server, "service/held", {"metadata": {"finalizers": []}})
    server.kubectl("delete", "service", "marked", "plain")
    server.kubectl("delete", "keepalivedgroup", "edge")
    gone = server.kubectl("get", "service/held", "service/marked", "keepalivedgroup/edge", "--ignore-not-found")
    assert not gone.stdout


def test_kavips_objects_cannot_be_changed(installed: Callable[..., ControlPlane]) -> None:
    """A Service cannot become managed, change, or cease to be managed; nor can groups and pools change."""
    server = installed()
    for kind, change in (
        ("service/plain", {"metadata": MARKED}),
        ("service/marked", {"metadata": {"labels": {"a": "b"}}}),
        ("service/marked", {"metadata": {"annotations": {names.POOL_ANNOTATION: None}}}),
        ("keepalivedgroup/edge", {"spec": {"interface": "eth1"}}),
    ):
        assert unanswered(patch(server, kind, change, check=False)), (kind, change)
    assert unanswered(server.kubectl("create", f"--filename={manifests.CONFIG}/samples/vippool.yaml", check=False))


def test_pools_cannot_be_deleted(installed: Callable[..., ControlPlane], before: ControlPlane) -> None:
    """A DELETE has only the old object, and the match conditions hold for it."""
    before.kubectl("create", f"--filename={manifests.CONFIG}/samples/vippool.yaml")
    server = installed()
    assert unanswered(server.kubectl("delete", "vippool", "edge", check=False))
    patch(
        server,
        "vippool/edge",
        {"status": {"ipv4": {"total": 1, "assigned": 0, "available": 1}}},
        "--subresource=status",
    )


def test_with_all_external_ips_guarded(installed: Callable[..., ControlPlane]) -> None:
    """With externalIPs.scope: all no Service can get or change externalIPs; they may stay or be removed."""
    server = installed("--set=externalIPs.scope=all")
    assert [what for what, subject in PLAIN.items() if refused(server, subject)] == ["external IPs"]
    assert unanswered(patch(server, "service/plain", {"spec": {"externalIPs": EXTERNAL}}, check=False))
    assert unanswered(patch(server, "service/external", {"spec": {"externalIPs": ["192.0.2.201"]}}, check=False))
    patch(server, "service/external", {"metadata": {"labels": {"a": "b"}}})
    patch(server, "service/external", {"spec": {"externalIPs": []}})


def create(server: ControlPlane, subject: manifests.Object, *, check: bool = True) -> Result:
    """Create *subject*."""
    return server.kubectl("create", "--filename=-", input=json.dumps(subject), check=check)


def patch(server: ControlPlane, subject: str, change: dict[str, Any], *flags: str, check: bool = True) -> Result:
    """Merge *change* into *subject* (``kind/name``) in the namespace default."""
    return server.kubectl("patch", subject, "--type=merge", *flags, "--patch", json.dumps(change), check=check)


def unanswered(done: Result) -> bool:
    """Whether the API server refused because kavip does not answer."""
    return bool(done.returncode) and "failed calling webhook" in done.stderr


def test_objects_in_deletion_can_be_cleaned_up(installed: Callable[..., ControlPlane], leaving: ControlPlane) -> None:
    """``kubectl apply`` and patches remove finalizers, whatever the annotations; another DELETE is accepted."""
    server = installed()
    deleted = server.kubectl("delete", "vippool/edge", "keepalivedgroup/edge", "service/leaving", "--wait=false")
    assert deleted.returncode == 0
    patch(server, "service/leaving", {"metadata": {"annotations": {"example.com/note": "a"}}})
    server.kubectl("apply", "-f", "-", input=json.dumps(_leaving_service(finalizers=[])))
    for each in ("service/crowded", "keepalivedgroup/edge", "vippool/edge"):
        patch(server, each, {"metadata": {"finalizers": []}})
    kinds = ("service/leaving", "service/crowded", "keepalivedgroup/edge", "vippool/edge")
    assert not server.kubectl("get", *kinds, "--ignore-not-found").stdout


def test_objects_in_deletion_cannot_be_changed(installed: Callable[..., ControlPlane], leaving: ControlPlane) -> None:
    """Spec, labels and kavip's annotations of an object in deletion are reviewed as those of any other."""
    server = installed()
    for kind, change in (
        ("service/leaving", {"spec": {"externalIPs": EXTERNAL}}),
        ("service/leaving", {"metadata": {"labels": {"a": "b"}}}),
        ("service/leaving", {"metadata": {"annotations": {names.GROUP_ANNOTATION: "lb/edge"}}}),
        ("service/leaving", {"metadata": {"annotations": {names.POOL_ANNOTATION: None}}}),
        ("service/leaving", {"metadata": {"annotations": {names.POOL_ANNOTATION: "other"}, "finalizers": []}}),
        ("keepalivedgroup/edge", {"spec": {"virtualIPs": [{"address": "192.0.2.7"}]}}),
        ("keepalivedgroup/edge", {"metadata": {"labels": {names.DEFAULT_GROUP_LABEL: "true"}}}),
        ("vippool/edge", {"spec": {"autoAssign": False}}),
    ):
        assert unanswered(patch(server, kind, change, check=False)), (kind, change)
