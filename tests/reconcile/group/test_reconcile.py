"""The plan of one group: VRIDs, ports, the order of writes, and the Services that it excludes."""

import random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kavip import names
from kavip.api.group import GroupStatus, GroupVirtualIP, Instances
from kavip.api.meta import LabelSelector
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import GroupPlan, Key, KeyKind, ReconcileOptions
from tests.reconcile.group.settledgroup import (
    ACCEPTED,
    API,
    PROGRAMMED,
    WEB,
    applied_kinds,
    condition,
    serving,
    settled,
)
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, agent_states, body_of, cluster, running
from tests.support import build


# --- order of things --------------------------------------------------------------------------------------------------
def test_a_vrid_is_persisted_before_it_is_published() -> None:
    """The first plan writes the status. The text has the instance only after the status names its VRID."""
    simulation = settled(build.group())
    simulation.snapshot.put(serving(WEB, "192.0.2.130"))
    first = simulation.group()
    assert body_of(first)["routerIDs"] == {WEB: 1}
    assert not applied_kinds(first)
    second = simulation.group()
    assert applied_kinds(second) == ["ConfigMap"]
    assert "vrrp_instance shop/web {" in simulation.text()


def test_a_pinned_vrid_that_another_group_uses_is_reported() -> None:
    """`Programmed` names the field and the group; the VIP is served as soon as the other group gives the VRID up."""
    pinned = [GroupVirtualIP(address="192.0.2.150", router_id=10)]
    other = build.group("lb/other", segment="rack", virtual_ips=[GroupVirtualIP(address="192.0.2.151", router_id=10)])
    other = replace(other, status=GroupStatus(router_ids={"lb/other/virtualips/10": 10}))
    simulation = settled(build.group(segment="rack", virtual_ips=pinned), other)
    text_hash = simulation.snapshot.groups[GROUP].status.config_hash
    simulation.agents = agent_states(n1=running(text_hash), n2=running(text_hash))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    status, reason, message = condition(simulation, PROGRAMMED)
    assert (status, reason) == ("False", "Pending")
    assert message == "spec.virtualIPs[0].routerID: 10: group lb/other uses it; choose another VRID"
    simulation.snapshot.drop(names.KEEPALIVED_GROUP, "lb/other")
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert "virtual_router_id 10" in simulation.text()
    assert "routerID" not in condition(simulation, PROGRAMMED)[2]


def test_new_services_do_not_delay_persisted_ones() -> None:
    """With new Services before each plan, it publishes the persisted VRIDs and persists the new ones."""
    simulation = settled(build.group())
    simulation.snapshot.put(serving(WEB, "192.0.2.130"))
    simulation.group()
    simulation.snapshot.put(serving(API, "192.0.2.131"))
    plan = simulation.group()
    assert applied_kinds(plan) == ["ConfigMap"]
    assert body_of(plan)["routerIDs"] == {API: 2}
    assert "shop/web" in simulation.text()
    assert "shop/api" not in simulation.text()


def test_a_vrid_that_must_change_changes_in_the_status_first() -> None:
    """A blacklisted VRID that is in use changes in the status first, so the text always has the instance."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"))
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, blacklist_router_ids=[1])
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    plan = simulation.group()
    assert body_of(plan)["routerIDs"] == {WEB: 2}
    assert not applied_kinds(plan)
    simulation.group()
    assert "virtual_router_id 2" in simulation.text()


def test_vrids_in_the_status_are_kept() -> None:
    """VRIDs in the status stay, in any order of Services."""
    simulation = settled(build.group(router_ids={WEB: 77}), serving(API, "192.0.2.131"), serving(WEB, "192.0.2.130"))
    assert simulation.snapshot.groups[GROUP].status.router_ids == {API: 1, WEB: 77}


def test_a_deleted_service_frees_its_vrid() -> None:
    """The VRID and the instance are removed with the Service."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"))
    simulation.snapshot.drop(names.SERVICE, WEB)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert not simulation.snapshot.groups[GROUP].status.router_ids
    assert "shop/web" not in simulation.text()


def test_the_port_is_persisted_before_the_daemon_set_uses_it() -> None:
    """Nothing is applied before the status names the port."""
    simulation = SimulatedCluster(cluster(build.group()))
    first = simulation.group()
    assert not applied_kinds(first)
    assert body_of(first)["metricsPort"] == 9650
    assert applied_kinds(simulation.group()) == ["ConfigMap", "DaemonSet"]


def test_a_crd_that_drops_the_port_stops_nothing() -> None:
    """Where the CRD is keepalived-operator's, it drops new status fields: the group still works."""
    simulation = SimulatedCluster(cluster(build.group()))
    simulation.group()
    written = simulation.snapshot.groups[GROUP]
    kept = GroupStatus(conditions=written.status.conditions, router_ids=written.status.router_ids)
    simulation.snapshot.put(msgspec.structs.replace(written, status=kept))
    assert applied_kinds(simulation.group()) == ["ConfigMap", "DaemonSet"]


def test_the_config_map_is_written_before_the_daemon_set() -> None:
    """A pod without its ConfigMap would wait for kubelet's next attempt."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9700)))
    assert applied_kinds(simulation.group()) == ["ConfigMap", "DaemonSet"]


# --- nothing to do ----------------------------------------------------------------------------------------------------
def test_a_plan_applied_to_its_own_result_is_empty() -> None:
    """A plan after all writes has no writes."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"), serving(API, "2001:db8::1"))
    assert not simulation.group().writes


@pytest.mark.parametrize("seed", range(4))
def test_shuffled_input_gives_the_same_bytes(seed: int) -> None:
    """The order of events does not change the objects."""
    objects: list[Any] = [build.group(metrics_port=9650)]
    objects += [serving(f"shop/s{n}", f"192.0.2.{130 + n}") for n in range(6)]
    objects += [build.node(f"n{n}", f"192.0.2.{10 + n}") for n in range(1, 4)]
    expected = settled(*objects, nodes=0)
    random.Random(seed).shuffle(objects)
    simulation = settled(*objects, nodes=0)
    assert simulation.text() == expected.text()
    assert simulation.snapshot.groups[GROUP].status == expected.snapshot.groups[GROUP].status


def test_a_group_in_deletion_is_not_written() -> None:
    """The garbage collector deletes the objects of a deleted group; kavip does not apply them again."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"))
    group = simulation.snapshot.groups[GROUP]
    metadata = msgspec.structs.replace(group.metadata, deletion_timestamp="2026-03-01T00:00:00Z")
    simulation.snapshot.put(msgspec.structs.replace(group, metadata=metadata))
    simulation.objects = OwnedObjects()
    assert simulation.group() == GroupPlan()


def test_a_deleted_group_has_no_plan() -> None:
    """Its deletion has enqueued its Services already."""
    snapshot = cluster(serving(WEB, "192.0.2.130"))
    assert plan_group(snapshot, GROUP, now=NOW) == GroupPlan()


# --- one Service alone ------------------------------------------------------------------------------------------------
def test_bad_lines_cost_only_their_service() -> None:
    """The group is accepted, the other Services are served, and the Service is reconciled."""
    bad = serving(WEB, "192.0.2.130", annotations={names.VERBATIM_ANNOTATION: '{"virtual_router_id": "2"}'})
    simulation = settled(build.group(), bad, serving(API, "192.0.2.131"))
    assert condition(simulation, ACCEPTED)[:2] == ("True", "Accepted")
    assert "vrrp_instance shop/api {" in simulation.text()
    assert "virtual_router_id 2\n" in simulation.text()  # the VRID of shop/web, not the one in its line


def test_missing_vrids_cost_only_the_youngest() -> None:
    """The oldest Services get the VRIDs."""
    group = build.group(blacklist_router_ids=list(range(3, 256)))
    services = [serving(f"shop/s{n}", f"192.0.2.{130 + n}", created=f"2026-01-0{n}T00:00:00Z") for n in (3, 1, 2)]
    simulation = settled(group, *services)
    assert simulation.snapshot.groups[GROUP].status.router_ids == {"shop/s1": 1, "shop/s2": 2}
    assert condition(simulation, ACCEPTED)[:2] == ("True", "Accepted")
    for key in ("shop/s1", "shop/s2", "shop/s3"):
        simulation.service(key)
    assert simulation.condition("shop/s3", names.ConditionType.SERVICE_PROGRAMMED) == ("False", "RouterIDsExhausted")
    assert simulation.condition("shop/s1", names.ConditionType.SERVICE_PROGRAMMED) == ("False", "Pending")


def test_a_vip_of_an_older_service_in_another_group_is_left_out() -> None:
    """The same VIP in two groups would be on two nodes."""
    older = serving("shop/old", "192.0.2.130", group="lb/other")
    younger = serving(WEB, "192.0.2.130", "192.0.2.131", created="2026-02-01T00:00:00Z")
    simulation = settled(build.group(), build.group("lb/other"), older, younger)
    assert "192.0.2.131" in simulation.text()
    assert "192.0.2.130" not in simulation.text()


def test_a_nodes_own_address_never_reaches_the_text() -> None:
    """keepalived would delete the address from its node, of whatever group."""
    simulation = settled(
        build.group(node_selector={"edge": "true"}),
        serving(WEB, "192.0.2.12", "192.0.2.131"),
        build.node("e1", "192.0.2.21", labels={"edge": "true"}),
    )
    assert "192.0.2.12/" not in simulation.text()
    assert "192.0.2.131/" in simulation.text()


def test_services_of_namespaces_that_are_not_allowed_are_left_out() -> None:
    """These Services get neither a VRID nor their VIPs."""
    group = build.group(allowed_namespaces=LabelSelector(match_labels={"team": "a"}))
    simulation = settled(group, build.namespace("shop", team="b"), serving(WEB, "192.0.2.130"))
    assert "192.0.2.130" not in simulation.text()
    assert not simulation.snapshot.groups[GROUP].status.router_ids


def test_services_with_an_outdated_condition_are_enqueued() -> None:
    """The group's plan enqueues these Services, and no others."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"), serving(API, "192.0.2.131"))
    for key in (WEB, API):
        simulation.service(key)
    assert simulation.group().also == ()
    simulation.agents = agent_states(n1=running("h", "192.0.2.130"), n2=running("h", "192.0.2.130"))
    assert simulation.group().also == (Key(KeyKind.SERVICE, WEB),)
    simulation.service(WEB)
    assert simulation.group().also == ()


# --- Shared -----------------------------------------------------------------------------------------------------------
def test_shared_instances_serve_more_services_than_there_are_vrids() -> None:
    """Three hundred Services use four instances and as many VRIDs."""
    group = build.group(instances=Instances(mode="Shared", count=4))
    services = [serving(f"shop/s{n:03}", f"198.18.{n // 250}.{n % 250 + 1}") for n in range(300)]
    simulation = settled(group, *services)
    ids = simulation.snapshot.groups[GROUP].status.router_ids or {}
    assert ids == {f"group/{n}": n + 1 for n in range(4)}
    assert simulation.text().count("vrrp_instance group/") == 4
    assert len(simulation.snapshot.groups[GROUP].status.instances or ()) == 4
    assert sum(each.virtual_ips for each in simulation.snapshot.groups[GROUP].status.instances or ()) == 300


# --- neighbours -------------------------------------------------------------------------------------------------------
def test_groups_of_one_segment_take_different_vrids() -> None:
    """A group does not take the VRIDs that another group has persisted."""
    one, two = build.group("lb/one", segment="lan"), build.group("lb/two", segment="lan")
    simulation = SimulatedCluster(
        cluster(one, two, serving(WEB, "192.0.2.130", group="lb/one"), serving(API, "192.0.2.131", group="lb/two"))
    )
    keys = Key(KeyKind.GROUP, "lb/one"), Key(KeyKind.GROUP, "lb/two")
    simulation.settle(*keys)
    assert simulation.snapshot.groups["lb/one"].status.router_ids == {WEB: 1}
    assert simulation.snapshot.groups["lb/two"].status.router_ids == {API: 2}


def test_a_vrid_that_is_not_in_the_status_yet_is_taken() -> None:
    """Two groups that are planned from one Snapshot do not take the same VRID or port."""
    one, two = build.group("lb/one", segment="lan"), build.group("lb/two", segment="lan")
    snapshot = cluster(
        one, two, serving(WEB, "192.0.2.130", group="lb/one"), serving(API, "192.0.2.131", group="lb/two")
    )
    observed = Observed()
    first = plan_group(snapshot, "lb/one", now=NOW, observed=observed)
    assert first.record is not None
    observed.records.groups["lb/one"] = first.record
    second = plan_group(snapshot, "lb/two", now=NOW, observed=observed)
    assert (body_of(first)["routerIDs"], body_of(first)["metricsPort"]) == ({WEB: 1}, 9650)
    assert (body_of(second)["routerIDs"], body_of(second)["metricsPort"]) == ({API: 2}, 9651)


def test_of_two_groups_with_one_vrid_and_port_the_older_keeps_both() -> None:
    """Of two restored groups, the younger one changes, once."""
    old = build.group("lb/old", segment="lan", router_ids={WEB: 7})
    new = build.group("lb/new", segment="lan", router_ids={API: 7}, created="2026-02-01T00:00:00Z")
    both = [
        msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, metrics_port=9660))
        for each in (old, new)
    ]
    services = serving(WEB, "192.0.2.130", group="lb/old"), serving(API, "192.0.2.131", group="lb/new")
    simulation = SimulatedCluster(cluster(*both, *services))
    simulation.settle(Key(KeyKind.GROUP, "lb/new"), Key(KeyKind.GROUP, "lb/old"))
    status = {key: group.status for key, group in simulation.snapshot.groups.items()}
    assert (status["lb/old"].router_ids, status["lb/old"].metrics_port) == ({WEB: 7}, 9660)
    assert (status["lb/new"].router_ids, status["lb/new"].metrics_port) == ({API: 1}, 9650)


def test_groups_on_different_nodes_may_use_one_port() -> None:
    """A port is in use only on nodes that both groups share."""
    groups = [build.group(f"lb/{name}", node_selector={"rack": name}) for name in ("a", "b")]
    nodes = [build.node(name, f"192.0.2.{n}", labels={"rack": name}) for n, name in ((21, "a"), (22, "b"))]
    simulation = SimulatedCluster(cluster(*groups, *nodes, nodes=0), options=ReconcileOptions(agent_port=9700))
    simulation.settle(Key(KeyKind.GROUP, "lb/a"), Key(KeyKind.GROUP, "lb/b"))
    assert {group.status.metrics_port for group in simulation.snapshot.groups.values()} == {9700}


@pytest.mark.parametrize("key", [names.AGENT_KEY, names.CONFIG_KEY])
@pytest.mark.parametrize(
    "text", ["", "[]", '{"leads": ' + "[" * 100_000, "vrrp_instance x {\n" * 20_000, "}\n" * 20_000, "\x00"]
)
def test_invalid_content_of_the_config_map_is_overwritten(key: str, text: str) -> None:
    """A user who writes the group's ConfigMap neither stops kavip nor keeps it busy."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"))
    before = simulation.objects.configmaps[GROUP]
    simulation.objects.configmaps[GROUP] = replace(before, data={**(before.data or {}), key: text})
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert simulation.objects.configmaps[GROUP].data == before.data
