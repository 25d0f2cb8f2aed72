"""A mistake in one Service on a real cluster: a node refuses its VRRP instance and no other."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hack.demo.session import MANIFESTS, Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.provisioning import PATIENCE, apply_objects, create_namespaces, delete_objects

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OWN = "192.0.2.145"
"""An address of the node that is not in the status of the Node, so admission cannot refuse it."""


@pytest.fixture
def session(installed: Cluster) -> Iterator[Session]:
    """A pool, a group, and pods that answer, on a node with a second address; removed afterwards."""
    found = Session(installed)
    create_namespaces(installed, "lb", "shop")
    installed.nodes[0].exec("ip", "address", "add", f"{OWN}/24", "dev", "eth0")
    for obj in (a_pool("tenants", "192.0.2.144/28"), a_group("edge")):
        apply(found, obj)
    try:
        installed.kubectl("apply", f"--filename={MANIFESTS / 'web.yaml'}")
        installed.kubectl("delete", "service", "web", "--namespace=shop")
        yield found
    finally:
        delete_objects(
            installed,
            ("services", "--all", "--namespace=shop"),
            ("namespaces", "shop", "lb", "--wait=false"),
            ("vippool", "tenants"),
        )
        installed.nodes[0].exec("ip", "address", "flush", "dev", "eth0", "to", f"{OWN}/32")


def apply(session: Session, obj: dict[str, Any]) -> None:
    """Apply objects as a user does."""
    apply_objects(session.cluster, obj)


def serve(session: Session, name: str, annotations: dict[str, str] | None = None) -> None:
    """Apply a Service of the group before the pods that answer."""
    notes = {names.GROUP_ANNOTATION: "lb/edge", **(annotations or {})}
    apply(session, a_service(name, annotations=notes, selector={"app": "web"}))


def condition_of(session: Session, kind: str, key: str, condition: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    namespace, _, name = key.rpartition("/")
    found = (session.get(kind, name, "-n", namespace) or {}).get("status", {}).get("conditions", [])
    entry: dict[str, str] = next((each for each in found if each["type"] == condition), {})
    return entry.get("status", ""), entry.get("reason", ""), entry.get("message", "")


def is_programmed(session: Session, name: str) -> bool:
    """Whether the Service is Programmed, and a client gets an answer from its VIP."""
    programmed = condition_of(session, "service", f"shop/{name}", names.ConditionType.SERVICE_PROGRAMMED)[0] == "True"
    return programmed and bool(session.answers(session.address(f"shop/{name}")))


def test_a_refused_instance_leaves_its_neighbours_alone(session: Session) -> None:
    """The condition has the reason; other Services are programmed and answer; after a correction this one is, too."""
    serve(session, "before")
    serve(session, "bad", {names.ADDRESSES_ANNOTATION: OWN})

    def condition_of_bad() -> tuple[str, str, str]:
        return condition_of(session, "service", "shop/bad", names.ConditionType.SERVICE_PROGRAMMED)

    wait_for("the group reports it", lambda: "excludes instance" in condition_of_bad()[2], timeout=PATIENCE)
    serve(session, "after")
    for name in ("before", "after"):
        wait_for(f"{name} is programmed and answers", partial(is_programmed, session, name), timeout=PATIENCE)
    words = f"node n1 excludes instance shop/bad: {OWN} is node n1's own address (eth0)"

    def is_reported() -> bool:  # in between it is Pending for the configuration that has the others
        status, reason, message = condition_of_bad()
        return (status, reason) == ("False", "Pending") and words in message

    def is_reported_on_group() -> bool:
        status, reason, message = of_group(session, "Programmed")
        return (status, reason) == ("False", "RefusedByAgent") and "shop/bad" in message

    wait_for("the Service still reports it", is_reported, timeout=PATIENCE)
    wait_for("the group reports it", is_reported_on_group, timeout=PATIENCE)
    wait_for("the group is ready", lambda: of_group(session, "Ready")[:2] == ("True", "Ready"), timeout=PATIENCE)
    session.cluster.nodes[0].exec("ip", "address", "del", f"{OWN}/24", "dev", "eth0")
    wait_for("it is programmed and answers", lambda: is_programmed(session, "bad"), timeout=PATIENCE)
    wait_for("the group is programmed", lambda: of_group(session, "Programmed")[0] == "True", timeout=PATIENCE)


def of_group(session: Session, condition: str) -> tuple[str, str, str]:
    """A condition of the group."""
    return condition_of(session, "keepalivedgroup", "lb/edge", condition)
