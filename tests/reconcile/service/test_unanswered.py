"""Writes without an answer: what they were to give is nobody's until it is known whether they were done."""

from typing import Any

from kavip import names
from kavip.reconcile.plan import Key, KeyKind, ServicePlan, StatusPatch
from tests.reconcile.service.planning import ASSIGNED, PROGRAMMED, VIP, WEB, conditions_of, told, web
from tests.reconcile.world import GROUP, World, cluster
from tests.support import build

KEY = Key(KeyKind.SERVICE, WEB)
ONE = build.pool("edge", f"{VIP}/32")


def unanswered(world: World) -> ServicePlan:
    """Plan the Service, send its write, and hear nothing of it."""
    plan = world.plan_service(WEB)
    version = world.snapshot.services[WEB].metadata.resource_version
    assert [str(address) for address in plan.claims or ()] == [VIP]
    world.snapshot.ledger.expect(WEB, plan.claims or (), resource_version=version)
    return plan


def since(plan: ServicePlan) -> str:
    """What the one write of *plan* is conditional on."""
    (write,) = plan.writes
    assert isinstance(write, StatusPatch)
    version: str = write.body["metadata"]["resourceVersion"]
    return version


def available(world: World) -> int:
    """How many addresses the pool has left."""
    return world.snapshot.ledger.usage("edge")[4].available


def test_a_service_that_is_nobodys_meanwhile_gives_back_what_it_may_have_got() -> None:
    """The default group goes after a write that timed out: one more write settles that one, and leaves nothing."""
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


def test_who_waits_with_the_same_words_settles_it_as_well() -> None:
    """An older holder lets go of the address and has it again before an answer comes: the Service waits as it did."""
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
