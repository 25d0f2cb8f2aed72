"""Writes without a response: their addresses stay reserved until it is known whether the writes were done."""

from typing import Any

from kavip import names
from kavip.reconcile.plan import Key, KeyKind, ServicePlan, StatusPatch
from tests.reconcile.service.planning import ASSIGNED, PROGRAMMED, VIP, WEB, conditions_of, web, with_condition
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

KEY = Key(KeyKind.SERVICE, WEB)
ONE = build.pool("edge", f"{VIP}/32")


def unanswered(simulation: SimulatedCluster) -> ServicePlan:
    """Plan the Service and send its write, without a response."""
    plan = simulation.plan_service(WEB)
    version = simulation.snapshot.services[WEB].metadata.resource_version
    assert [str(address) for address in plan.claims or ()] == [VIP]
    simulation.snapshot.ledger.expect(WEB, plan.claims or (), resource_version=version)
    return plan


def since(plan: ServicePlan) -> str:
    """The resourceVersion in the one write of *plan*."""
    (write,) = plan.writes
    assert isinstance(write, StatusPatch)
    version: str = write.body["metadata"]["resourceVersion"]
    return version


def available(simulation: SimulatedCluster) -> int:
    """The number of free addresses of the pool."""
    return simulation.snapshot.ledger.usage("edge")[4].available


def test_an_unmanaged_service_releases_the_address_of_an_open_write() -> None:
    """
    The default group is deleted after a write that timed out. One more write removes what the first may have written.
    """
    simulation = SimulatedCluster(cluster(build.service(WEB), build.group(GROUP, default=True), ONE))
    first = unanswered(simulation)
    simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    assert available(simulation) == 0
    plan = simulation.service(WEB)
    assert since(plan) == since(first)
    assert conditions_of(plan) == {PROGRAMMED: ("Unknown", "Pending")}
    assert plan.requeue_after == 0
    assert not simulation.snapshot.ledger.is_expecting(WEB)
    assert available(simulation) == 1
    simulation.settle(KEY)
    assert not simulation.snapshot.services[WEB].status.conditions


def test_an_unchanged_message_settles_an_open_write_too() -> None:
    """An older holder frees the address and takes it again before a response comes, so the Service waits as before."""
    older: dict[str, Any] = {"group": GROUP, "created": "2025-01-01T00:00:00Z"}
    holder = with_condition(build.service("shop/old", holds=[VIP], **older), ASSIGNED, "True", "Assigned")
    simulation = SimulatedCluster(cluster(web(wants=VIP), build.group(), ONE, holder))
    simulation.settle(KEY)
    waiting = simulation.condition(WEB, ASSIGNED)
    simulation.snapshot.put(build.service("shop/old", **older))
    unanswered(simulation)
    simulation.snapshot.put(holder)
    plan = simulation.service(WEB)
    assert conditions_of(plan) == {PROGRAMMED: ("Unknown", "Pending")}
    simulation.settle(KEY)
    assert simulation.condition(WEB, ASSIGNED) == waiting
    assert not simulation.snapshot.ledger.is_expecting(WEB)
