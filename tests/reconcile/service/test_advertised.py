"""Advertised: which nodes hold the VIPs, when that is written, and when the write waits."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.api.service import Service, ServicePort
from kavip.controller.prober import steady_since
from kavip.reconcile.observed.agentstates import AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind, Unconfirmed
from kavip.snapshot import Object
from tests.reconcile.group.settledgroup import with_pods
from tests.reconcile.service.planning import VIP, WEB, conditions_of, web
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, body_of, cluster, pod
from tests.support import build

ADVERTISED = names.ConditionType.ADVERTISED
SERVICE, EDGE = Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP)


def noted(message: str) -> tuple[NodeProblem, ...]:
    """The notes of an agent that reports one problem."""
    return (NodeProblem(ProblemCode.OTHER, message),)


def node(state: str = "BACKUP", *vips: str, name: str = WEB, since: str = "t") -> NodeState:
    """A node whose one instance, with *vips*, is in *state*."""
    return state_of(InstanceState(name, 1, 4, state, len(vips), since), *(vips or (VIP,)))


def state_of(sight: InstanceState, *vips: str) -> NodeState:
    """A node that runs one instance."""
    addresses = frozenset(map(parse_address, vips))
    return NodeState(
        config_hash="h",
        runs=addresses,
        masters=addresses if sight.state == "MASTER" else frozenset(),
        instance_of=dict.fromkeys(addresses, sight.name),
        instances=(sight,),
    )


def say(simulation: SimulatedCluster, *, seen: dict[str, Contact] | None = None, **states: NodeState) -> None:
    """Set the answers of the agents, all of one moment without *seen*, and plan until nothing is left to write."""
    simulation.agents = AgentStates({GROUP: states}, contacts={GROUP: seen} if seen else {})
    work(simulation)


def work(simulation: SimulatedCluster) -> None:
    """Plan the group until nothing is left to write."""
    for _ in range(3):
        plan = simulation.group()
        for key in (*plan.also, *plan.also_low_priority):
            simulation.service(key.name)


def served(*services: Object, nodes: int = 2, **group: Any) -> SimulatedCluster:
    """A cluster in which the Service has its address and its VRID, and no agent has answered."""
    objects = services or (web(),)
    simulation = SimulatedCluster(cluster(*objects, build.group(**group), build.pool(), nodes=nodes))
    simulation.settle(SERVICE, EDGE)
    return simulation


def condition(simulation: SimulatedCluster, key: str = WEB) -> tuple[str, str, str] | None:
    """Status, reason and message of Advertised."""
    for each in simulation.snapshot.services[key].status.conditions or ():
        if each.type == ADVERTISED:
            return each.status, each.reason, each.message
    return None


def test_the_condition_appears_with_the_first_master() -> None:
    """The first write has only the address and Programmed. Nodes that run the VIP without a master change nothing."""
    simulation = SimulatedCluster(cluster(web(), build.group(), build.pool()))
    assert set(conditions_of(simulation.service(WEB))) == {
        names.ConditionType.ADDRESS_ASSIGNED,
        names.ConditionType.SERVICE_PROGRAMMED,
    }
    simulation.settle(SERVICE, EDGE)
    say(simulation, n1=node(), n2=node())
    assert condition(simulation) is None
    say(simulation, n1=node("MASTER"), n2=node())
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")


def test_programmed_and_master_are_one_write() -> None:
    """Changes that are found together are one write, and then nothing is left to write."""
    simulation = served()
    simulation.agents = AgentStates({GROUP: {"n1": node("MASTER"), "n2": node()}})
    assert simulation.group().also == (SERVICE,)
    plan = simulation.service(WEB)
    assert set(conditions_of(plan)) == {names.ConditionType.SERVICE_PROGRAMMED, ADVERTISED}
    assert [notice.reason for notice in plan.events] == ["Programmed", "Master"]
    assert not simulation.service(WEB).writes
    assert not simulation.group().also


@pytest.mark.parametrize("settle", [False, True])
def test_another_uncertain_reason_lasts_from_its_beginning(settle: bool) -> None:
    """A plan of the Service alone does not take the time of another reason, nor that of an earlier term."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    earlier = {WEB: Unconfirmed("NoMaster" if settle else "Unknown", since=-100.0)}
    simulation.records.groups[GROUP] = replace(simulation.records.group(GROUP), unconfirmed=earlier)
    if settle:
        simulation.records.settle()
    simulation.agents = AgentStates({GROUP: {"n1": node("FAULT"), "n2": node()}})
    assert not simulation.plan_service(WEB).writes
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")


def test_a_fail_over_is_one_write_and_no_event() -> None:
    """The time without a master is not written, and the new master is written once."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    simulation.agents = AgentStates({GROUP: {"n1": node("FAULT"), "n2": node()}})
    plan = simulation.group()
    assert plan.also == () and plan.requeue_after == pytest.approx(5.0)
    assert not simulation.service(WEB).writes
    simulation.agents = AgentStates({GROUP: {"n1": node("FAULT"), "n2": node("MASTER")}})
    assert simulation.group().also_low_priority == (SERVICE,)
    moved = simulation.service(WEB)
    assert body_of(moved)["conditions"][0]["message"] == f"node n2 holds {VIP}"
    assert not moved.events


@pytest.mark.parametrize(("milliseconds", "gap"), [(200, 2.0), (1000, 5.0), (3000, 13.0)])
def test_no_master_is_reported_when_it_lasts(milliseconds: int, gap: float) -> None:
    """It is reported after the longest fail-over, which depends on the interval. The message names nodes in FAULT."""
    simulation = served(vrrp_version=3, advert_interval_milliseconds=milliseconds)
    say(simulation, n1=node("MASTER"), n2=node())
    say(simulation, n1=node("FAULT"), n2=node("FAULT"))
    simulation.later(gap - 0.1)
    work(simulation)
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")
    simulation.later(0.1)
    work(simulation)
    assert condition(simulation) == (
        "False",
        "NoMaster",
        f"no node holds {VIP}; keepalived is in FAULT on n1, n2: see the agents' /state",
    )
    assert simulation.group().requeue_after is None


def test_no_master_has_the_problem_of_a_faulty_node() -> None:
    """This is mostly a health check. An on-call engineer reads its name in the condition of the missing VIP."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    say(simulation, n1=replace(node("FAULT"), notes=noted("health check web fails")), n2=node("FAULT"))
    simulation.later(60)
    work(simulation)
    reported = condition(simulation)
    assert reported is not None
    assert reported[2] == f"no node holds {VIP}; keepalived is in FAULT on n1, n2: n1 reports: health check web fails"


def test_a_node_that_was_deleted_may_still_be_the_master() -> None:
    """Its agent is not probed any more, and its pod runs for a while. NoMaster is reported when the pod has ended."""
    simulation = with_pods(served(), pod("p1", "n1"), pod("p2", "n2"))
    say(simulation, n1=node("MASTER"), n2=node())
    simulation.snapshot.drop(names.NODE, "n1")
    say(simulation, n2=node())
    simulation.later(30)
    work(simulation)
    reported = f"the master of {VIP} is unknown: no answer from the agents on n1"
    assert condition(simulation) == ("Unknown", "Unknown", reported)
    simulation.objects.pods.clear()
    work(simulation)
    simulation.later(30)
    work(simulation)
    assert condition(simulation) == ("False", "NoMaster", f"no node holds {VIP}")


def test_a_hand_over_seen_in_the_wrong_order_is_no_split_brain() -> None:
    """
    The old master's answer is older than the new master's. Nothing is reported until the old one has answered again.
    """
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    simulation.later(10)
    seen = {"n1": Contact(last=9.5, since={WEB: 1.0}), "n2": Contact(last=9.9, since={WEB: 9.9})}
    say(simulation, seen=seen, n1=node("MASTER"), n2=node("MASTER"))
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")
    assert simulation.group().requeue_after == pytest.approx(9.9 + 1.2 - 10)
    seen["n1"] = Contact(last=10.0, since={WEB: 10.0})
    say(simulation, seen=seen, n1=node(), n2=node("MASTER"))
    assert condition(simulation) == ("True", "Master", f"node n2 holds {VIP}")


def test_two_masters_at_one_time_are_a_split_brain() -> None:
    """It is reported when the claims overlap for longer than masters need to detect each other, and so is its end."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    simulation.later(11.5)
    seen = {"n1": Contact(last=11.0, since={WEB: 1.0}), "n2": Contact(last=11.2, since={WEB: 9.9})}
    say(simulation, seen=seen, n1=node("MASTER"), n2=node("MASTER"))
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")
    seen = {"n1": Contact(last=11.3, since={WEB: 1.0}), "n2": Contact(last=11.3, since={WEB: 9.9})}
    say(simulation, seen=seen, n1=node("MASTER"), n2=node("MASTER"))
    found = condition(simulation)
    assert found is not None and found[:2] == ("False", "SplitBrain")
    assert f"{VIP} is held by nodes n1, n2 at once" in found[2]
    say(
        simulation,
        seen=seen,
        n1=node("MASTER"),
        n2=replace(node("MASTER"), notes=noted("VRRP goes out by eth9")),
    )
    found = condition(simulation)
    assert found is not None and found[2].endswith("between them; n2 reports: VRRP goes out by eth9")
    say(simulation, n1=node("MASTER"), n2=node())
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")


def test_a_new_master_is_reported_while_the_dead_one_is_not_silent_yet() -> None:
    """The dead master's claim is not renewed, so the new master is reported at once."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    simulation.later(10)
    seen = {"n1": Contact(last=7.0, since={WEB: 1.0}), "n2": Contact(last=9.9, since={WEB: 8.5})}
    say(simulation, seen=seen, n1=node("MASTER"), n2=node("MASTER"))
    assert condition(simulation) == ("True", "Master", f"node n2 holds {VIP}")


@pytest.mark.parametrize(("other", "after"), [("BACKUP", "Master"), ("FAULT", "Unknown")])
def test_a_silent_master_counts_while_a_backup_hears_it(other: str, after: str) -> None:
    """A restart of an agent changes nothing. Without a BACKUP that hears the master, the status becomes unknown."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node(other))
    seen = {"n1": Contact(last=1.0, is_silent=True), "n2": Contact(last=6.0)}
    say(simulation, seen=seen, n1=node("MASTER"), n2=node(other))
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")
    simulation.later(10)
    work(simulation)
    found = condition(simulation)
    assert found is not None and found[1] == after
    if after == "Unknown":
        assert found[2] == f"the master of {VIP} is unknown: no answer from the agents on n1"


def test_a_silent_claim_does_not_count_beside_another() -> None:
    """This holds even if the two claims overlapped, because a silent node may be dead."""
    simulation = served()
    seen = {
        "n1": Contact(last=9.0, since={WEB: 1.0}, is_silent=True),
        "n2": Contact(last=20.0, since={WEB: 2.0}),
    }
    say(simulation, seen=seen, n1=node("MASTER"), n2=node("MASTER"))
    assert condition(simulation) == ("True", "Master", f"node n2 holds {VIP}")


def test_a_new_controller_keeps_the_condition_until_agents_have_answered() -> None:
    """Only if no agent answers for a while, the condition becomes unknown."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    simulation.records.groups.clear()
    say(simulation)
    simulation.later(9)
    work(simulation)
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")
    simulation.later(1)
    work(simulation)
    found = condition(simulation)
    assert found is not None and found[:2] == ("Unknown", "Unknown")


def test_both_families_and_spread_vips_name_each_node() -> None:
    """Every VIP is named once, under the node that holds it."""
    vips = ("192.0.2.130", "192.0.2.131", "2001:db8::5")
    service = build.service(WEB, group=GROUP, type="ClusterIP", external_ips=list(vips))
    simulation = served(service)
    say(
        simulation,
        n1=state_of(InstanceState(WEB, 1, 4, "MASTER", 2), *vips[:2]),
        n2=state_of(InstanceState(f"{WEB}/v6", 1, 6, "MASTER", 1), vips[2]),
    )
    assert condition(simulation) == (
        "True",
        "Master",
        "node n1 holds 192.0.2.130, 192.0.2.131; node n2 holds 2001:db8::5",
    )


def test_services_that_share_an_address_report_the_same_node() -> None:
    """The VIP counts, not the instance that has it."""
    shared: dict[str, Any] = {
        "group": GROUP,
        "annotations": {names.SHARING_KEY_ANNOTATION: "k"},
        "external_ips": ["192.0.2.130"],
    }
    simulation = served(
        build.service(WEB, type="ClusterIP", ports=[ServicePort(port=80)], **shared),
        build.service("shop/api", type="ClusterIP", ports=[ServicePort(port=443)], **shared),
    )
    simulation.settle(SERVICE, Key(KeyKind.SERVICE, "shop/api"), EDGE)
    say(simulation, n1=node("MASTER", "192.0.2.130"), n2=node("BACKUP", "192.0.2.130"))
    assert condition(simulation) == condition(simulation, "shop/api") == ("True", "Master", "node n1 holds 192.0.2.130")


def test_changed_addresses_are_one_write() -> None:
    """When the addresses change, one write reports that they are pending and that their nodes are unknown."""
    service = build.service(WEB, group=GROUP, type="ClusterIP", external_ips=["192.0.2.130"])
    simulation = served(service)
    say(simulation, n1=node("MASTER", "192.0.2.130"), n2=node("BACKUP", "192.0.2.130"))
    before = simulation.snapshot.services[WEB]
    moved = replace_ips(before, "192.0.2.131")
    simulation.snapshot.put(moved)
    plan = simulation.service(WEB)
    assert conditions_of(plan) == {
        names.ConditionType.SERVICE_PROGRAMMED: ("False", "Pending"),
        ADVERTISED: ("Unknown", "Unknown"),
    }
    assert not simulation.service(WEB).writes


def replace_ips(service: Service, *ips: str) -> Service:
    """*service* with other externalIPs."""
    return msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, external_ips=list(ips)))


def test_the_condition_is_removed_with_the_others() -> None:
    """A Service that kavip no longer manages loses all conditions in one write."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())
    service = simulation.snapshot.services[WEB]
    metadata = msgspec.structs.replace(service.metadata, annotations=None)
    simulation.snapshot.put(msgspec.structs.replace(service, metadata=metadata))
    simulation.service(WEB)
    assert not simulation.snapshot.services[WEB].status.conditions


def test_instances_keep_their_node_through_a_fail_over() -> None:
    """The group's status does not show the gap either: one write for the new master, one more if the gap lasts."""
    simulation = served()
    say(simulation, n1=node("MASTER"), n2=node())

    def instance() -> tuple[str, str]:
        (only,) = simulation.snapshot.groups[GROUP].status.instances or []
        return only.node, only.state

    assert instance() == ("n1", "MASTER")
    say(simulation, n1=node("FAULT"), n2=node())
    assert instance() == ("n1", "MASTER")
    simulation.later(5)
    work(simulation)
    assert instance() == ("", "FAULT")
    say(simulation, n1=node("FAULT"), n2=node("MASTER"))
    assert instance() == ("n2", "MASTER")
    assert not simulation.group().writes


def test_an_interrupted_mastership_begins_again() -> None:
    """Two claims with an interruption between prove no overlap."""
    old, same = node("MASTER"), replace(node("MASTER"), refused="x")
    assert steady_since(old, same, Contact(since={WEB: 1.0}), at=5.0) == {WEB: 1.0}
    assert steady_since(old, node("MASTER", since="u"), Contact(since={WEB: 1.0}), at=5.0) == {WEB: 5.0}
    assert steady_since(None, old, Contact(), at=5.0) == {WEB: 5.0}


def labelled(simulation: SimulatedCluster, **labels: str) -> None:
    """Give all nodes exactly these labels."""
    for found in list(simulation.snapshot.nodes.values()):
        metadata = msgspec.structs.replace(found.metadata, labels=labels)
        simulation.snapshot.put(msgspec.structs.replace(found, metadata=metadata))


def test_no_node_holds_the_vips_of_a_group_without_nodes() -> None:
    """Condition and status of the group agree when a fail-over would be over, and no agent has to say so."""
    simulation = served(node_selector={"role": "lb"})
    work(simulation)
    assert condition(simulation) is None, "nothing was ever advertised"
    labelled(simulation, role="lb")
    with_pods(simulation, pod("p1", "n1"), pod("p2", "n2"))
    say(simulation, n1=node("MASTER"), n2=node())
    labelled(simulation)
    simulation.agents = AgentStates()
    work(simulation)
    silent = f"the master of {VIP} is unknown: no answer from the agents on n1, n2"
    assert condition(simulation) == ("Unknown", "Unknown", silent), "the pods may still hold it"
    with_pods(simulation)
    work(simulation)
    simulation.later(5)
    work(simulation)
    assert condition(simulation) == ("False", "NoMaster", f"no node holds {VIP}: see kavip.io/Programmed")
    (instance,) = simulation.snapshot.groups[GROUP].status.instances or []
    assert (instance.node, instance.state) == ("", "")
