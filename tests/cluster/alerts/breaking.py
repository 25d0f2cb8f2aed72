"""What breaks something for the duration of a block."""

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hack.demo.session import Session
from hack.testbed.process import Process, wait_for
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from tests.app.conftest import a_group, a_pool, object_of
from tests.cluster.alerts.shop import (
    NODES,
    OUTSIDE,
    applied,
    deleted,
    label,
    patch_group,
    served,
    unlabel,
)
from tests.cluster.provisioning import PATIENCE, apply_objects, release, retry_kubectl
from tests.cluster.site import SHOP
from tests.support import manifests

Broken = AbstractContextManager[None]

CHECK = {"name": "api", "url": "http://127.0.0.1:9/", "onFailure": "LowerPriority", "intervalSeconds": 1}
"""Nothing listens there."""
ROLE = "kavip-controller"
_OWN = f"--namespace={manifests.NAMESPACE}"
_STRANGER = "192.0.2.97"


@contextmanager
def outside(session: Session, *nodes: str) -> Iterator[None]:
    """*nodes* are not in the group."""
    unlabel(session, *nodes)
    try:
        yield
    finally:
        label(session, *nodes)


def no_node(session: Session) -> Broken:
    """No node is in the group."""
    return outside(session, *NODES)


def pod_outside(session: Session) -> Broken:
    """The node with the only pod of a Local Service is not in the group."""
    return outside(session, OUTSIDE)


def full_pool(session: Session) -> Broken:
    """A pool with one address has two Services."""
    pool = a_pool("single", "192.0.2.176/32", autoAssign=False)
    return applied(session, pool, *(served(name, pool="single") for name in ("first", "second")))


def nearly_full_pool(session: Session) -> Broken:
    """A pool with ten addresses has ten Services."""
    pool = a_pool("ten", "192.0.2.180-192.0.2.189", autoAssign=False)
    return applied(session, pool, *(served(f"web-{number}", pool="ten") for number in range(10)))


def no_pool(session: Session) -> Broken:
    """A Service names no pool, and no pool serves such Services."""
    return applied(session, served("waits", pool=""))


def foreign_daemonset(session: Session) -> Broken:
    """A DaemonSet of somebody else has the name of a group."""
    labels = {"app": "taken"}
    pod = {"containers": [{"name": "web", "image": "localhost/web:1"}], "nodeSelector": {"kavip-test/none": ""}}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    daemonset = object_of("DaemonSet", "taken", namespace="lb", version="apps/v1", spec=spec)
    return applied(session, daemonset, a_group("taken", nodeSelector={"kavip-test/none": ""}))


@contextmanager
def patched(session: Session, **spec: Any) -> Iterator[None]:
    """The group has other fields *spec*, which it does not have otherwise."""
    patch_group(session, **spec)
    try:
        yield
    finally:
        patch_group(session, **dict.fromkeys(spec))


def no_secret(session: Session) -> Broken:
    """A group names a Secret that does not exist."""
    vip = {"address": "192.0.2.178/24"}  # without a VIP no node needs the password
    secret = {"secretRef": {"name": "absent"}}
    return applied(session, a_group("locked", vrrpVersion=2, passwordAuth=secret, virtualIPs=[vip]))


def failing_check(session: Session) -> Broken:
    """A health check fails on every node."""
    return patched(session, checks=[CHECK])


def no_image(session: Session) -> Broken:
    """The image of the group does not exist."""
    return patched(session, image="localhost/absent:1")


@contextmanager
def stopped(processes: Iterable[Process]) -> Iterator[None]:
    """*processes*, of which there is one at least, do not run."""
    found = list(processes)
    assert found
    try:
        for each in found:
            each.signal(signal.SIGSTOP)
        yield
    finally:
        for each in found:
            each.signal(signal.SIGCONT)


def agents(session: Session, node: str) -> list[Process]:
    """The agents on *node*."""
    return [each for each in session.cluster.node(node).processes() if _arguments(each)[-1:] == ["agent"]]


def _arguments(process: Process) -> list[str]:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0").split("\0")
    except OSError:
        return []


def silent_agent(session: Session) -> Broken:
    """The agent of a node hangs."""
    return stopped(agents(session, "n2"))


def silent_agents(session: Session) -> Broken:
    """The agents of all nodes hang."""
    return stopped(one for node in NODES for one in agents(session, node))


@contextmanager
def dying_keepalived(session: Session) -> Iterator[None]:
    """keepalived dies again and again on a node, so that kubelet waits before it starts the container again."""
    node = session.cluster.node("n2")
    for _ in range(3):
        wait_for("keepalived runs", lambda: bool(session.daemons(node)), timeout=PATIENCE)
        for each in session.daemons(node):
            each.signal(signal.SIGKILL)
    yield


@contextmanager
def drained(session: Session, node: str) -> Iterator[None]:
    """The VIPs of *node* are on other nodes."""
    assert session.kavip("drain", node, "--wait", f"--timeout={PATIENCE:.0f}").returncode == 0
    try:
        yield
    finally:
        assert session.kavip("undrain", node).returncode == 0


@contextmanager
def hanging_kubelet(session: Session) -> Iterator[None]:
    """The kubelet of a node hangs while a Service is added."""
    with stopped(session.cluster.node("n2").processes("kubelet")), applied(session, served("late")):
        yield


@contextmanager
def no_leader(session: Session) -> Iterator[None]:
    """The controller has no replica."""
    scale = ("scale", "deployment/kavip-controller", _OWN)
    retry_kubectl(session.cluster, *scale, "--replicas=0")
    try:
        yield
    finally:
        retry_kubectl(session.cluster, *scale, "--replicas=2")


@contextmanager
def address_conflict(session: Session) -> Iterator[None]:
    """A machine that is no node has a VIP, and uses it."""
    vip = session.address(f"{SHOP}/web")
    with session.cluster.stranger(vip) as stranger:
        # an address that no machine has: before each packet the stranger asks for it, in the name of the VIP
        stranger.spawn("ping", "-I", vip, "192.0.2.98", log=stranger.home / "ping.log")
        yield


@contextmanager
def other_router(session: Session) -> Iterator[None]:
    """A router that is no node has the VRID of a Service."""
    group = session.get("keepalivedgroup", "edge", "--namespace=lb")
    vrid = group["status"]["routerIDs"][f"{SHOP}/web"]
    with session.cluster.stranger() as stranger:
        program = (sys.executable, "-m", "tests.support.vrrprouter", str(vrid), stranger.ipv4, _STRANGER)
        stranger.spawn(*program, log=stranger.home / "log")
        yield


@contextmanager
def split_brain(session: Session) -> Iterator[None]:
    """No node hears the adverts of the others."""
    rules = "table inet deaf { chain input { type filter hook input priority -300; meta l4proto 112 drop; }; }"
    try:
        for name in NODES:
            session.cluster.node(name).exec("nft", "-f", "-", input=rules)
        yield
    finally:
        for name in NODES:
            session.cluster.node(name).exec("nft", "delete", "table", "inet", "deaf", check=False)


@contextmanager
def flapping(session: Session) -> Iterator[None]:
    """Adverts are lost again and again."""
    vip = session.address(f"{SHOP}/web")
    for _ in range(4):
        with split_brain(session):
            wait_for("each node has the VIP", lambda: len(session.holders(vip)) == len(NODES), timeout=PATIENCE)
        session.holder(vip)
    yield


@contextmanager
def without_right(session: Session, resource: str) -> Iterator[None]:
    """The controller may not do anything with *resource*."""
    role = session.get("clusterrole", ROLE)
    rules = [_without(rule, resource) for rule in role["rules"]]
    _replace_rules(session, [rule for rule in rules if rule["resources"]])
    try:
        yield
    finally:
        _replace_rules(session, role["rules"])


def _without(rule: dict[str, Any], resource: str) -> dict[str, Any]:
    return {**rule, "resources": [each for each in rule.get("resources", ()) if each != resource]}


def _replace_rules(session: Session, rules: list[dict[str, Any]]) -> None:
    patch = (
        "patch",
        "clusterrole",
        ROLE,
        "--field-manager=helm",
        "--type=merge",
        "--patch",
        json.dumps({"rules": rules}),
    )
    retry_kubectl(session.cluster, *patch)


@contextmanager
def no_right_to_events(session: Session) -> Iterator[None]:
    """The controller may not create Events, and has some to create."""
    service = served("eventful")
    with deleted(session, service), without_right(session, "events"):
        apply_objects(session.cluster, service)
        yield


@contextmanager
def no_right_to_write(session: Session) -> Iterator[None]:
    """The controller may not write the status of Services, and has some to write."""
    service = served("unwritten")
    with deleted(session, service), without_right(session, "services/status"):
        apply_objects(session.cluster, service)
        yield


@contextmanager
def no_right_to_watch(session: Session) -> Iterator[None]:
    """A new controller may not list and watch pools."""
    with without_right(session, "vippools"):
        retry_kubectl(session.cluster, "rollout", "restart", "deployment/kavip-controller", _OWN)
        yield


@contextmanager
def expiring_certificate(session: Session) -> Iterator[None]:
    """The certificate that an administrator provides is valid for half a day."""
    ca = certificates.new_ca(datetime.now(UTC))
    with deleted(session, certificate_secret(ca, lifetime=timedelta(hours=12))):
        apply_objects(session.cluster, certificate_secret(ca, lifetime=timedelta(hours=12)))
        set_certificates(session, "provided")
        try:
            yield
        finally:
            apply_objects(session.cluster, certificate_secret(ca, lifetime=timedelta(days=30)))
            set_certificates(session, "self")


def certificate_secret(ca: KeyPair, *, lifetime: timedelta) -> dict[str, Any]:
    """The Secret that an administrator fills, with a certificate of *ca* for the webhook."""
    host = f"kavip-webhook.{manifests.NAMESPACE}.svc"
    leaf = certificates.new_leaf(ca, [host], datetime.now(UTC), lifetime=lifetime)
    data = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem, "ca.crt": ca.certificate_pem}
    text = {key: each.decode() for key, each in data.items()}
    return object_of("Secret", "kavip-webhook-tls", namespace=manifests.NAMESPACE, stringData=text)


def set_certificates(session: Session, mode: str) -> None:
    """Upgrade to another mode of certificates."""
    session.cluster.helm("upgrade", *release(session.cluster), "--reuse-values", f"--set=certs.mode={mode}")
