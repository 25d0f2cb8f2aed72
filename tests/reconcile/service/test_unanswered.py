"""Writes without a response: their addresses stay reserved until it is known whether the writes were done."""

from typing import Any

from kavip import names
from kavip.reconcile.plan import Key, KeyKind, ServicePlan, StatusPatch
from tests.reconcile.service.planning import ASSIGNED, PROGRAMMED, VIP, WEB, conditions_of, told, web
from tests.reconcile.world import GROUP, World, cluster
from tests.support import build

KEY = Key(KeyKind.SERVICE, WEB)
ONE = build.pool("edge", f"{VIP}/32")


def unanswered(world: World) -> ServicePlan:
    """Plan the Service and send its write, without a response."""
    plan = world.plan_service(WEB)
    version = world.snapshot.services[WEB].metadata.resource_version
    assert [str(address) for address in plan.claims or ()] == [VIP]
    world.snapshot.ledger.expect(WEB, plan.claims or (), resource_version=version)
    return plan


def since(plan: ServicePlan) -> str:
    """The resourceVersion in the one write of *plan*."""
    (write,) = plan.writes
    assert isinstance(write, StatusPatch)
    version: str = write.body["metadata"]["resourceVersion"]
    return version


def available(world: World) -> int:
    """The number of free addresses of the pool."""
    return world.snapshot.ledger.usage("edge")[4].available


def test_an_unmanaged_service_releases_the_address_of_an_open_write() -> None:
    """
    The default group is deleted after a write that timed out. One more write removes what the first may have written.
    """
    world = World(cluster(build.service(WEB), build.group(GROUP, default=True), ONE))
    first = unanswered(world)
    world.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    assert available(world) == 0
    plan = world.service(WEB)
    assert since(plan) == since(first)
    assert conditions_of(plan) == {PROGRAMMED: ("Unknown", "Pending")}
    assert plan.requeue_after == 0
    assert not world.snapshot.ledger.is_expecting(WEB)
    assert available(world) == 1
    world.settle(KEY)
    assert not world.snapshot.services[WEB].status.conditions


def test_an_unchanged_message_settles_an_open_write_too() -> None:
    """An older holder frees the address and takes it again before a response comes, so the Service waits as before."""
    older: dict[str, Any] = {"group": GROUP, "created": "2025-01-01T00:00:00Z"}
    holder = told(build.service("shop/old", holds=[VIP], **older), ASSIGNED, "True", "Assigned")
    world = World(cluster(web(wants=VIP), build.group(), ONE, holder))
    world.settle(KEY)
    waiting = world.condition(WEB, ASSIGNED)
    world.snapshot.put(build.service("shop/old", **older))
    unanswered(world)
    world.snapshot.put(holder)
    plan = world.service(WEB)
    assert conditions_of(plan) == {PROGRAMMED: ("Unknown", "Pending")}
    world.settle(KEY)
    assert world.condition(WEB, ASSIGNED) == waiting
    assert not world.snapshot.ledger.is_expecting(WEB)
