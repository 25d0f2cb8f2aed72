"""One tenant's mistake on a real cluster: a node refuses the VRRP instance of one Service, and of no other."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.demo.story import MANIFESTS, Story
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service, object_of
from tests.cluster.test_helm import installed as installed  # the same cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PATIENCE = 180.0
BAD = {names.VERBATIM_ANNOTATION: '{"virtual_routes": "{ 198.51.100.0/24 dev eth9 }"}'}
"""Admission cannot know that the node has no eth9; keepalived does."""


@pytest.fixture
def story(installed: Cluster) -> Iterator[Story]:
    """A pool, a group that allows its Services routes, and pods that answer; gone afterwards."""
    found = Story(installed)
    for obj in (object_of("Namespace", "lb"), a_pool("tenants", "192.0.2.144/28")):
        apply(found, obj)
    try:
        apply(found, a_group("edge", allowVerbatim=["virtual_routes"]))
        installed.kubectl("apply", f"--filename={MANIFESTS / 'web.yaml'}")
        installed.kubectl("delete", "service", "web", "--namespace=shop")
        yield found
    finally:
        installed.kubectl("delete", "namespace", "shop", "lb", "--wait=false")
        installed.kubectl("delete", "vippool", "tenants", "--wait=false")


def apply(story: Story, obj: dict[str, Any]) -> None:
    """What a user does."""
    story.cluster.kubectl("apply", "--filename=-", input=json.dumps(obj))


def serve(story: Story, name: str, annotations: dict[str, str] | None = None) -> None:
    """Apply a Service of the group before the pods that answer."""
    notes = {names.GROUP_ANNOTATION: "lb/edge", **(annotations or {})}
    apply(story, a_service(name, annotations=notes, selector={"app": "web"}))


def told(story: Story, kind: str, key: str, condition: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    namespace, _, name = key.rpartition("/")
    found = (story.get(kind, name, "-n", namespace) or {}).get("status", {}).get("conditions", [])
    entry = next((each for each in found if each["type"] == condition), {})
    return entry.get("status", ""), entry.get("reason", ""), entry.get("message", "")


def is_programmed(story: Story, name: str) -> bool:
    """Whether the Service says so, and a client gets an answer from its VIP."""
    programmed = told(story, "service", f"shop/{name}", names.Condition.SERVICE_PROGRAMMED)[0] == "True"
    return programmed and bool(story.answers(story.address(f"shop/{name}")))


def test_a_refused_instance_leaves_its_neighbours_alone(story: Story) -> None:
    """It is told with the remedy and serves as it did; Services that come later are programmed and answer."""
    serve(story, "web")
    wait_for("web is programmed and answers", lambda: is_programmed(story, "web"), timeout=PATIENCE)
    serve(story, "web", BAD)

    def verdict() -> tuple[str, str, str]:
        return told(story, "service", "shop/web", names.Condition.SERVICE_PROGRAMMED)

    wait_for("web is told", lambda: verdict()[:2] == ("False", "InvalidVerbatim"), timeout=PATIENCE)
    assert "node n1 leaves out instance shop/web: keepalived --config-test" in verdict()[2]
    assert "until then it runs there as it last did" in verdict()[2]
    assert story.answers(story.address("shop/web"))
    for name, notes in (("neighbour", None), ("bad", BAD), ("another", None)):
        serve(story, name, notes)
    for name in ("neighbour", "another"):
        wait_for(f"{name} is programmed and answers", lambda name=name: is_programmed(story, name), timeout=PATIENCE)
    assert told(story, "service", "shop/bad", names.Condition.SERVICE_PROGRAMMED)[:2] == ("False", "InvalidVerbatim")
    assert not story.answers(story.address("shop/bad"))
    status, reason, message = told(story, "keepalivedgroup", "lb/edge", names.Condition.PROGRAMMED)
    assert (status, reason) == ("False", "RefusedByAgent")
    assert "shop/bad, shop/web" in message
    assert told(story, "keepalivedgroup", "lb/edge", names.Condition.READY)[:2] == ("True", "Ready")
    for name in ("web", "bad"):
        serve(story, name, {names.VERBATIM_ANNOTATION: "{}"})
        wait_for(f"{name} is mended", lambda name=name: is_programmed(story, name), timeout=PATIENCE)
    wait_for(
        "the group is programmed",
        lambda: told(story, "keepalivedgroup", "lb/edge", names.Condition.PROGRAMMED)[0] == "True",
        timeout=PATIENCE,
    )
