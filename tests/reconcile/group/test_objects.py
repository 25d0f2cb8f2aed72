"""The objects of a group: whose they are, when they are applied, and what pods are told of them."""

import msgspec

from kavip import names
from kavip.api.meta import Metadata, OwnerReference
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.reconcile.group.existing import RECHECK
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.observed.records import ObjectConflict, RejectedObject
from kavip.reconcile.plan import Apply
from tests.reconcile.group.grouping import ACCEPTED, WEB, applied, condition, serving, settled, told, with_pods
from tests.reconcile.scenes import GROUP, NOW, World, cluster, pod
from tests.support import build


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
    world.records.conflicts[f"DaemonSet {GROUP}"] = ObjectConflict(
        OwnerConflict("nobody's: it has no controlling owner"), NOW
    )
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
    body = next(each for each in world.plan_group().writes if isinstance(each, Apply)).body
    world.records.rejected[f"ConfigMap {GROUP}"] = RejectedObject(digest(body), "exceeded quota", NOW)
    assert not applied(world.group())
    assert condition(world, ACCEPTED) == (
        "False",
        "Invalid",
        "the API server refuses ConfigMap lb/edge: exceeded quota",
    )
    world.records.rejected[f"ConfigMap {GROUP}"] = RejectedObject("another", "exceeded quota", NOW)
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


def test_what_others_add_is_written_over_and_over_by_nobody() -> None:
    """It stays, for apply takes nothing away that is not kavip's; its own old keys go."""
    world = settled(build.group(), serving(WEB, "192.0.2.200"))
    there = world.objects.configmaps[GROUP]
    more = {**(there.data or {}), "note": "theirs"}
    world.objects.configmaps[GROUP] = msgspec.structs.replace(there, data=more, binary_data={"logo": "AA=="})
    assert applied(world.group()) == []
    left = {**more, names.TAKE_OVER_KEY: "old"}
    world.objects.configmaps[GROUP] = msgspec.structs.replace(there, data=left)
    assert applied(world.group()) == ["ConfigMap"]
    world.objects.configmaps[GROUP] = msgspec.structs.replace(there, binary_data={names.NEXT_KEY: "AA=="})
    assert applied(world.group()) == ["ConfigMap"]


def test_a_cache_that_lags_behind_our_own_apply_is_no_drift() -> None:
    """The generation that we know is newer than the one that the cache shows."""
    world = settled(build.group())
    old = world.objects.daemonsets[GROUP]
    metadata = msgspec.structs.replace(old.metadata, generation=old.metadata.generation - 1)
    world.objects.daemonsets[GROUP] = DaemonSet(metadata=metadata, spec=old.spec)
    assert not applied(world.group())


# --- pods -------------------------------------------------------------------------------------------------------------
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
