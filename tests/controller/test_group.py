"""The plan of one group: state in, state out."""

import json
import random
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.agent.localize import _password_fault
from kavip.api.group import GroupStatus, GroupVirtualIP, Instances, KeepalivedGroup
from kavip.api.meta import LabelSelector, Metadata, OwnerReference
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.controller.belongings import RECHECK
from kavip.controller.group import plan_group
from kavip.controller.manifests import digest
from kavip.controller.observed import NodeState, Objects, Rejected, Sight, Stranger
from kavip.controller.outcome import Apply, Key, Kind, Options, Plan, PodAnnotation, StatusPatch
from kavip.controller.owner import Foreign
from kavip.names import Reason
from tests import build
from tests.controller.scenes import GROUP, NOW, World, body_of, cluster, pod, running, seen

WEB, API = "shop/web", "shop/api"
ACCEPTED, READY, PROGRAMMED = names.Condition.ACCEPTED, names.Condition.READY, names.Condition.PROGRAMMED


def serving(key: str, *vips: str, group: str = GROUP, **more: Any) -> Any:
    """A Service with externalIPs: it has its VIPs without any pool."""
    return build.service(key, group=group, type="ClusterIP", external_ips=list(vips), **more)


def applied(plan: Plan) -> list[str]:
    """The kinds of object that *plan* writes, in order."""
    return [write.kind for write in plan.writes if isinstance(write, Apply)]


def told(plan: Plan) -> dict[str, str]:
    """The pods that *plan* tells, and what."""
    return {write.key: write.value for write in plan.writes if isinstance(write, PodAnnotation)}


def condition(world: World, kind: str, key: str = GROUP) -> tuple[str, str, str]:
    """Status, reason and message of a condition of the group."""
    found = next(each for each in world.snapshot.groups[key].status.conditions or () if each.type == kind)
    return found.status, found.reason, found.message


def settled(*objects: Any, nodes: int = 2, **more: Any) -> World:
    """A world in which everything that the group's plan wants is done."""
    world = World(cluster(*objects, nodes=nodes), **more)
    world.settle(Key(Kind.GROUP, GROUP))
    return world


# --- order of things --------------------------------------------------------------------------------------------------
def test_a_vrid_is_persisted_before_it_is_published() -> None:
    """The first plan writes status; the text has the instance only once the VRID stands there."""
    world = settled(build.group())
    world.snapshot.put(serving(WEB, "192.0.2.130"))
    first = world.group()
    assert body_of(first)["routerIDs"] == {WEB: 1}
    assert not applied(first)
    second = world.group()
    assert applied(second) == ["ConfigMap"]
    assert "vrrp_instance shop/web {" in world.text()


def test_services_that_come_do_not_hold_up_those_that_are_persisted() -> None:
    """With ever new Services, each plan publishes what is persisted and persists what is new."""
    world = settled(build.group())
    world.snapshot.put(serving(WEB, "192.0.2.130"))
    world.group()
    world.snapshot.put(serving(API, "192.0.2.131"))
    plan = world.group()
    assert applied(plan) == ["ConfigMap"]
    assert body_of(plan)["routerIDs"] == {API: 2}
    assert "shop/web" in world.text()
    assert "shop/api" not in world.text()


def test_a_vrid_that_has_to_change_changes_in_status_first() -> None:
    """Blacklisting a VRID in use writes nothing but status, so that the instance is never missing from the text."""
    world = settled(build.group(), serving(WEB, "192.0.2.130"))
    group = world.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, blacklist_router_ids=[1])
    world.snapshot.put(msgspec.structs.replace(group, spec=spec))
    plan = world.group()
    assert body_of(plan)["routerIDs"] == {WEB: 2}
    assert not applied(plan)
    world.group()
    assert "virtual_router_id 2" in world.text()


def test_vrids_in_status_are_honoured_as_found() -> None:
    """What stands in status stays, whatever the order of Services."""
    world = settled(build.group(router_ids={WEB: 77}), serving(API, "192.0.2.131"), serving(WEB, "192.0.2.130"))
    assert world.snapshot.groups[GROUP].status.router_ids == {API: 1, WEB: 77}


def test_a_service_that_goes_frees_its_vrid() -> None:
    """VRID and configuration are gone with the Service."""
    world = settled(build.group(), serving(WEB, "192.0.2.130"))
    world.snapshot.drop(names.SERVICE, WEB)
    world.settle(Key(Kind.GROUP, GROUP))
    assert not world.snapshot.groups[GROUP].status.router_ids
    assert "shop/web" not in world.text()


def test_the_port_is_persisted_before_the_daemon_set_uses_it() -> None:
    """Nothing is applied while status.metricsPort is not written."""
    world = World(cluster(build.group()))
    first = world.group()
    assert not applied(first)
    assert body_of(first)["metricsPort"] == 9650
    assert applied(world.group()) == ["ConfigMap", "DaemonSet"]


def test_a_definition_that_drops_the_port_stops_nothing() -> None:
    """Where what was written beside the conditions is not there, the definition is the predecessor's: go on."""
    world = World(cluster(build.group()))
    world.group()
    written = world.snapshot.groups[GROUP]
    kept = GroupStatus(conditions=written.status.conditions, router_ids=written.status.router_ids)
    world.snapshot.put(msgspec.structs.replace(written, status=kept))
    assert applied(world.group()) == ["ConfigMap", "DaemonSet"]


def test_the_config_map_is_written_before_the_daemon_set() -> None:
    """Pods that find no ConfigMap would wait for kubelet's next try."""
    world = World(cluster(build.group(metrics_port=9700)))
    assert applied(world.group()) == ["ConfigMap", "DaemonSet"]


# --- nothing to do ----------------------------------------------------------------------------------------------------
def test_a_plan_applied_to_its_own_result_is_empty() -> None:
    """Once everything is written there is nothing to write."""
    world = settled(build.group(), serving(WEB, "192.0.2.130"), serving(API, "2001:db8::1"))
    assert not world.group().writes


@pytest.mark.parametrize("seed", range(4))
def test_shuffled_input_gives_the_same_bytes(seed: int) -> None:
    """Order of events is nowhere in the objects."""
    objects: list[Any] = [build.group(metrics_port=9650)]
    objects += [serving(f"shop/s{n}", f"192.0.2.{130 + n}") for n in range(6)]
    objects += [build.node(f"n{n}", f"192.0.2.{10 + n}") for n in range(1, 4)]
    expected = settled(*objects, nodes=0)
    random.Random(seed).shuffle(objects)
    world = settled(*objects, nodes=0)
    assert world.text() == expected.text()
    assert world.snapshot.groups[GROUP].status == expected.snapshot.groups[GROUP].status


def test_a_group_that_goes_is_not_written() -> None:
    """What a group in deletion owns is being collected; nothing is made again."""
    world = settled(build.group(), serving(WEB, "192.0.2.130"))
    group = world.snapshot.groups[GROUP]
    metadata = msgspec.structs.replace(group.metadata, deletion_timestamp="2026-03-01T00:00:00Z")
    world.snapshot.put(msgspec.structs.replace(group, metadata=metadata))
    world.objects = Objects()
    assert world.group() == Plan()


def test_a_group_that_is_gone_concerns_its_services() -> None:
    """They have to be told."""
    snapshot = cluster(serving(WEB, "192.0.2.130"))
    assert plan_group(snapshot, GROUP, now=NOW) == Plan(also=(Key(Kind.SERVICE, WEB),))


# --- one Service alone ------------------------------------------------------------------------------------------------
def test_bad_lines_cost_only_their_service() -> None:
    """The group is accepted, all others are served, and the Service itself is looked at again."""
    bad = serving(WEB, "192.0.2.130", annotations={names.VERBATIM_ANNOTATION: '{"virtual_router_id": "2"}'})
    world = settled(build.group(), bad, serving(API, "192.0.2.131"))
    assert condition(world, ACCEPTED)[:2] == ("True", "Accepted")
    assert "vrrp_instance shop/api {" in world.text()
    assert "virtual_router_id 2\n" in world.text()  # shop/web's own, not the one it asked for


def test_overflow_costs_only_the_youngest() -> None:
    """The VRIDs that there are go to those who came first."""
    group = build.group(blacklist_router_ids=list(range(3, 256)))
    services = [serving(f"shop/s{n}", f"192.0.2.{130 + n}", created=f"2026-01-0{n}T00:00:00Z") for n in (3, 1, 2)]
    world = settled(group, *services)
    assert world.snapshot.groups[GROUP].status.router_ids == {"shop/s1": 1, "shop/s2": 2}
    assert condition(world, ACCEPTED)[:2] == ("True", "Accepted")
    for key in ("shop/s1", "shop/s2", "shop/s3"):
        world.service(key)
    assert world.condition("shop/s3", names.Condition.SERVICE_PROGRAMMED) == ("False", "RouterIDsExhausted")
    assert world.condition("shop/s1", names.Condition.SERVICE_PROGRAMMED) == ("False", "Pending")


def test_a_vip_that_an_older_service_of_another_group_has_is_left_out() -> None:
    """One VIP in two groups would be on two nodes at once."""
    older = serving("shop/old", "192.0.2.130", group="lb/other")
    younger = serving(WEB, "192.0.2.130", "192.0.2.131", created="2026-02-01T00:00:00Z")
    world = settled(build.group(), build.group("lb/other"), older, younger)
    assert "192.0.2.131" in world.text()
    assert "192.0.2.130" not in world.text()


def test_a_nodes_own_address_never_reaches_the_text() -> None:
    """keepalived would delete it from the node, whichever group's node it is."""
    world = settled(
        build.group(node_selector={"edge": "true"}),
        serving(WEB, "192.0.2.12", "192.0.2.131"),
        build.node("e1", "192.0.2.21", labels={"edge": "true"}),
    )
    assert "192.0.2.12/" not in world.text()
    assert "192.0.2.131/" in world.text()


def test_services_of_namespaces_that_are_not_allowed_are_left_out() -> None:
    """They take neither VRID nor VIP."""
    group = build.group(allowed_namespaces=LabelSelector(match_labels={"team": "a"}))
    world = settled(group, build.namespace("shop", team="b"), serving(WEB, "192.0.2.130"))
    assert "192.0.2.130" not in world.text()
    assert not world.snapshot.groups[GROUP].status.router_ids


def test_services_whose_condition_became_wrong_are_looked_at() -> None:
    """The group's plan names them, and no others."""
    world = settled(build.group(), serving(WEB, "192.0.2.130"), serving(API, "192.0.2.131"))
    for key in (WEB, API):
        world.service(key)
    assert world.group().also == ()
    world.observed = seen(n1=running("h", "192.0.2.130"), n2=running("h", "192.0.2.130"))
    assert world.group().also == (Key(Kind.SERVICE, WEB),)
    world.service(WEB)
    assert world.group().also == ()


# --- Shared -----------------------------------------------------------------------------------------------------------
def test_shared_instances_serve_more_services_than_there_are_vrids() -> None:
    """Three hundred Services live in four instances, and each is shown the VRID of its own."""
    group = build.group(instances=Instances(mode="Shared", count=4))
    services = [serving(f"shop/s{n:03}", f"198.18.{n // 250}.{n % 250 + 1}") for n in range(300)]
    world = settled(group, *services)
    ids = world.snapshot.groups[GROUP].status.router_ids or {}
    assert {ids[f"group/{n}"] for n in range(4)} == {1, 2, 3, 4}
    assert all(ids[service.key] in range(1, 5) for service in services)
    assert world.text().count("vrrp_instance group/") == 4
    assert len(world.snapshot.groups[GROUP].status.instances or ()) == 4
    assert sum(each.virtual_ips for each in world.snapshot.groups[GROUP].status.instances or ()) == 300


# --- neighbours -------------------------------------------------------------------------------------------------------
def test_groups_of_one_segment_take_different_vrids() -> None:
    """What the one has persisted, the other leaves alone."""
    one, two = build.group("lb/one", segment="lan"), build.group("lb/two", segment="lan")
    world = World(
        cluster(one, two, serving(WEB, "192.0.2.130", group="lb/one"), serving(API, "192.0.2.131", group="lb/two"))
    )
    keys = Key(Kind.GROUP, "lb/one"), Key(Kind.GROUP, "lb/two")
    world.settle(*keys)
    assert world.snapshot.groups["lb/one"].status.router_ids == {WEB: 1}
    assert world.snapshot.groups["lb/two"].status.router_ids == {API: 2}


def test_a_vrid_on_its_way_into_status_is_taken() -> None:
    """Two groups planned from one stale Snapshot do not take the same VRID or port."""
    one, two = build.group("lb/one", segment="lan"), build.group("lb/two", segment="lan")
    snapshot = cluster(
        one, two, serving(WEB, "192.0.2.130", group="lb/one"), serving(API, "192.0.2.131", group="lb/two")
    )
    objects = Objects()
    first = plan_group(snapshot, "lb/one", now=NOW, objects=objects)
    assert first.reserves is not None
    objects.reserved["lb/one"] = first.reserves
    second = plan_group(snapshot, "lb/two", now=NOW, objects=objects)
    assert (body_of(first)["routerIDs"], body_of(first)["metricsPort"]) == ({WEB: 1}, 9650)
    assert (body_of(second)["routerIDs"], body_of(second)["metricsPort"]) == ({API: 2}, 9651)


def test_of_two_groups_with_one_vrid_and_port_the_older_keeps_both() -> None:
    """Objects that were restored side by side are told apart by age, once."""
    old = build.group("lb/old", segment="lan", router_ids={WEB: 7})
    new = build.group("lb/new", segment="lan", router_ids={API: 7}, created="2026-02-01T00:00:00Z")
    both = [
        msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, metrics_port=9660))
        for each in (old, new)
    ]
    services = serving(WEB, "192.0.2.130", group="lb/old"), serving(API, "192.0.2.131", group="lb/new")
    world = World(cluster(*both, *services))
    world.settle(Key(Kind.GROUP, "lb/new"), Key(Kind.GROUP, "lb/old"))
    status = {key: group.status for key, group in world.snapshot.groups.items()}
    assert (status["lb/old"].router_ids, status["lb/old"].metrics_port) == ({WEB: 7}, 9660)
    assert (status["lb/new"].router_ids, status["lb/new"].metrics_port) == ({API: 1}, 9650)


def test_groups_on_different_nodes_may_use_one_port() -> None:
    """A port is taken only where agents would meet."""
    groups = [build.group(f"lb/{name}", node_selector={"rack": name}) for name in ("a", "b")]
    nodes = [build.node(name, f"192.0.2.{n}", labels={"rack": name}) for n, name in ((21, "a"), (22, "b"))]
    world = World(cluster(*groups, *nodes, nodes=0), options=Options(agent_port=9700))
    world.settle(Key(Kind.GROUP, "lb/a"), Key(Kind.GROUP, "lb/b"))
    assert {group.status.metrics_port for group in world.snapshot.groups.values()} == {9700}


# --- objects of others, drift -----------------------------------------------------------------------------------------
def owned_by(kind: str, name: str, uid: str) -> Metadata:
    """Metadata of an object with the group's name that another object controls."""
    owner = OwnerReference(api_version="v1", kind=kind, name=name, uid=uid, controller=True)
    return Metadata(name="edge", namespace="lb", labels={names.GROUP_LABEL: "edge"}, owner_references=[owner])


def test_an_object_of_somebody_else_is_not_overwritten() -> None:
    """Not even the other object is written, and the condition says whose it is."""
    world = World(cluster(build.group(metrics_port=9650)))
    world.objects.configmaps[GROUP] = ConfigMap(metadata=owned_by("Deployment", "shop", "uid-of-another"), data={})
    plan = world.group()
    assert not applied(plan)
    assert condition(world, ACCEPTED) == (
        "False",
        "ObjectConflict",
        "ConfigMap lb/edge is controlled by Deployment shop (uid uid-of-another): delete it, or rename the group",
    )
    assert condition(world, names.Condition.RECONCILE_ERROR)[:2] == ("True", "LastReconcileCycleFailed")
    assert condition(world, names.Condition.RECONCILE_SUCCESS)[:2] == ("False", "LastReconcileCycleSucceded")


def test_the_predecessors_objects_are_left_to_it() -> None:
    """Objects that keepalived-operator made for this very group are not merged with ours."""
    world = World(cluster(build.group(metrics_port=9650)))
    metadata = owned_by("KeepalivedGroup", "edge", f"uid-{GROUP}")
    world.objects.configmaps[GROUP] = ConfigMap(metadata=metadata, data={names.CONFIG_KEY: "old"})
    assert not applied(world.group())
    assert condition(world, ACCEPTED)[:2] == ("False", "OldOperatorRunning")


def test_a_stranger_that_the_cache_does_not_show_is_looked_at_again_later() -> None:
    """An object without the label was seen by the writer; after a while the group tries again."""
    world = World(cluster(build.group(metrics_port=9650)))
    world.objects.strangers[f"DaemonSet {GROUP}"] = Stranger(Foreign("nobody's: it has no controlling owner"), NOW)
    plan = world.group()
    assert not applied(plan)
    assert plan.requeue_after == RECHECK
    assert condition(world, ACCEPTED)[1] == "ObjectConflict"
    world.later(RECHECK)
    assert applied(world.group()) == ["ConfigMap", "DaemonSet"]
    assert condition(world, ACCEPTED)[1] == "Accepted"


def test_a_body_that_was_refused_is_not_sent_again_and_again() -> None:
    """The API server's words stand in the condition; another body is tried at once."""
    world = World(cluster(build.group(metrics_port=9650)))
    body = next(each for each in world.plan(Key(Kind.GROUP, GROUP)).writes if isinstance(each, Apply)).body
    world.objects.refused[f"ConfigMap {GROUP}"] = Rejected(digest(body), "exceeded quota", NOW)
    assert not applied(world.group())
    assert condition(world, ACCEPTED) == (
        "False",
        "Invalid",
        "the API server refuses ConfigMap lb/edge: exceeded quota",
    )
    world.objects.refused[f"ConfigMap {GROUP}"] = Rejected("another", "exceeded quota", NOW)
    assert applied(world.group()) == ["ConfigMap", "DaemonSet"]


def test_drift_is_healed() -> None:
    """What was deleted or edited behind kavip's back is applied again, and only that."""
    world = settled(build.group(), serving(WEB, "192.0.2.130"))
    del world.objects.daemonsets[GROUP]
    assert applied(world.group()) == ["DaemonSet"]
    edited = world.objects.daemonsets[GROUP]
    metadata = msgspec.structs.replace(edited.metadata, generation=edited.metadata.generation + 1)
    world.objects.daemonsets[GROUP] = DaemonSet(metadata=metadata, spec=edited.spec)
    assert applied(world.group()) == ["DaemonSet"]
    changed = {**(world.objects.configmaps[GROUP].data or {}), names.CONFIG_KEY: "edited\n"}
    world.objects.configmaps[GROUP] = msgspec.structs.replace(world.objects.configmaps[GROUP], data=changed)
    assert applied(world.group()) == ["ConfigMap"]
    assert not world.group().writes


def test_a_cache_that_lags_behind_our_own_apply_is_no_drift() -> None:
    """The generation that we know is newer than the one that the cache shows."""
    world = settled(build.group())
    old = world.objects.daemonsets[GROUP]
    metadata = msgspec.structs.replace(old.metadata, generation=old.metadata.generation - 1)
    world.objects.daemonsets[GROUP] = DaemonSet(metadata=metadata, spec=old.spec)
    assert not applied(world.group())


# --- pods -------------------------------------------------------------------------------------------------------------
def with_pods(world: World, *pods: Any) -> World:
    """*world* with pods of the group."""
    world.objects.pods[GROUP] = {each.metadata.key: each for each in pods}
    return world


def test_pods_are_told_of_a_new_configuration() -> None:
    """Each pod gets the annotation once; a pod that knows is not written."""
    world = with_pods(settled(build.group()), pod("p1", "n1"), pod("p2", "n2"))
    first = world.group()
    assert sorted(told(first)) == ["lb/p1", "lb/p2"]
    assert not world.group().writes
    world.snapshot.put(serving(WEB, "192.0.2.130"))
    world.group()
    second = world.group()
    assert applied(second) == ["ConfigMap"]
    assert sorted(told(second)) == ["lb/p1", "lb/p2"]
    assert told(first)["lb/p1"] != told(second)["lb/p1"]


def test_pods_of_others_are_not_told() -> None:
    """A label is not enough: the DaemonSet must control the pod."""
    stray = pod("p1", "n1")
    stray = msgspec.structs.replace(stray, metadata=msgspec.structs.replace(stray.metadata, owner_references=None))
    world = with_pods(settled(build.group()), stray)
    assert not told(world.group())


# --- conditions and the rest of status --------------------------------------------------------------------------------
def test_a_group_that_works_says_so() -> None:
    """All conditions, counts, hash and port."""
    world = with_pods(settled(build.group(), serving(WEB, "192.0.2.130")), pod("p1", "n1"), pod("p2", "n2"))
    config_hash = world.snapshot.groups[GROUP].status.config_hash
    sight = Sight("shop/web", 1, 4, "BACKUP", 1)
    states = {
        "n1": NodeState(config_hash=config_hash, instances=(msgspec_replace(sight, state="MASTER"),)),
        "n2": NodeState(config_hash=config_hash, instances=(sight,)),
    }
    world.observed = seen(**states)
    world.settle(Key(Kind.GROUP, GROUP))
    status = world.snapshot.groups[GROUP].status
    assert {each.type: (each.status, each.reason) for each in status.conditions or ()} == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "Ready": ("True", "Ready"),
        "ReconcileSuccess": ("True", "LastReconcileCycleSucceded"),
        "ReconcileError": ("False", "LastReconcileCycleFailed"),
    }
    assert msgspec.to_builtins(status.nodes) == {"desired": 2, "ready": 2, "current": 2}
    assert (status.metrics_port, status.observed_generation, len(config_hash)) == (9650, 1, 16)
    assert [msgspec.to_builtins(each) for each in status.instances or ()] == [
        {"name": "shop/web", "routerID": 1, "family": 4, "node": "n1", "state": "MASTER", "virtualIPs": 1}
    ]


def msgspec_replace(sight: Sight, **changes: Any) -> Sight:
    """*sight* with *changes*."""
    return Sight(**{**{name: getattr(sight, name) for name in sight.__slots__}, **changes})


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (build.group(interface="eth0;id"), "spec.interface"),
        (build.group(blacklist_router_ids=[0]), "spec.blacklistRouterIDs[0]"),
        (build.group("lb/" + "x" * 64), "metadata.name"),
        (build.group(verbatim_config={"notify_master": "/bin/sh"}), "spec.verbatimConfig[notify_master]"),
    ],
)
def test_what_is_wrong_with_a_group_is_told(group: KeepalivedGroup, message: str) -> None:
    """Admission may have been away: the controller judges again."""
    world = World(cluster(group))
    world.settle(Key(Kind.GROUP, group.key))
    status, reason, text = condition(world, ACCEPTED, group.key)
    assert (status, reason) == ("False", "Invalid")
    assert message in text


def test_a_group_without_a_usable_interface_gets_no_objects() -> None:
    """There is no configuration that could be written."""
    world = World(cluster(build.group(interface="eth0;id", metrics_port=9650)))
    plan = world.group()
    assert not applied(plan)
    assert plan.target is None
    assert condition(world, PROGRAMMED)[:2] == ("False", "Pending")


def test_a_finding_about_a_detail_does_not_stop_the_group() -> None:
    """A line that is not allowed is left out; the VIPs stay up."""
    world = settled(build.group(verbatim_config={"notify_master": "/bin/sh"}), serving(WEB, "192.0.2.130"))
    assert "vrrp_instance shop/web" in world.text()
    assert "notify_master" not in world.text()


def test_the_younger_of_two_default_groups_says_so_and_serves_on() -> None:
    """The label is the problem, not the group."""
    older = build.group("lb/first", default=True)
    world = settled(older, build.group(default=True, created="2026-02-01T00:00:00Z"))
    assert condition(world, ACCEPTED)[:2] == ("False", "DuplicateDefault")
    assert GROUP in world.objects.daemonsets


def test_ready_no_nodes() -> None:
    """A selector that no node matches."""
    world = settled(build.group(node_selector={"edge": "true"}))
    assert condition(world, READY)[:2] == ("False", "NoNodes")


def test_ready_pods_not_ready() -> None:
    """Nodes whose pod is not ready are named."""
    world = with_pods(settled(build.group()), pod("p1", "n1"), pod("p2", "n2", ready=False))
    world.settle(Key(Kind.GROUP, GROUP))
    assert condition(world, READY) == ("False", "PodsNotReady", "1 of 2 pods are ready; waiting for those on n2")


def test_ready_with_a_vrid_collision() -> None:
    """A group without a segment that shares a VRID on one interface is warned, and nothing is changed."""
    other = build.group("lb/other", router_ids={"shop/x": 1})
    world = with_pods(settled(build.group(), serving(WEB, "192.0.2.130"), other), pod("p1", "n1"), pod("p2", "n2"))
    world.settle(Key(Kind.GROUP, GROUP))
    assert condition(world, READY)[:2] == ("True", "VRIDCollision")
    assert world.snapshot.groups[GROUP].status.router_ids == {WEB: 1}


def test_programmed_pending_and_refused() -> None:
    """The group counts its nodes, and names the one that refuses."""
    world = settled(build.group())
    config_hash = world.snapshot.groups[GROUP].status.config_hash
    world.observed = seen(n1=running(config_hash))
    world.settle(Key(Kind.GROUP, GROUP))
    assert condition(world, PROGRAMMED) == (
        "False",
        "Pending",
        f"1 of 2 nodes run configuration {config_hash}; waiting for n2",
    )
    world.observed = seen(n1=running(config_hash), n2=running("old", refused="unknown interface eth0"))
    world.settle(Key(Kind.GROUP, GROUP))
    assert condition(world, PROGRAMMED) == ("False", "RefusedByAgent", "node n2: unknown interface eth0")


def test_programmed_secret_missing() -> None:
    """An agent that finds no password says so in words of its own, which the group turns into a reason."""
    fault = _password_fault(None)
    world = settled(build.group())
    world.observed = seen(n1=running("old", refused=fault))
    world.settle(Key(Kind.GROUP, GROUP))
    assert condition(world, PROGRAMMED) == ("False", "SecretMissing", f"node n1: {fault}")


def test_a_change_of_accepted_is_one_event() -> None:
    """Told when it changes, and not again."""
    world = World(cluster(build.group(metrics_port=9650)))
    assert [(notice.reason, notice.warning) for notice in world.group().events] == [("Accepted", False)]
    assert not world.group().events
    group = world.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, blacklist_router_ids=[0])
    world.snapshot.put(msgspec.structs.replace(group, spec=spec))
    assert [(notice.reason, notice.warning) for notice in world.group().events] == [("Invalid", True)]
    assert not world.group().events


@pytest.mark.parametrize(
    ("masters", "node", "state"), [((), "", "NoMaster"), (("n2",), "n2", "MASTER"), (("n1", "n2"), "", "SplitBrain")]
)
def test_the_groups_own_vips_show_their_owner(masters: tuple[str, ...], node: str, state: str) -> None:
    """Who holds spec.virtualIPs, by the agents' words."""
    world = settled(build.group(virtual_ips=[GroupVirtualIP(address="192.0.2.200/24")]))
    world.observed = seen(**{name: running("h", "192.0.2.200", master=name in masters) for name in ("n1", "n2")})
    world.settle(Key(Kind.GROUP, GROUP))
    (own,) = world.snapshot.groups[GROUP].status.virtual_ips or ()
    assert (own.address, own.node, own.state) == ("192.0.2.200", node, state)


def test_others_conditions_and_times_stay() -> None:
    """A condition of another writer is kept, and a time changes only with its status."""
    world = settled(build.group())
    first = {each.type: each.last_transition_time for each in world.snapshot.groups[GROUP].status.conditions or ()}
    world.later(3600)
    world.snapshot.put(serving(WEB, "192.0.2.130"))
    world.settle(Key(Kind.GROUP, GROUP))
    last = {each.type: each.last_transition_time for each in world.snapshot.groups[GROUP].status.conditions or ()}
    assert first == last


# --- what the probe is told -------------------------------------------------------------------------------------------
def test_the_probe_is_aimed_at_every_node_with_an_address() -> None:
    """Host and port of each agent, IPv6 in brackets, and the hash that they should run."""
    world = settled(build.group(), build.node("n3", "2001:db8::3"), build.node("n4"))
    target = world.group().target
    assert target is not None
    assert dict(target.hosts) == {"n1": "192.0.2.11", "n2": "192.0.2.12", "n3": "[2001:db8::3]"}
    assert (target.port, target.config_hash) == (9650, world.snapshot.groups[GROUP].status.config_hash)
    assert json.loads((world.objects.configmaps[GROUP].data or {})[names.AGENT_KEY])["configHash"] == target.config_hash


def test_the_status_write_names_what_it_was_decided_on() -> None:
    """Group status is written under the resourceVersion of the Snapshot."""
    plan = plan_group(cluster(build.group()), GROUP, now=NOW)
    (write,) = [each for each in plan.writes if isinstance(each, StatusPatch)]
    assert write.body["metadata"] == {"resourceVersion": "1"}
    assert Reason.ACCEPTED in {each["reason"] for each in write.body["status"]["conditions"]}
