"""A mistake in one Service on a real cluster: a node refuses its VRRP instance and no other."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hack.demo.story import MANIFESTS, Story
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.ground import PATIENCE, applied, made, removed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OWN = "192.0.2.145"
"""An address of the node that Kubernetes does not know: admission cannot refuse it."""


@pytest.fixture
def story(installed: Cluster) -> Iterator[Story]:
    """A pool, a group, and pods that answer, on a node with a second address; gone afterwards."""
    found = Story(installed)
    made(installed, "lb", "shop")
    installed.nodes[0].exec("ip", "address", "add", f"{OWN}/24", "dev", "eth0")
    for obj in (a_pool("tenants", "192.0.2.144/28"), a_group("edge")):
        apply(found, obj)
    try:
        installed.kubectl("apply", f"--filename={MANIFESTS / 'web.yaml'}")
        installed.kubectl("delete", "service", "web", "--namespace=shop")
        yield found
    finally:
        removed(
            installed,
            ("services", "--all", "--namespace=shop"),
            ("namespaces", "shop", "lb", "--wait=false"),
            ("vippool", "tenants"),
        )
        installed.nodes[0].exec("ip", "address", "flush", "dev", "eth0", "to", f"{OWN}/32")


def apply(story: Story, obj: dict[str, Any]) -> None:
    """Apply objects as a user does."""
    applied(story.cluster, obj)


def serve(story: Story, name: str, annotations: dict[str, str] | None = None) -> None:
    """Apply a Service of the group before the pods that answer."""
    notes = {names.GROUP_ANNOTATION: "lb/edge", **(annotations or {})}
    apply(story, a_service(name, annotations=notes, selector={"app": "web"}))


def told(story: Story, kind: str, key: str, condition: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    namespace, _, name = key.rpartition("/")
    found = (story.get(kind, name, "-n", namespace) or {}).get("status", {}).get("conditions", [])
    entry: dict[str, str] = next((each for each in found if each["type"] == condition), {})
    return entry.get("status", ""), entry.get("reason", ""), entry.get("message", "")


def is_programmed(story: Story, name: str) -> bool:
    """Whether the Service is Programmed, and a client gets an answer from its VIP."""
    programmed = told(story, "service", f"shop/{name}", names.ConditionType.SERVICE_PROGRAMMED)[0] == "True"
    return programmed and bool(story.answers(story.address(f"shop/{name}")))


def test_a_refused_instance_leaves_its_neighbours_alone(story: Story) -> None:
    """Its condition says why; earlier and later Services are programmed and answer; after the correction it is, too."""
    serve(story, "before")
    serve(story, "bad", {names.ADDRESSES_ANNOTATION: OWN})

    def verdict() -> tuple[str, str, str]:
        return told(story, "service", "shop/bad", names.ConditionType.SERVICE_PROGRAMMED)

    wait_for("the group reports it", lambda: "excludes instance" in verdict()[2], timeout=PATIENCE)
    serve(story, "after")
    for name in ("before", "after"):
        wait_for(f"{name} is programmed and answers", partial(is_programmed, story, name), timeout=PATIENCE)
    words = f"node n1 excludes instance shop/bad: {OWN} is node n1's own address (eth0)"

    def is_told() -> bool:  # in between it is Pending for the configuration that has the others
        status, reason, message = verdict()
        return (status, reason) == ("False", "Pending") and words in message

    def is_told_of_group() -> bool:
        status, reason, message = of_group(story, "Programmed")
        return (status, reason) == ("False", "RefusedByAgent") and "shop/bad" in message

    wait_for("the group still reports it", is_told, timeout=PATIENCE)
    wait_for("the group tells it", is_told_of_group, timeout=PATIENCE)
    wait_for("the group is ready", lambda: of_group(story, "Ready")[:2] == ("True", "Ready"), timeout=PATIENCE)
    story.cluster.nodes[0].exec("ip", "address", "del", f"{OWN}/24", "dev", "eth0")
    wait_for("it is programmed and answers", lambda: is_programmed(story, "bad"), timeout=PATIENCE)
    wait_for("the group is programmed", lambda: of_group(story, "Programmed")[0] == "True", timeout=PATIENCE)


def of_group(story: Story, condition: str) -> tuple[str, str, str]:
    """A condition of the group."""
    return told(story, "keepalivedgroup", "lb/edge", condition)
