"""When a change of Programmed is written, and when the write waits."""

from datetime import timedelta

import msgspec
import pytest

from kavip import names
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.plan import Key, KeyKind
from tests.reconcile.service.planning import ASSIGNED, PROGRAMMED, VIP, WEB, conditions_of, programmed_of, web
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, agent_states, body_of, cluster, running
from tests.support import build


def pending(*, nodes: int = 2) -> SimulatedCluster:
    """A Service with address and VRID whose nodes have not answered yet."""
    simulation = SimulatedCluster(cluster(web(), build.group(), build.pool(), nodes=nodes))
    simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    return simulation


def test_the_first_message_stays_true_after_the_vrid_is_assigned() -> None:
    """A Service that will get its VRID counts nodes from the beginning, so its message is not rewritten."""
    simulation = SimulatedCluster(cluster(web(), build.group(), build.pool()))
    simulation.service(WEB)
    first = programmed_of(simulation)
    assert first == (
        "0 of 2 nodes run a configuration with 192.0.2.128; waiting for n1, n2; "
        "no agent answers: see Ready of KeepalivedGroup lb/edge"
    )
    simulation.group()
    assert simulation.snapshot.groups[GROUP].status.router_ids == {WEB: 1}
    assert not simulation.service(WEB).writes
    assert programmed_of(simulation) == first


def test_a_message_of_another_kind_is_written_at_once() -> None:
    """A VIP that is a node's own address is no progress, so its report and the end of it do not wait."""
    simulation = SimulatedCluster(
        cluster(web(type="ClusterIP", external_ips=["192.0.2.13"]), build.group(router_ids={WEB: 1}))
    )
    simulation.service(WEB)
    simulation.snapshot.put(build.node("n3", "192.0.2.13"))
    simulation.service(WEB)
    assert programmed_of(simulation).startswith("192.0.2.13 belongs to Node n3 itself")
    simulation.group()
    simulation.snapshot.drop(names.NODE, "n3")
    assert Key(KeyKind.SERVICE, WEB) in simulation.group().also_low_priority
    simulation.service(WEB)
    assert programmed_of(simulation).startswith("0 of 2 nodes")


def test_progress_is_written_at_growing_intervals() -> None:
    """While nodes load, progress alone is not written. A stuck Service names the nodes that it waits for."""
    simulation = pending()
    simulation.agents = agent_states(n1=running("h", VIP))
    simulation.later(5)
    plan = simulation.service(WEB)
    assert not plan.writes
    assert plan.requeue_after == pytest.approx(5)
    simulation.later(5)
    assert simulation.service(WEB).writes
    assert programmed_of(simulation).startswith("1 of 2 nodes")
    simulation.later(50)
    plan = simulation.service(WEB)
    assert not plan.writes
    assert plan.requeue_after == pytest.approx(60)


def test_a_start_rewrites_no_message() -> None:
    """The old count stays until the agents have had time to answer."""
    simulation = pending()
    simulation.agents = agent_states(n1=running("h", VIP), n2=running("g", refused="line 7"))
    simulation.later(20)
    simulation.service(WEB)
    before = programmed_of(simulation)
    assert "n2 refuses" in before
    simulation.later(3600)
    simulation.agents = AgentStates(probed_from=NOW + timedelta(seconds=3620))
    plan = simulation.service(WEB)
    assert not plan.writes
    assert plan.requeue_after == pytest.approx(10)
    simulation.agents = simulation.agents.with_state(GROUP, "n2", state=running("g", refused="line 9"))
    simulation.later(9)
    assert not simulation.service(WEB).writes
    simulation.later(1)
    (condition,) = body_of(simulation.service(WEB))["conditions"]
    assert condition["type"] == PROGRAMMED
    assert condition["message"].endswith("waiting for n1, n2; n2 refuses the configuration: line 9")


# --- messages alone ---------------------------------------------------------------------------------------------------
def reworded(*kinds: str) -> SimulatedCluster:
    """A Service with all conditions, of which *kinds* have the message of another version."""
    simulation = pending()
    simulation.agents = agent_states(n1=running("h", VIP, master=True), n2=running("h", VIP))
    simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    service = simulation.snapshot.services[WEB]
    conditions = [
        msgspec.structs.replace(each, message=f"{each.message}, once") if each.type in kinds else each
        for each in service.status.conditions or ()
    ]
    status = msgspec.structs.replace(service.status, conditions=conditions)
    simulation.snapshot.put(msgspec.structs.replace(service, status=status))
    return simulation


@pytest.mark.parametrize(
    "kinds", [(ASSIGNED,), (PROGRAMMED,), (names.ConditionType.ADVERTISED,), (ASSIGNED, PROGRAMMED)]
)
def test_messages_alone_are_no_urgent_write(kinds: tuple[str, ...]) -> None:
    """One write has all new messages. A changed reason makes it urgent."""
    simulation = reworded(*kinds)
    plan = simulation.plan_service(WEB)
    assert plan.is_rewording and not plan.events
    assert set(conditions_of(plan)) == set(kinds)
    simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    assert not simulation.plan_service(WEB).is_rewording


def test_messages_alone_wait_until_the_agents_have_answered() -> None:
    """After a start Advertised is unknown, so its message would be a second write."""
    simulation = reworded(ASSIGNED)
    answers, simulation.agents = simulation.agents, AgentStates(probed_from=NOW)
    plan = simulation.plan_service(WEB)
    assert (plan.writes, plan.is_rewording, plan.requeue_after) == ((), True, 10.0)
    simulation.agents = answers
    assert simulation.plan_service(WEB).writes


def test_a_group_requeues_reworded_services_behind_all_others() -> None:
    """The group checks Programmed and Advertised. Services with a changed reason come first."""
    simulation = reworded(PROGRAMMED)
    plan = simulation.plan_group()
    assert (plan.also, plan.also_low_priority) == ((), (Key(KeyKind.SERVICE, WEB),))
    simulation.agents = agent_states(n1=running("h", VIP, master=True), n2=running("g"))
    plan = simulation.plan_group()
    assert (plan.also, plan.also_low_priority) == ((Key(KeyKind.SERVICE, WEB),), ())


def test_a_write_that_settles_an_earlier_one_is_urgent() -> None:
    """The addresses stay reserved until it is known whether the earlier write was done."""
    simulation = reworded(PROGRAMMED)
    held = simulation.snapshot.services[WEB].ingress_addresses
    simulation.snapshot.ledger.expect(WEB, held, resource_version="old")
    assert not simulation.plan_service(WEB).is_rewording
