"""The plan of one Service."""

import random
from typing import Any

import msgspec
import pytest

from kavip.api.service import Ingress, LoadBalancer
from kavip.reconcile.plan import Key, KeyKind, ReconcileOptions, ServicePlan, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Object
from tests.reconcile.service.planning import ASSIGNED, PROGRAMMED, VIP, WEB, conditions_of, web, with_condition
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, agent_states, body_of, cluster, running
from tests.support import build


# --- address and conditions -------------------------------------------------------------------------------------------
def test_one_write_has_address_and_both_conditions() -> None:
    """A new Service gets address, AddressAssigned and the first Programmed in one write, claimed before."""
    plan = plan_service(cluster(web(), build.group(), build.pool()), WEB, now=NOW)
    status = body_of(plan)
    assert status["loadBalancer"] == {"ingress": [{"ip": VIP, "ipMode": "VIP"}]}
    assert conditions_of(plan) == {ASSIGNED: ("True", "Assigned"), PROGRAMMED: ("False", "Pending")}
    assert [str(address) for address in plan.claims or ()] == [VIP]
    assert {each["lastTransitionTime"] for each in status["conditions"]} == {"2026-03-01T12:00:00Z"}


def test_a_write_is_conditional_on_its_version() -> None:
    """The patch has the resourceVersion of the Service."""
    plan = plan_service(cluster(web(), build.group(), build.pool()), WEB, now=NOW)
    (write,) = plan.writes
    assert isinstance(write, StatusPatch)
    assert write.body["metadata"] == {"resourceVersion": "1"}


def test_a_plan_applied_to_its_own_result_is_empty() -> None:
    """Nothing is written twice, and there is no second Event."""
    simulation = SimulatedCluster(cluster(web(), build.group(), build.pool()))
    simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    again = simulation.service(WEB)
    assert (again.writes, again.events, again.claims) == ((), (), None)


def test_the_servers_default_of_ip_mode_is_no_difference() -> None:
    """An entry with the defaulted ipMode VIP equals the written one."""
    for mode in (None, "VIP"):
        service = with_condition(with_condition(web(), ASSIGNED, "True", "Assigned"), PROGRAMMED, "False", "Pending")
        status = msgspec.structs.replace(
            service.status, load_balancer=LoadBalancer(ingress=[Ingress(ip=VIP, ip_mode=mode)])
        )
        service = msgspec.structs.replace(service, status=status)
        plan = plan_service(cluster(service, build.group(), build.pool()), WEB, now=NOW)
        assert plan.claims is None
        assert "loadBalancer" not in body_of(plan)


def test_programmed_follows_in_one_further_write() -> None:
    """Nodes load the configuration one by one. There is one write when the last one has, and none before."""
    simulation = SimulatedCluster(cluster(web(), build.group(), build.pool()))
    simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    simulation.agents = agent_states(n1=running("h", VIP))
    assert not simulation.service(WEB).writes
    simulation.agents = agent_states(n1=running("h", VIP), n2=running("h", VIP))
    plan = simulation.service(WEB)
    assert conditions_of(plan) == {PROGRAMMED: ("True", "Programmed")}
    assert [notice.reason for notice in plan.events] == ["Programmed"]
    assert not simulation.service(WEB).writes


def test_generation_is_observed_if_the_server_has_one() -> None:
    """observedGeneration is omitted without metadata.generation."""
    without, with_it = web(), web()
    with_it = msgspec.structs.replace(with_it, metadata=msgspec.structs.replace(with_it.metadata, generation=7))
    for service, expected in ((without, None), (with_it, 7)):
        plan = plan_service(cluster(service, build.group(), build.pool()), WEB, now=NOW)
        assert {each.get("observedGeneration") for each in body_of(plan)["conditions"]} == {expected}


def test_an_edit_by_the_user_is_observed() -> None:
    """A new generation is written into the conditions. No Event is sent."""
    simulation = SimulatedCluster(cluster(web(), build.group(), build.pool()))
    simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    service = simulation.snapshot.services[WEB]
    simulation.snapshot.put(
        msgspec.structs.replace(service, metadata=msgspec.structs.replace(service.metadata, generation=2))
    )
    plan = simulation.service(WEB)
    assert {each["observedGeneration"] for each in body_of(plan)["conditions"]} == {2}
    assert plan.events == ()


def test_both_families_come_in_the_order_of_the_service() -> None:
    """The first status has the order of ipFamilies."""
    service = web(families=("IPv6", "IPv4"), ip_family_policy="RequireDualStack")
    pool = build.pool("edge", "192.0.2.128/28", "2001:db8::100/120")
    plan = plan_service(cluster(service, build.group(), pool), WEB, now=NOW)
    assert [each["ip"] for each in body_of(plan)["loadBalancer"]["ingress"]] == ["2001:db8::100", VIP]


def test_a_completed_family_comes_after_the_existing_entry() -> None:
    """The second family of a holder is appended. The existing entry does not move."""
    service = with_condition(
        web(families=("IPv6", "IPv4"), ip_family_policy="PreferDualStack", holds=[VIP]), ASSIGNED, "True", "Assigned"
    )
    pool = build.pool("edge", "192.0.2.128/28", "2001:db8::100/120")
    plan = plan_service(cluster(service, build.group(), pool), WEB, now=NOW)
    assert [each["ip"] for each in body_of(plan)["loadBalancer"]["ingress"]] == [VIP, "2001:db8::100"]


def test_a_waiting_service_has_a_condition_and_names_its_pools() -> None:
    """A full pool gives a condition, a pool to wait for, and one warning."""
    pool = build.pool("edge", "192.0.2.128/32")
    holder = with_condition(build.service("shop/a", group=GROUP, holds=["192.0.2.128"]), ASSIGNED, "True", "Assigned")
    simulation = SimulatedCluster(cluster(web(), holder, build.group(), pool))
    plan = simulation.service(WEB)
    assert conditions_of(plan) == {ASSIGNED: ("False", "PoolExhausted"), PROGRAMMED: ("False", "Pending")}
    assert plan.waits == ("edge",)
    assert [(notice.reason, notice.warning) for notice in plan.events] == [("PoolExhausted", True), ("Pending", False)]
    assert not simulation.service(WEB).writes


def test_the_loser_of_a_conflict_gives_the_address_up_in_one_write() -> None:
    """The younger of two holders gets another address, and the entry is replaced."""
    older = with_condition(build.service("shop/a", group=GROUP, holds=[VIP]), ASSIGNED, "True", "Assigned")
    younger = with_condition(web(holds=[VIP], created="2026-02-01T00:00:00Z"), ASSIGNED, "True", "Assigned")
    plan = plan_service(cluster(older, younger, build.group(), build.pool()), WEB, now=NOW)
    assert body_of(plan)["loadBalancer"] == {"ingress": [{"ip": "192.0.2.129", "ipMode": "VIP"}]}


def test_without_a_pool_a_lost_address_leaves_status_empty() -> None:
    """Without a replacement the entry is removed."""
    older = with_condition(build.service("shop/a", group=GROUP, holds=[VIP]), ASSIGNED, "True", "Assigned")
    younger = with_condition(web(holds=[VIP], created="2026-02-01T00:00:00Z"), ASSIGNED, "True", "Assigned")
    plan = plan_service(cluster(older, younger, build.group(), build.pool("edge", f"{VIP}/32")), WEB, now=NOW)
    assert body_of(plan)["loadBalancer"] == {"ingress": None}
    assert plan.claims == ()


# --- other writers ----------------------------------------------------------------------------------------------------
def test_a_foreign_status_is_not_changed() -> None:
    """An address of another controller stays, and the Service gets a condition."""
    plan = plan_service(cluster(web(holds=["198.51.100.7"]), build.group(), build.pool()), WEB, now=NOW)
    assert "loadBalancer" not in body_of(plan)
    assert conditions_of(plan)[ASSIGNED] == ("True", "ForeignStatus")
    assert plan.claims is None


def test_others_conditions_are_not_written() -> None:
    """A strategic merge patch with only kavip's types keeps the conditions of other controllers."""
    service = with_condition(web(), "example.org/Healthy", "True", "Fine")
    plan = plan_service(cluster(service, build.group(), build.pool()), WEB, now=NOW)
    assert set(conditions_of(plan)) == {ASSIGNED, PROGRAMMED}


@pytest.mark.parametrize("ipam", ["auto", "never"])
def test_the_platform_assigns(ipam: str) -> None:
    """If OpenShift assigns addresses, or kavip is set not to, kavip assigns none and reports it."""
    network = build.network(*(["198.51.100.0/24"] if ipam == "auto" else []))
    snapshot = cluster(web(), build.group(), build.pool(), network)
    plan = plan_service(snapshot, WEB, now=NOW, options=ReconcileOptions(ipam=ipam))
    assert conditions_of(plan) == {ASSIGNED: ("Unknown", "LeftToPlatform"), PROGRAMMED: ("False", "Pending")}
    assert "loadBalancer" not in body_of(plan)
    assert not any(notice.warning for notice in plan.events)


@pytest.mark.parametrize(
    ("ipam", "more"),
    [("always", {}), ("auto", {"pool": "edge"}), ("auto", {"wants": VIP}), ("auto", {"load_balancer_ip": VIP})],
)
def test_kavip_assigns_beside_a_platform_on_request(ipam: str, more: dict[str, Any]) -> None:
    """A request for a pool, or for an address of a pool, is served by kavip; with `always` every Service is."""
    snapshot = cluster(web(**more), build.group(), build.pool(), build.network("198.51.100.0/24"))
    assert conditions_of(plan_service(snapshot, WEB, now=NOW, options=ReconcileOptions(ipam=ipam)))[ASSIGNED] == (
        "True",
        "Assigned",
    )


def test_a_platform_that_begins_to_assign_takes_nothing_away() -> None:
    """A Service with an address of kavip keeps it."""
    network = build.network("198.51.100.0/24")
    holder = with_condition(web(holds=[VIP]), ASSIGNED, "True", "Assigned")
    plan = plan_service(cluster(holder, build.group(), build.pool(), network), WEB, now=NOW)
    assert conditions_of(plan)[ASSIGNED] == ("True", "Assigned")
    assert "loadBalancer" not in body_of(plan)


@pytest.mark.parametrize("wants", ["", "192.0.2.200"])
def test_a_move_has_an_event_with_any_reason(wants: str) -> None:
    """A move that the Service did not request is a warning."""
    pool = build.pool("edge", "192.0.2.128/25")
    mine = with_condition(web(holds=[VIP], created="2025", wants=wants), ASSIGNED, "True", "Assigned")
    older = with_condition(build.service("shop/old", holds=[VIP], created="2020"), ASSIGNED, "True", "Assigned")
    plan = plan_service(cluster(mine, build.group(), pool, *([] if wants else [older])), WEB, now=NOW)
    (event,) = [notice for notice in plan.events if notice.reason == "Assigned"]
    why = "" if wants else f"; {VIP} belongs to Service shop/old, which is older"
    assert event.message == f"{wants or '192.0.2.129'} from pool edge (was {VIP}{why})"
    assert event.warning is not bool(wants)


# --- no longer ours ---------------------------------------------------------------------------------------------------
def test_a_service_that_is_no_longer_managed_loses_kavips_fields_in_one_write() -> None:
    """Without the annotation, entries and conditions are removed. The address is free at once."""
    service = with_condition(
        with_condition(build.service(WEB, holds=[VIP]), ASSIGNED, "True", "Assigned"), PROGRAMMED, "True", "Programmed"
    )
    plan = plan_service(
        cluster(with_condition(service, "example.org/Fine", "True", "Fine"), build.pool()), WEB, now=NOW
    )
    assert body_of(plan) == {
        "conditions": [{"$patch": "delete", "type": ASSIGNED}, {"$patch": "delete", "type": PROGRAMMED}],
        "loadBalancer": {"ingress": None},
    }
    assert plan.claims == ()


@pytest.mark.parametrize(
    ("status", "reason", "address"),
    [
        ("True", "ForeignStatus", "198.51.100.7"),
        ("Unknown", "LeftToPlatform", "198.51.100.7"),
        ("False", "NoPool", "198.51.100.7"),
    ],
)
def test_a_service_that_is_no_longer_managed_keeps_fields_of_other_controllers(
    status: str, reason: str, address: str
) -> None:
    """If the condition records no address of kavip, only the condition is removed."""
    service = with_condition(build.service(WEB, holds=[address]), ASSIGNED, status, reason)
    plan = plan_service(cluster(service, build.pool()), WEB, now=NOW)
    assert "loadBalancer" not in body_of(plan)
    assert plan.claims is None


def test_a_service_that_kavip_never_managed_is_not_changed() -> None:
    """Without a condition of kavip there is nothing to remove."""
    for service in (build.service(WEB, holds=[VIP]), build.service(WEB, load_balancer_class="example.org/other")):
        assert not plan_service(cluster(service, build.pool()), WEB, now=NOW).writes


def test_a_deleted_service_is_not_written() -> None:
    """A Service in deletion keeps what it has until it is gone, and waits for nothing more."""
    leaving = web(holds=[VIP])
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-03-01T00:00:00Z")
    leaving = msgspec.structs.replace(leaving, metadata=metadata)
    assert plan_service(cluster(leaving, build.group(), build.pool()), WEB, now=NOW) == ServicePlan(waits=())
    assert plan_service(cluster(), WEB, now=NOW) == ServicePlan(waits=())


def test_external_ips_alone_get_no_address_and_no_address_condition() -> None:
    """A ClusterIP Service brings its VIPs along; only Programmed concerns it."""
    service = web(type="ClusterIP", external_ips=[VIP])
    plan = plan_service(cluster(service, build.group(), build.pool()), WEB, now=NOW)
    assert conditions_of(plan) == {PROGRAMMED: ("False", "Pending")}
    assert plan.claims is None


def test_a_service_that_was_of_type_load_balancer_loses_that_condition() -> None:
    """AddressAssigned means nothing on a ClusterIP Service."""
    service = with_condition(web(type="ClusterIP", external_ips=[VIP]), ASSIGNED, "True", "Assigned")
    plan = plan_service(cluster(service, build.group(), build.pool()), WEB, now=NOW)
    assert {"$patch": "delete", "type": ASSIGNED} in body_of(plan)["conditions"]


def test_the_order_of_events_does_not_matter() -> None:
    """The same objects in any order give the same plan."""
    services = [build.service(f"shop/s{n}", group=GROUP, created=f"2026-01-0{n}T00:00:00Z") for n in range(1, 6)]
    others = (build.group(), build.pool(), build.node("n1", "192.0.2.11"), build.node("n2", "192.0.2.12"))
    objects: list[Object] = [*services, *others]
    plans = set()
    for seed in range(5):
        random.Random(seed).shuffle(objects)
        snapshot = cluster(*objects, nodes=0)
        plans.add(msgspec.json.encode([dict(body_of(plan_service(snapshot, each.key, now=NOW))) for each in services]))
    assert len(plans) == 1
