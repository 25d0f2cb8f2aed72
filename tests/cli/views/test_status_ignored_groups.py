"""``kavip status`` of Services for which the controller writes no condition: it ignores their group, or comes later."""

from collections.abc import Iterable

import pytest

from kavip.cli.views.status import report
from kavip.reconcile.enqueue import everything
from kavip.snapshot import Object, Snapshot
from tests.reconcile.simulatedcluster import SimulatedCluster
from tests.support import build

GROUP = "lb/edge"


@pytest.mark.parametrize("was_served", [False, True])
@pytest.mark.parametrize("name", ["", GROUP])
def test_a_service_of_a_group_that_kavip_ignores_shows_why(name: str, was_served: bool) -> None:
    """The controller writes no condition on a Service that names no group if groupNamespaces excludes the default."""
    objects: list[Object] = [build.group(GROUP, default=True), build.pool(), build.node("n1", "192.0.2.11")]
    if was_served:
        objects = reconciled(objects)
    found = report(reconciled([*objects, build.service("shop/web", group=name)], "infra"))
    assert [(each.service, each.group, each.state) for each in found.virtual_ips] == [
        ("shop/web", GROUP, "GroupNotFound")
    ]
    assert f"kavip does not serve KeepalivedGroup {GROUP}" in found.virtual_ips[0].message
    assert "namespace infra" in found.virtual_ips[0].message
    assert found.status == 1


def test_a_service_of_an_invalid_group_waits_for_the_controller() -> None:
    """The controller serves the group as far as it can, and will write a condition."""
    objects = reconciled([build.group(GROUP, default=True, interface="lo")])
    found = report([*objects, build.service("shop/web")])
    assert [each.state for each in found.groups] == ["Invalid"]
    assert [(each.state, "kavip doctor" in each.message) for each in found.virtual_ips] == [("Pending", True)]


def reconciled(objects: Iterable[Object], *namespaces: str) -> list[Object]:
    """*objects* after the controller has reconciled them, which serves groups in *namespaces* only."""
    simulation = SimulatedCluster(Snapshot.from_objects(objects, group_namespaces=namespaces))
    simulation.settle(*everything(simulation.snapshot))
    snapshot = simulation.snapshot
    stores = snapshot.pools, snapshot.nodes, snapshot.services
    return [*snapshot.every_group, *(each for store in stores for each in store.values())]
