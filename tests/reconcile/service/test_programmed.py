"""Programmed: its reasons in their order, and the events that set it to False again."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.cluster import NodeCondition
from kavip.api.meta import LabelSelector
from kavip.names import Reason
from kavip.reconcile.observed.agentstates import AgentStates, ExcludedInstance
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import Key, KeyKind, Plan
from kavip.reconcile.service.reconcile import plan_service
from tests.reconcile.service.planning import (
    ASSIGNED,
    PROGRAMMED,
    VIP,
    WEB,
    conditions_of,
    programmed_of,
    web,
    with_condition,
)
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, agent_states, body_of, cluster, running
from tests.support import build


def reason_of(plan: Plan) -> str:
    """The reason of Programmed that *plan* writes."""
    return conditions_of(plan)[PROGRAMMED][1]


def test_programmed_group_not_found() -> None:
    """The message names the missing group, or the lack of a default group."""
    plan = plan_service(cluster(web(), build.pool()), WEB, now=NOW)
    assert reason_of(plan) == Reason.GROUP_NOT_FOUND
    assert "lb/edge does not exist" in body_of(plan)["conditions"][-1]["message"]
    classy = build.service(WEB, load_balancer_class=names.LOAD_BALANCER_CLASS)
    plan = plan_service(cluster(classy, build.pool()), WEB, now=NOW)
    assert reason_of(plan) == Reason.GROUP_NOT_FOUND
    assert "there is no default group" in body_of(plan)["conditions"][-1]["message"]


def test_programmed_group_is_being_deleted() -> None:
    """Its pods may already be gone, so no agent can report a change."""
    metadata = msgspec.structs.replace(build.group().metadata, deletion_timestamp="2026-02-01T00:00:00Z")
    leaving = msgspec.structs.replace(build.group(router_ids={WEB: 1}), metadata=metadata)
    plan = plan_service(
        cluster(web(), leaving, build.pool()), WEB, now=NOW, observed=Observed(agent_states(n1=running("h", VIP)))
    )
    assert reason_of(plan) == Reason.GROUP_NOT_FOUND
    assert "lb/edge is being deleted" in body_of(plan)["conditions"][-1]["message"]


def test_programmed_namespace_not_allowed() -> None:
    """allowedNamespaces applies even if admission let the Service pass."""
    group = build.group(allowed_namespaces=LabelSelector(match_labels={"team": "a"}))
    plan = plan_service(cluster(web(), group, build.pool(), build.namespace("shop", team="b")), WEB, now=NOW)
    assert reason_of(plan) == Reason.NAMESPACE_NOT_ALLOWED


def test_programmed_invalid_verbatim() -> None:
    """Lines that kavip cannot accept are reported."""
    service = web(annotations={names.VERBATIM_ANNOTATION: '{"notify_master": "/bin/sh"}'})
    plan = plan_service(cluster(service, build.group(), build.pool()), WEB, now=NOW)
    assert reason_of(plan) == Reason.INVALID_VERBATIM


def test_programmed_router_ids_exhausted() -> None:
    """The Service without a VRID reports it. A Service that will get its VRID waits."""
    full = build.group(blacklist_router_ids=list(range(2, 256)), router_ids={"shop/other": 1})
    other = build.service("shop/other", group=GROUP)
    plan = plan_service(cluster(web(), other, full, build.pool()), WEB, now=NOW)
    assert reason_of(plan) == Reason.ROUTER_IDS_EXHAUSTED
    roomy = build.group(blacklist_router_ids=list(range(3, 256)), router_ids={"shop/other": 1})
    plan = plan_service(cluster(web(), other, roomy, build.pool()), WEB, now=NOW)
    assert reason_of(plan) == Reason.PENDING


def test_programmed_no_nodes() -> None:
    """A selector without a matching node is reported."""
    group = build.group(node_selector={"edge": "true"}, router_ids={WEB: 1})
    assert reason_of(plan_service(cluster(web(), group, build.pool()), WEB, now=NOW)) == Reason.NO_NODES


def test_programmed_pending_counts_nodes() -> None:
    """The message counts the nodes, and names the ones that refuse."""
    simulation = SimulatedCluster(cluster(web(), build.group(router_ids={WEB: 1}), build.pool(), nodes=3))
    simulation.agents = agent_states(n1=running("h", VIP), n2=running("g", refused="line 7: unknown keyword"))
    simulation.service(WEB)
    assert programmed_of(simulation) == (
        "1 of 3 nodes run a configuration with 192.0.2.128; waiting for n2, n3; "
        "n2 refuses the configuration: line 7: unknown keyword"
    )


LEFT_OUT = {
    "name": f"{WEB}/v6",
    "reason": "keepalived --config-test: exit status 5, line 9 of the instance",
    "by_keepalived": True,
}
LINES = {names.VERBATIM_ANNOTATION: '{"garp_master_delay": "5"}'}


@pytest.mark.parametrize(
    ("annotations", "left_out", "reason", "message"),
    [
        (
            LINES,
            LEFT_OUT,
            Reason.INVALID_VERBATIM,
            f"line 9 of the instance; correct or remove metadata.annotations[{names.VERBATIM_ANNOTATION}]",
        ),
        (
            LINES,
            {**LEFT_OUT, "kept": True},
            Reason.INVALID_VERBATIM,
            "; until then the node keeps the previous version of the instance",
        ),
        ({}, LEFT_OUT, Reason.PENDING, "node n2 excludes instance shop/web/v6: keepalived --config-test: exit"),
        (LINES, {**LEFT_OUT, "by_keepalived": False}, Reason.PENDING, "line 9 of the instance"),
        (LINES, {**LEFT_OUT, "name": "group/3", "virtual_ips": frozenset({parse_address(VIP)})}, Reason.PENDING, "/3:"),
    ],
)
def test_programmed_is_false_if_a_node_excludes_the_instance(
    annotations: dict[str, str], left_out: dict[str, Any], reason: Reason, message: str
) -> None:
    """The message blames the Service's own lines if keepalived refuses them. Other Services are programmed."""
    neighbour = build.service("shop/webber", group=GROUP, holds=["192.0.2.129"])
    service = web(annotations=annotations, holds=[VIP])
    group = build.group(router_ids={WEB: 1, "shop/webber": 2}, allow_verbatim=["garp_master_delay"])
    simulation = SimulatedCluster(cluster(service, neighbour, group, build.pool()))
    every = (VIP, "192.0.2.129")
    simulation.agents = agent_states(
        n1=running("h", *every), n2=running("h", *every, excluded=(ExcludedInstance(**left_out),))
    )
    for key in (WEB, "shop/webber"):
        simulation.service(key)
    assert simulation.condition(WEB, PROGRAMMED) == ("False", reason)
    assert message in programmed_of(simulation)
    assert simulation.condition("shop/webber", PROGRAMMED) == ("True", Reason.PROGRAMMED)


def test_a_vip_that_is_a_nodes_own_address_is_never_programmed() -> None:
    """keepalived would delete the address from the node, so the VIP is left out, and the Service reports it."""
    service = web(type="ClusterIP", external_ips=["192.0.2.12"])
    simulation = SimulatedCluster(cluster(service, build.group(router_ids={WEB: 1})))
    simulation.service(WEB)
    assert simulation.condition(WEB, PROGRAMMED) == ("False", "Pending")
    assert programmed_of(simulation) == "192.0.2.12 belongs to Node n2 itself: remove it from spec.externalIPs"


def test_a_node_that_is_down_is_not_waited_for() -> None:
    """A Service is programmed when every ready node runs it."""
    snapshot = cluster(
        with_condition(web(holds=[VIP]), ASSIGNED, "True", "Assigned"), build.group(router_ids={WEB: 1}), build.pool()
    )
    down = snapshot.nodes["n2"]
    status = msgspec.structs.replace(down.status, conditions=[NodeCondition(type="Ready", status="Unknown")])
    snapshot.put(msgspec.structs.replace(down, status=status))
    plan = plan_service(snapshot, WEB, now=NOW, observed=Observed(agent_states(n1=running("h", VIP))))
    assert conditions_of(plan)[PROGRAMMED] == ("True", "Programmed")


class TestOnceProgrammed:
    """The events that set Programmed to False again, and those that do not."""

    def simulation(self, **more: Any) -> SimulatedCluster:
        """A Service that is programmed on two nodes."""
        simulation = SimulatedCluster(cluster(web(**more), build.group(), build.pool()))
        simulation.agents = agent_states(n1=running("h", VIP), n2=running("h", VIP))
        simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
        assert simulation.condition(WEB, PROGRAMMED) == ("True", "Programmed")
        return simulation

    def test_other_services_do_not_change_programmed(self) -> None:
        """A node that has not loaded another Service's VIP yet still runs the VIP of this one."""
        simulation = self.simulation()
        simulation.snapshot.put(build.service("shop/new", group=GROUP))
        simulation.settle(Key(KeyKind.SERVICE, "shop/new"), Key(KeyKind.GROUP, GROUP))
        assert not simulation.service(WEB).writes
        assert simulation.condition("shop/new", PROGRAMMED) == ("False", "Pending")

    @pytest.mark.parametrize(
        "agents",
        [AgentStates(), agent_states(n1=running("g", VIP)), agent_states(n1=running("x", VIP, "192.0.2.129"))],
        ids=["kavip has just started", "one node was not probed yet", "more VIPs than ours"],
    )
    def test_silence_does_not_change_programmed(self, agents: AgentStates) -> None:
        """Only a node that answers without the VIP counts against it."""
        simulation = self.simulation()
        simulation.agents = agents
        assert not simulation.service(WEB).writes

    def test_a_new_node_does_not_change_programmed(self) -> None:
        """A node that has joined and not answered yet changes nothing."""
        simulation = self.simulation()
        simulation.snapshot.put(build.node("n3", "192.0.2.13"))
        assert not simulation.service(WEB).writes

    def test_a_node_without_the_vip_sets_programmed_to_false(self) -> None:
        """The answer of an agent counts."""
        simulation = self.simulation()
        simulation.agents = agent_states(n1=running("h", VIP), n2=running("g"))
        assert conditions_of(simulation.service(WEB)) == {PROGRAMMED: ("False", "Pending")}

    def test_a_deleted_group_sets_programmed_to_false(self) -> None:
        """Without its group the Service keeps its address and is not programmed."""
        simulation = self.simulation()
        simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
        plan = simulation.service(WEB)
        assert conditions_of(plan) == {PROGRAMMED: ("False", "GroupNotFound")}
        assert "loadBalancer" not in body_of(plan)
