"""A group outside the setting group_namespaces gets conditions, and nothing else."""

from typing import Any

import msgspec

from kavip import names
from kavip.admission import policy
from kavip.api.group import GroupVirtualIP, KeepalivedGroup, NodesStatus
from kavip.api.meta import Condition
from kavip.api.review import Operation, Review
from kavip.cli.views import simulate
from kavip.reconcile.enqueue import everything
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from kavip.snapshot import Snapshot
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, body_of
from tests.support import build

WEB = "shop/web"


def confined(*objects: Any) -> SimulatedCluster:
    """A cluster in which kavip serves groups only in namespace infra."""
    nodes = [build.node("n1", "192.0.2.11")]
    return SimulatedCluster(Snapshot.from_objects([*objects, *nodes], group_namespaces=["infra"]))


def with_condition(group: KeepalivedGroup, kind: str) -> KeepalivedGroup:
    """*group* with a condition that another program wrote."""
    condition = Condition(type=kind, status="True", reason="Theirs", last_transition_time="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(group, status=msgspec.structs.replace(group.status, conditions=[condition]))


def test_a_group_outside_gets_its_condition_and_nothing_else() -> None:
    """Accepted=False names the namespaces. There is one write and one Event. Other programs' conditions stay."""
    simulation = confined(with_condition(build.group(), "ReconcileSuccess"), build.service(WEB, group=GROUP))
    plan = simulation.group()
    assert [type(write) for write in plan.writes] == [StatusPatch]
    theirs, ours = body_of(plan)["conditions"]
    assert (theirs["type"], theirs["reason"]) == ("ReconcileSuccess", "Theirs")
    assert (ours["type"], ours["status"], ours["reason"]) == ("Accepted", "False", "Invalid")
    assert "kavip serves groups only in namespace infra" in ours["message"]
    assert [notice.reason for notice in plan.events] == ["Invalid"]
    assert not simulation.group().writes


def test_a_group_that_was_served_reports_where_its_pods_keep_vips() -> None:
    """Every condition that kavip wrote before names the remedy and how to find the pods, so no old message remains."""
    served = with_condition(build.group(), "Programmed")
    status = msgspec.structs.replace(served.status, nodes=NodesStatus(desired=1))
    simulation = confined(msgspec.structs.replace(served, status=status), build.service(WEB, group=GROUP))
    found = {each["type"]: each for each in body_of(simulation.group())["conditions"]}
    assert (found.pop("ReconcileSuccess")["status"], found["ReconcileError"]["status"]) == ("False", "True")
    assert "until then its pods keep VIPs" in found.pop("ReconcileError")["message"]
    assert set(found) == {"Accepted", "Programmed"}
    for each in found.values():
        assert (each["status"], each["reason"]) == ("False", "Invalid")
        assert "until then its pods keep VIPs" in each["message"]
        assert "kubectl get pods --namespace lb --output wide --selector keepalivedGroup=edge" in each["message"]
        assert "or add lb to the value" in each["message"]
    assert not simulation.group().writes
    simulation = confined(served)
    assert all("until then" not in each["message"] for each in body_of(simulation.group())["conditions"])


def test_addresses_that_pods_of_an_ignored_group_may_hold_stay_reserved() -> None:
    """A Service of the former default group keeps its address. The address is free once the group is deleted."""
    default = build.group(default=True)
    before = SimulatedCluster(
        Snapshot.from_objects([default, build.service(WEB), build.node("n1", "192.0.2.11"), build.pool()])
    )
    before.service(WEB)
    web = before.snapshot.services[WEB]
    (address,) = web.ingress_addresses
    simulation = confined(
        default, web, build.group("infra/edge"), build.pool(), build.service("shop/api", group="infra/edge")
    )
    simulation.service(WEB)
    assert simulation.snapshot.services[WEB].ingress_addresses == (address,)
    assert simulation.condition(WEB, names.ConditionType.SERVICE_PROGRAMMED) == ("False", "GroupNotFound")
    simulation.service("shop/api")
    assert address not in simulation.snapshot.services["shop/api"].ingress_addresses
    new = build.service("shop/new")
    simulation.snapshot.put(new)
    assert not simulation.service("shop/new").writes, "the group assigns no address"
    simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    simulation.service(WEB)
    assert simulation.snapshot.services[WEB].ingress_addresses == ()


def test_services_of_an_ignored_group_report_it() -> None:
    """A Service that names the group keeps its address; Programmed names the namespace that kavip serves."""
    simulation = confined(build.group(), build.service(WEB, group=GROUP), build.pool())
    simulation.service(WEB)
    assert simulation.condition(WEB, names.ConditionType.SERVICE_PROGRAMMED) == ("False", "GroupNotFound")
    messages = [each.message for each in simulation.snapshot.services[WEB].status.conditions or ()]
    assert f"kavip does not serve KeepalivedGroup {GROUP}: name a group in namespace infra" in messages


def test_an_ignored_group_is_no_default_group_and_reserves_no_address() -> None:
    """A plain Service stays unmanaged, and the group's virtualIPs stay available to other groups."""
    own = build.group(default=True, virtual_ips=[GroupVirtualIP(address="192.0.2.128")])
    simulation = confined(own, build.service(WEB), build.group("infra/edge"), build.pool())
    assert simulation.snapshot.default_group is None
    assert simulation.snapshot.group_of(simulation.snapshot.services[WEB]) is None
    simulation.snapshot.put(build.service("shop/api", group="infra/edge"))
    simulation.service("shop/api")
    assert [str(each) for each in simulation.snapshot.services["shop/api"].ingress_addresses] == ["192.0.2.128"]


def test_vrids_and_port_that_pods_of_an_ignored_group_use_are_not_taken() -> None:
    """Other groups of its segment do not take the VRIDs and the port in its status."""
    theirs = build.group(segment="lan", router_ids={"shop/old": 1})
    theirs = msgspec.structs.replace(theirs, status=msgspec.structs.replace(theirs.status, metrics_port=9650))
    web = build.service(WEB, group="infra/edge", type="ClusterIP", external_ips=["192.0.2.130"])
    simulation = confined(theirs, build.group("infra/edge", segment="lan"), web)
    simulation.settle(Key(KeyKind.GROUP, "infra/edge"))
    status = simulation.snapshot.groups["infra/edge"].status
    assert (status.router_ids, status.metrics_port) == ({WEB: 2}, 9651)


def test_a_new_leader_reconciles_an_ignored_group_too() -> None:
    """Every group is among the keys that a term begins with. A deleted group is forgotten."""
    simulation = confined(build.group(), build.group("infra/edge"))
    assert [key.name for key in everything(simulation.snapshot)] == ["infra/edge", GROUP]
    simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    assert simulation.snapshot.any_group(GROUP) is None


def test_offline_commands_do_not_serve_an_ignored_group() -> None:
    """With --group-namespaces, a group in another namespace renders nothing."""
    planned = simulate.plan([build.group(), build.group("infra/edge")], group_namespaces=("infra",))
    assert list(planned.configurations) == ["infra/edge"]


def test_admission_refuses_a_service_that_names_an_ignored_group() -> None:
    """The refusal names the namespace as the cause."""
    simulation = confined(build.group(), build.group("infra/edge"))
    asked = Review(Operation.CREATE, build.service(WEB, group=GROUP))
    (refusal,) = policy.review(asked, simulation.snapshot).refusals
    assert f'group "{GROUP}" is in a namespace whose groups kavip ignores (groupNamespaces); ' in refusal.message
    assert "infra/edge" in refusal.message
