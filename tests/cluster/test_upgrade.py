"""
`helm upgrade` and `helm rollback` on a real cluster: which pods of groups they replace, and that users' data stay.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hack.demo.__main__ import REPOSITORY, TAG, image
from hack.demo.story import Story
from hack.testbed.cluster import Cluster
from hack.testbed.images import WEB
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service, object_of
from tests.cluster.ground import OWN, PATIENCE, insist, made, release, removed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OTHER = "other"
"""Another tag of the same image: only the difference counts."""
GROUPS: dict[str, dict[str, Any]] = {"kept": {"updateStrategy": {"type": "OnDelete"}}, "rolled": {}}


@pytest.fixture
def story(cluster: Callable[..., Cluster]) -> Iterator[Story]:
    """Two nodes, kavip, and a VIP in a group that keeps its pods and in one that does not; gone afterwards."""
    found = Story(cluster(nodes=2, images=(image(),)))
    for node in found.cluster.nodes:
        tags = f"{REPOSITORY}:{TAG}", f"{REPOSITORY}:{OTHER}"
        node.exec("ctr", "--namespace=k8s.io", "images", "tag", "--force", *tags)
    upgrade(story=found)
    made(found.cluster, "lb", "shop")
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": WEB}]}}
    backend = object_of("Deployment", "web", namespace="shop", version="apps/v1")
    backend["spec"] = {"selector": {"matchLabels": labels}, "template": pod}
    groups = (a_group(name, **spec) for name, spec in GROUPS.items())
    services = (a_service(name, annotations={names.GROUP_ANNOTATION: f"lb/{name}"}, selector=labels) for name in GROUPS)
    for each in (backend, a_pool("upgrade", "192.0.2.208/29"), *groups, *services):
        insist(found.cluster, "apply", "--filename=-", given=json.dumps(each))
    try:
        yield found
    finally:
        upgrade(story=found)
        gone = ("services", "--all", "--namespace=shop")
        removed(found.cluster, gone, ("namespace", "lb", "shop", "--wait=false"), ("vippool", "upgrade"))


def upgrade(*settings: str, story: Story) -> None:
    """`helm upgrade` with *settings* beside the usual ones."""
    values = (f"--set={each}" for each in ("image.pullPolicy=Never", *settings))
    story.cluster.helm("upgrade", "--install", *release(story.cluster), "--create-namespace", *values)


def revision(story: Story) -> str:
    """The number of the current release."""
    return str(json.loads(story.cluster.helm("status", "kavip", OWN, "--output=json").stdout)["version"])


def rollback(story: Story, to: str) -> None:
    """`helm rollback` to that number."""
    story.cluster.helm("rollback", "kavip", to, OWN, "--wait=watcher")


def test_upgrade_and_rollback_leave_pods_of_groups_alone(story: Story) -> None:
    """Other values keep all pods; another image keeps only the pods of a group that asks for it."""
    settled(story)
    began = revision(story)
    before, given = {name: pods_of(story, name) for name in GROUPS}, users(story)
    upgrade("replicaCount=1,agent.probeInterval=2,webhook.allowMissingGroup=warn", story=story)
    rollback(story, began)
    settled(story)
    assert {name: pods_of(story, name) for name in GROUPS} == before
    upgrade(f"image.tag={OTHER}", story=story)
    wait_for("the other image is there", lambda: runs(story, "rolled", OTHER), timeout=PATIENCE, interval=1)
    settled(story)
    middle = pods_of(story, "rolled")
    rollback(story, began)
    wait_for("the image is back", lambda: runs(story, "rolled", TAG), timeout=PATIENCE, interval=1)
    settled(story)
    assert pods_of(story, "kept") == before["kept"]
    assert middle.keys().isdisjoint(before["rolled"])
    assert middle.keys().isdisjoint(pods_of(story, "rolled"))
    assert users(story) == given


def settled(story: Story) -> None:
    """Wait until all nodes of both groups run what they should, and the VIPs answer."""

    def is_settled(name: str) -> bool:
        kinds = ("Programmed", "Ready")
        is_run = all(story.condition("keepalivedgroup", f"lb/{name}", kind)[0] == "True" for kind in kinds)
        return is_run and bool(story.answers(story.address(f"shop/{name}")))

    wait_for("both groups serve", lambda: all(map(is_settled, GROUPS)), timeout=PATIENCE, interval=1)


def pods_of(story: Story, group: str) -> dict[str, Any]:
    """The pods of a group by UID, and which containers they run."""
    found = story.get("pods", "-n", "lb", f"--selector={names.GROUP_LABEL}={group}")["items"]
    return {
        each["metadata"]["uid"]: sorted(one["containerID"] for one in each["status"]["containerStatuses"])
        for each in found
    }


def runs(story: Story, group: str, tag: str) -> bool:
    """Whether every node has a pod of a group with the image of that *tag*."""
    found = story.get("pods", "-n", "lb", f"--selector={names.GROUP_LABEL}={group}")["items"]
    tags = {one["image"].rpartition(":")[2] for each in found for one in each["spec"]["containers"]}
    return tags == {tag} and len(found) == len(story.cluster.nodes)


def users(story: Story) -> dict[str, Any]:
    """The users' objects, with their addresses and VRIDs."""
    groups, pools = story.get("keepalivedgroups", "-n", "lb")["items"], story.get("vippools")["items"]
    return {
        **{f"lb/{each['metadata']['name']}": (each["spec"], each["status"]["routerIDs"]) for each in groups},
        **{each["metadata"]["name"]: (each["spec"], each["status"]["ipv4"]) for each in pools},
        **{f"shop/{name}": story.addresses(f"shop/{name}") for name in GROUPS},
    }
