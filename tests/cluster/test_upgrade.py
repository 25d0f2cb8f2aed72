"""
`helm upgrade` and `helm rollback` on a real cluster: which pods of groups they replace, and that users' data stay.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hack.demo.__main__ import REPOSITORY, TAG, image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.provisioning import (
    OWN,
    PATIENCE,
    WEB_LABELS,
    create_namespaces,
    delete_objects,
    release,
    retry_kubectl,
    web_deployment,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OTHER = "other"
"""Another tag of the same image: only the difference counts."""
GROUPS: dict[str, dict[str, Any]] = {"kept": {"updateStrategy": {"type": "OnDelete"}}, "rolled": {}}


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Two nodes, kavip, and a VIP in a group that keeps its pods and in one that does not; removed afterwards."""
    found = Session(cluster(nodes=2, images=(image(),)))
    for node in found.cluster.nodes:
        tags = f"{REPOSITORY}:{TAG}", f"{REPOSITORY}:{OTHER}"
        node.exec("ctr", "--namespace=k8s.io", "images", "tag", "--force", *tags)
    upgrade(session=found)
    create_namespaces(found.cluster, "lb", "shop")
    groups = (a_group(name, **spec) for name, spec in GROUPS.items())
    chosen = {name: {names.GROUP_ANNOTATION: f"lb/{name}"} for name in GROUPS}
    services = (a_service(name, annotations=chosen[name], selector=WEB_LABELS) for name in GROUPS)
    for each in (web_deployment(), a_pool("upgrade", "192.0.2.208/29"), *groups, *services):
        retry_kubectl(found.cluster, "apply", "--filename=-", stdin=json.dumps(each))
    try:
        yield found
    finally:
        upgrade(session=found)
        leftover = ("services", "--all", "--namespace=shop")
        delete_objects(found.cluster, leftover, ("namespace", "lb", "shop", "--wait=false"), ("vippool", "upgrade"))


def upgrade(*settings: str, session: Session) -> None:
    """`helm upgrade` with *settings* beside the usual ones."""
    values = (f"--set={each}" for each in ("image.pullPolicy=Never", *settings))
    session.cluster.helm("upgrade", "--install", *release(session.cluster), "--create-namespace", *values)


def revision(session: Session) -> str:
    """The number of the current release."""
    return str(json.loads(session.cluster.helm("status", "kavip", OWN, "--output=json").stdout)["version"])


def rollback(session: Session, to: str) -> None:
    """`helm rollback` to that number."""
    session.cluster.helm("rollback", "kavip", to, OWN, "--wait=watcher")


def test_upgrade_and_rollback_leave_pods_of_groups_alone(session: Session) -> None:
    """Other values keep all pods; another image keeps only the pods of a group with OnDelete."""
    wait_until_settled(session)
    began = revision(session)
    before, users_before = {name: pods_of(session, name) for name in GROUPS}, users(session)
    upgrade("replicaCount=1,agent.probeInterval=2,webhook.allowMissingGroup=warn", session=session)
    rollback(session, began)
    wait_until_settled(session)
    assert {name: pods_of(session, name) for name in GROUPS} == before
    upgrade(f"image.tag={OTHER}", session=session)
    wait_for("the pods run the other image", lambda: runs(session, "rolled", OTHER), timeout=PATIENCE, interval=1)
    wait_until_settled(session)
    middle = pods_of(session, "rolled")
    rollback(session, began)
    wait_for("the image is back", lambda: runs(session, "rolled", TAG), timeout=PATIENCE, interval=1)
    wait_until_settled(session)
    assert pods_of(session, "kept") == before["kept"]
    assert middle.keys().isdisjoint(before["rolled"])
    assert middle.keys().isdisjoint(pods_of(session, "rolled"))
    assert users(session) == users_before


def wait_until_settled(session: Session) -> None:
    """Wait until all nodes of both groups run what they should, and the VIPs answer."""

    def is_settled(name: str) -> bool:
        kinds = ("Programmed", "Ready")
        is_run = all(session.condition("keepalivedgroup", f"lb/{name}", kind)[0] == "True" for kind in kinds)
        return is_run and bool(session.answers(session.address(f"shop/{name}")))

    wait_for("both groups serve", lambda: all(map(is_settled, GROUPS)), timeout=PATIENCE, interval=1)


def pods_of(session: Session, group: str) -> dict[str, Any]:
    """The pods of a group by UID, and which containers they run."""
    found = session.get("pods", "-n", "lb", f"--selector={names.GROUP_LABEL}={group}")["items"]
    return {
        each["metadata"]["uid"]: sorted(one["containerID"] for one in each["status"]["containerStatuses"])
        for each in found
    }


def runs(session: Session, group: str, tag: str) -> bool:
    """Whether every node has a pod of a group with the image of that *tag*."""
    found = session.get("pods", "-n", "lb", f"--selector={names.GROUP_LABEL}={group}")["items"]
    tags = {one["image"].rpartition(":")[2] for each in found for one in each["spec"]["containers"]}
    return tags == {tag} and len(found) == len(session.cluster.nodes)


def users(session: Session) -> dict[str, Any]:
    """The users' objects, with their addresses and VRIDs."""
    groups, pools = session.get("keepalivedgroups", "-n", "lb")["items"], session.get("vippools")["items"]
    return {
        **{f"lb/{each['metadata']['name']}": (each["spec"], each["status"]["routerIDs"]) for each in groups},
        **{each["metadata"]["name"]: (each["spec"], each["status"]["ipv4"]) for each in pools},
        **{f"shop/{name}": session.addresses(f"shop/{name}") for name in GROUPS},
    }
