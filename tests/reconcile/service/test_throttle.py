"""When a change of Programmed is written, and when the write waits."""

from datetime import timedelta

import msgspec
import pytest

from kavip import names
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.plan import Key, KeyKind
from tests.reconcile.service.planning import ASSIGNED, PROGRAMMED, VIP, WEB, conditions_of, programmed_of, web
from tests.reconcile.world import GROUP, NOW, World, agent_states, body_of, cluster, running
from tests.support import build


def pending(*, nodes: int = 2) -> World:
    """A Service with address and VRID whose nodes have not answered yet."""
    world = World(cluster(web(), build.group(), build.pool(), nodes=nodes))
    world.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    return world


def test_the_first_message_stays_true_after_the_vrid_is_assigned() -> None:
    """A Service that will get its VRID counts nodes from the beginning, so its message is not rewritten."""
    world = World(cluster(web(), build.group(), build.pool()))
    world.service(WEB)
    first = programmed_of(world)
    assert first == (
        "0 of 2 nodes run a configuration with 192.0.2.128; waiting for n1, n2; "
        "no agent answers: see Ready of KeepalivedGroup lb/edge"
    )
    world.group()
    assert world.snapshot.groups[GROUP].status.router_ids == {WEB: 1}
    assert not world.service(WEB).writes
    assert programmed_of(world) == first


def test_a_message_of_another_kind_is_written_at_once() -> None:
    """A VIP that is a node's own address is no progress, so its report and the end of it do not wait."""
    world = World(cluster(web(type="ClusterIP", external_ips=["192.0.2.13"]), build.group(router_ids={WEB: 1})))
    world.service(WEB)
    world.snapshot.put(build.node("n3", "192.0.2.13"))
    world.service(WEB)
    assert programmed_of(world).startswith("192.0.2.13 belongs to Node n3 itself")
    world.group()
    world.snapshot.drop(names.NODE, "n3")
    assert Key(KeyKind.SERVICE, WEB) in world.group().also_low_priority
    world.service(WEB)
    assert programmed_of(world).startswith("0 of 2 nodes")


def test_progress_is_written_at_growing_intervals() -> None:
    """While nodes load, progress alone is not written. A stuck Service names the nodes that it waits for."""
    world = pending()
    world.agents = agent_states(n1=running("h", VIP))
    world.later(5)
    plan = world.service(WEB)
    assert not plan.writes
    assert plan.requeue_after == pytest.approx(5)
    world.later(5)
    assert world.service(WEB).writes
    assert programmed_of(world).startswith("1 of 2 nodes")
    world.later(50)
    plan = world.service(WEB)
    assert not plan.writes
    assert plan.requeue_after == pytest.approx(60)


def test_a_start_rewrites_no_message() -> None:
    """The old count stays until the agents have had time to answer."""
    world = pending()
    world.agents = agent_states(n1=running("h", VIP), n2=running("g", refused="line 7"))
    world.later(20)
    world.service(WEB)
    before = programmed_of(world)
    assert "n2 refuses" in before
    world.later(3600)
    world.agents = AgentStates(asked_from=NOW + timedelta(seconds=3620))
    plan = world.service(WEB)
    assert not plan.writes
    assert plan.requeue_after == pytest.approx(10)
    world.agents = world.agents.with_state(GROUP, "n2", state=running("g", refused="line 9"))
    world.later(9)
    assert not world.service(WEB).writes
    world.later(1)
    (condition,) = body_of(world.service(WEB))["conditions"]
    assert condition["type"] == PROGRAMMED
    assert condition["message"].endswith("waiting for n1, n2; n2 refuses the configuration: line 9")


# --- messages alone ---------------------------------------------------------------------------------------------------
def reworded(*kinds: str) -> World:
    """A Service with all conditions, of which *kinds* have the message of another version."""
    world = pending()
    world.agents = agent_states(n1=running("h", VIP, master=True), n2=running("h", VIP))
    world.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    service = world.snapshot.services[WEB]
    conditions = [
        msgspec.structs.replace(each, message=f"{each.message}, once") if each.type in kinds else each
        for each in service.status.conditions or ()
    ]
    status = msgspec.structs.replace(service.status, conditions=conditions)
    world.snapshot.put(msgspec.structs.replace(service, status=status))
    return world


@pytest.mark.parametrize(
    "kinds", [(ASSIGNED,), (PROGRAMMED,), (names.ConditionType.ADVERTISED,), (ASSIGNED, PROGRAMMED)]
)
def test_messages_alone_are_no_urgent_write(kinds: tuple[str, ...]) -> None:
    """One write has all new messages. A changed reason makes it urgent."""
    world = reworded(*kinds)
    plan = world.plan_service(WEB)
    assert plan.is_rewording and not plan.events
    assert set(conditions_of(plan)) == set(kinds)
    world.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    assert not world.plan_service(WEB).is_rewording


def test_messages_alone_wait_until_the_agents_have_answered() -> None:
    """After a start Advertised is unknown, so its message would be a second write."""
    world = reworded(ASSIGNED)
    answers, world.agents = world.agents, AgentStates(asked_from=NOW)
    plan = world.plan_service(WEB)
    assert (plan.writes, plan.is_rewording, plan.requeue_after) == ((), True, 10.0)
    world.agents = answers
    assert world.plan_service(WEB).writes


def test_a_group_requeues_reworded_services_behind_all_others() -> None:
    """The group checks Programmed and Advertised. Services with a changed reason come first."""
    world = reworded(PROGRAMMED)
    plan = world.plan_group()
    assert (plan.also, plan.also_low_priority) == ((), (Key(KeyKind.SERVICE, WEB),))
    world.agents = agent_states(n1=running("h", VIP, master=True), n2=running("g"))
    plan = world.plan_group()
    assert (plan.also, plan.also_low_priority) == ((Key(KeyKind.SERVICE, WEB),), ())


def test_a_write_that_settles_an_earlier_one_is_urgent() -> None:
    """The addresses stay reserved until it is known whether the earlier write was done."""
    world = reworded(PROGRAMMED)
    held = world.snapshot.services[WEB].ingress_addresses
    world.snapshot.ledger.expect(WEB, held, resource_version="old")
    assert not world.plan_service(WEB).is_rewording
