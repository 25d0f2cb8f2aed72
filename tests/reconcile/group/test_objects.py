"""The objects of a group: foreign ones, which are applied, and which pods are annotated."""

import msgspec

from kavip import names
from kavip.api.agent import ProblemCode
from kavip.api.meta import Metadata, OwnerReference
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.reconcile.group.existing import RECHECK
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.group.objects import NUDGE
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.observed.records import ObjectConflict, RejectedObject
from kavip.reconcile.plan import Apply, Key, KeyKind
from tests.reconcile.group.settledgroup import (
    ACCEPTED,
    WEB,
    annotations,
    applied,
    condition,
    serving,
    settled,
    with_pods,
)
from tests.reconcile.world import GROUP, NOW, World, agent_states, cluster, pod, running
from tests.support import build


# --- objects of others, drift -----------------------------------------------------------------------------------------
def owned_by(kind: str, name: str, uid: str) -> Metadata:
    """Metadata of an object of the group's name that another object controls."""
    owner = OwnerReference(api_version="v1", kind=kind, name=name, uid=uid, controller=True)
    return Metadata(name="edge", namespace="lb", labels={names.GROUP_LABEL: "edge"}, owner_references=[owner])


def test_an_object_of_another_owner_is_not_overwritten() -> None:
    """kavip does not write the DaemonSet either, and the condition names the owner."""
    world = World(cluster(build.group(metrics_port=9650)))
    world.objects.configmaps[GROUP] = ConfigMap(metadata=owned_by("Deployment", "shop", "uid-of-another"), data={})
    plan = world.group()
    assert not applied(plan)
    assert condition(world, ACCEPTED) == (
        "False",
        "ObjectConflict",
        "ConfigMap lb/edge is controlled by Deployment shop (uid uid-of-another): delete it, or rename the group",
    )
    assert condition(world, names.ConditionType.RECONCILE_ERROR)[:2] == ("True", "LastReconcileCycleFailed")
    assert condition(world, names.ConditionType.RECONCILE_SUCCESS)[:2] == ("False", "LastReconcileCycleSucceded")


def test_objects_of_keepalived_operator_are_left_alone() -> None:
    """kavip does not apply its objects over those that keepalived-operator made for the same group."""
    world = World(cluster(build.group(metrics_port=9650)))
    metadata = owned_by("KeepalivedGroup", "edge", f"uid-{GROUP}")
    world.objects.configmaps[GROUP] = ConfigMap(metadata=metadata, data={names.CONFIG_KEY: "old"})
    assert not applied(world.group())
    assert condition(world, ACCEPTED)[:2] == ("False", "OldOperatorRunning")


def test_a_foreign_object_outside_the_cache_is_checked_again_later() -> None:
    """The writer found an object without the label. The group tries again after a minute."""
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


def test_a_rejected_body_is_not_sent_again_at_once() -> None:
    """The condition has the API server's message. A different body is tried at once."""
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


def test_drift_is_corrected() -> None:
    """An object that another client deleted or edited is applied again, and no other."""
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


def test_keys_of_other_programs_in_the_config_map_stay() -> None:
    """Keys of other programs stay, because apply does not remove them. kavip's own old keys are removed."""
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
    """The recorded generation is newer than the one in the cache."""
    world = settled(build.group())
    old = world.objects.daemonsets[GROUP]
    metadata = msgspec.structs.replace(old.metadata, generation=old.metadata.generation - 1)
    world.objects.daemonsets[GROUP] = DaemonSet(metadata=metadata, spec=old.spec)
    assert not applied(world.group())


# --- pods -------------------------------------------------------------------------------------------------------------
def test_pods_are_annotated_for_a_new_configuration() -> None:
    """Each pod is annotated once. A pod with the current annotation is not written."""
    world = with_pods(settled(build.group()), pod("p1", "n1"), pod("p2", "n2"))
    first = world.group()
    assert sorted(annotations(first)) == ["lb/p1", "lb/p2"]
    assert not world.group().writes
    world.snapshot.put(serving(WEB, "192.0.2.130"))
    world.group()
    second = world.group()
    assert applied(second) == ["ConfigMap"]
    assert sorted(annotations(second)) == ["lb/p1", "lb/p2"]
    assert annotations(first)["lb/p1"] != annotations(second)["lb/p1"]


def test_foreign_pods_are_not_annotated() -> None:
    """A pod with the label that the DaemonSet does not control is not annotated."""
    stray = pod("p1", "n1")
    stray = msgspec.structs.replace(stray, metadata=msgspec.structs.replace(stray.metadata, owner_references=None))
    world = with_pods(settled(build.group()), stray)
    assert not annotations(world.group())


def next_values(world: World) -> set[str]:
    """The annotations of the group's next plan, which is carried out."""
    return set(annotations(world.group()).values())


def test_pods_without_a_usable_password_are_annotated_again_until_they_have_it() -> None:
    """The annotation changes every ten seconds, so that kubelet refreshes the Secret; afterwards it is as before."""
    world = with_pods(settled(build.group()), pod("p1", "n1"))
    world.settle(Key(KeyKind.GROUP, GROUP))
    plain = world.objects.pods[GROUP]["lb/p1"].metadata.annotation("kavip.io/config-hash")
    world.agents = agent_states(n1=running("old", refused="no password", code=ProblemCode.PASSWORD_MISSING))
    plan = world.group()
    assert plan.requeue_after == NUDGE
    first = world.objects.pods[GROUP]["lb/p1"].metadata.annotation("kavip.io/config-hash")
    assert first.startswith(f"{plain}-")
    assert next_values(world) == set()
    world.later(NUDGE)
    (second,) = next_values(world)
    assert second != first
    world.agents = agent_states(n1=running("new"))
    assert next_values(world) == {plain}
    assert next_values(world) == set()
