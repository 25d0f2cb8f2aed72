"""The objects in which faults are made: a group on all nodes, a pool, and Services, one of which follows its pod."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from kavip.names import ConditionType
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.provisioning import (
    PATIENCE,
    WEB_LABELS,
    apply_objects,
    delete_objects,
    retry_kubectl,
    web_deployment,
)
from tests.cluster.site import SHOP, site

GROUP: Final = "lb/edge"
NODES: Final = ("n1", "n2", "n3")
SERVED: Final = ("web", "api", "local")
OUTSIDE: Final = "n3"
"""The node with the only pod of the Service `local`."""
_LABEL: Final = "kavip-test/holds-vips"
_GROUP: Final = ("keepalivedgroup", "edge", "--namespace=lb")
_LOCAL_LABELS: Final = {"app": "local"}


def served(name: str, *, pool: str = "edge", **spec: Any) -> dict[str, Any]:
    """A Service of the group with an address of *pool*; of any pool if that is empty."""
    notes = {names.GROUP_ANNOTATION: GROUP, **({names.POOL_ANNOTATION: pool} if pool else {})}
    return a_service(name, namespace=SHOP, annotations=notes, **{"selector": WEB_LABELS, **spec})


@contextmanager
def shop(cluster: Cluster) -> Iterator[Session]:
    """All of them during the block, which begins when every VIP has its master and every node its configuration."""
    local = web_deployment()
    local["metadata"]["name"] = "local"
    local["spec"]["selector"]["matchLabels"] = local["spec"]["template"]["metadata"]["labels"] = _LOCAL_LABELS
    local["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": OUTSIDE}
    with site(cluster, "lb") as session:
        try:
            label(session, *NODES)
            # multicast: a stranger on the network takes part; seldom enough that no VIP moves if the machine pauses
            group = a_group("edge", nodeSelector={_LABEL: ""}, unicastEnabled=False, advertIntervalMilliseconds=1000)
            apply_objects(
                cluster,
                local,
                a_pool("edge", "192.0.2.144/28", autoAssign=False),
                group,
                *map(served, SERVED[:-1]),
                served(SERVED[-1], externalTrafficPolicy="Local", selector=_LOCAL_LABELS),
            )
            wait_until_served(session)
            yield session
        finally:
            unlabel(session, *NODES)


def wait_until_served(session: Session) -> None:
    """Wait until every VIP has its master and every node its configuration."""

    def status(kind: str, key: str, condition: ConditionType) -> str:
        return session.condition(kind, key, condition)[0]

    def is_served() -> bool:
        services = (status("service", f"{SHOP}/{name}", ConditionType.ADVERTISED) for name in SERVED)
        group = (status(_GROUP[0], GROUP, each) for each in (ConditionType.PROGRAMMED, ConditionType.READY))
        return {*group, *services} == {"True"}

    wait_for("every VIP has its master, and every node its configuration", is_served, timeout=PATIENCE, interval=0.5)


def label(session: Session, *nodes: str) -> None:
    """Add *nodes* to the group."""
    retry_kubectl(session.cluster, "label", "node", *nodes, f"{_LABEL}=", "--overwrite")


def unlabel(session: Session, *nodes: str) -> None:
    """Take *nodes* out of the group."""
    retry_kubectl(session.cluster, "label", "node", *nodes, f"{_LABEL}-")


def patch_group(session: Session, **spec: Any) -> None:
    """Change fields of the group; None removes one."""
    retry_kubectl(session.cluster, "patch", *_GROUP, "--type=merge", "--patch", json.dumps({"spec": spec}))


@contextmanager
def applied(session: Session, *objects: dict[str, Any]) -> Iterator[None]:
    """Apply *objects* for the block, and delete them in reverse."""
    with deleted(session, *objects):
        apply_objects(session.cluster, *objects)
        yield


@contextmanager
def deleted(session: Session, *objects: dict[str, Any]) -> Iterator[None]:
    """Delete *objects* in reverse after the block."""
    try:
        yield
    finally:
        for each in reversed(objects):
            meta = each["metadata"]
            where = [f"--namespace={meta['namespace']}"] if "namespace" in meta else []
            delete_objects(session.cluster, (each["kind"], meta["name"], *where))
