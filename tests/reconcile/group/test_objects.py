"""The objects of a group: foreign ones, which are applied, and which pods are annotated."""

import json
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.meta import Metadata, OwnerReference
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.observed.records import RECHECK, ObjectConflict, RejectedObject
from kavip.reconcile.plan import Apply, Key, KeyKind
from tests.reconcile.group.settledgroup import (
    ACCEPTED,
    WEB,
    applied_kinds,
    condition,
    serving,
    settled,
)
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster
from tests.support import build


# --- objects of others, drift -----------------------------------------------------------------------------------------
def owned_by(kind: str, name: str, uid: str) -> Metadata:
    """Metadata of an object of the group's name that another object controls."""
    owner = OwnerReference(api_version="v1", kind=kind, name=name, uid=uid, controller=True)
    return Metadata(name="edge", namespace="lb", labels={names.GROUP_LABEL: "edge"}, owner_references=[owner])


def test_an_object_of_another_owner_is_not_overwritten() -> None:
    """kavip does not write the DaemonSet either, and the condition names the owner."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    simulation.objects.configmaps[GROUP] = ConfigMap(metadata=owned_by("Deployment", "shop", "uid-of-another"), data={})
    plan = simulation.group()
    assert not applied_kinds(plan)
    assert condition(simulation, ACCEPTED) == (
        "False",
        "ObjectConflict",
        "ConfigMap lb/edge is controlled by Deployment shop (uid uid-of-another): delete it, or rename the group",
    )
    assert condition(simulation, names.ConditionType.RECONCILE_ERROR)[:2] == ("True", "LastReconcileCycleFailed")
    assert condition(simulation, names.ConditionType.RECONCILE_SUCCESS)[:2] == ("False", "LastReconcileCycleSucceded")


def test_objects_of_keepalived_operator_are_left_alone() -> None:
    """kavip does not apply its objects over those that keepalived-operator made for the same group."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    metadata = owned_by("KeepalivedGroup", "edge", f"uid-{GROUP}")
    simulation.objects.configmaps[GROUP] = ConfigMap(metadata=metadata, data={names.CONFIG_KEY: "old"})
    assert not applied_kinds(simulation.group())
    assert condition(simulation, ACCEPTED)[:2] == ("False", "OldOperatorRunning")


def test_a_foreign_object_outside_the_cache_is_checked_again_later() -> None:
    """The writer found an object without the label. The group tries again after a minute."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    simulation.records.conflicts[f"DaemonSet {GROUP}"] = ObjectConflict(
        OwnerConflict("without a controlling owner"), NOW
    )
    plan = simulation.group()
    assert not applied_kinds(plan)
    assert plan.requeue_after == RECHECK
    assert condition(simulation, ACCEPTED)[1] == "ObjectConflict"
    simulation.later(RECHECK)
    assert applied_kinds(simulation.group()) == ["ConfigMap", "DaemonSet"]
    assert condition(simulation, ACCEPTED)[1] == "Accepted"


def test_a_rejected_body_is_not_sent_again_at_once() -> None:
    """The condition has the API server's message. A different body is tried at once."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    body = next(each for each in simulation.plan_group().writes if isinstance(each, Apply)).body
    simulation.records.rejected[f"ConfigMap {GROUP}"] = RejectedObject(digest(body), "exceeded quota", NOW)
    assert not applied_kinds(simulation.group())
    assert condition(simulation, ACCEPTED) == (
        "False",
        "Invalid",
        "the API server refuses ConfigMap lb/edge: exceeded quota",
    )
    simulation.records.rejected[f"ConfigMap {GROUP}"] = RejectedObject("another", "exceeded quota", NOW)
    assert applied_kinds(simulation.group()) == ["ConfigMap", "DaemonSet"]


def test_drift_is_corrected() -> None:
    """An object that another client deleted or edited is applied again, and no other."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"))
    del simulation.objects.daemonsets[GROUP]
    assert applied_kinds(simulation.group()) == ["DaemonSet"]
    edited = simulation.objects.daemonsets[GROUP]
    metadata = msgspec.structs.replace(edited.metadata, generation=edited.metadata.generation + 1)
    simulation.objects.daemonsets[GROUP] = DaemonSet(metadata=metadata, spec=edited.spec)
    assert applied_kinds(simulation.group()) == ["DaemonSet"]
    changed = {**(simulation.objects.configmaps[GROUP].data or {}), names.CONFIG_KEY: "edited\n"}
    simulation.objects.configmaps[GROUP] = msgspec.structs.replace(simulation.objects.configmaps[GROUP], data=changed)
    assert applied_kinds(simulation.group()) == ["ConfigMap"]
    assert not simulation.group().writes


def test_keys_of_other_programs_in_the_config_map_stay() -> None:
    """Keys of other programs stay, because apply does not remove them. kavip's own old keys are removed."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.200"))
    there = simulation.objects.configmaps[GROUP]
    more = {**(there.data or {}), "note": "theirs"}
    simulation.objects.configmaps[GROUP] = msgspec.structs.replace(there, data=more, binary_data={"logo": "AA=="})
    assert applied_kinds(simulation.group()) == []
    left = {**more, names.TAKE_OVER_KEY: "old"}
    simulation.objects.configmaps[GROUP] = msgspec.structs.replace(there, data=left)
    assert applied_kinds(simulation.group()) == ["ConfigMap"]
    simulation.objects.configmaps[GROUP] = msgspec.structs.replace(there, binary_data={names.NEXT_KEY: "AA=="})
    assert applied_kinds(simulation.group()) == ["ConfigMap"]


def test_a_cache_that_lags_behind_our_own_apply_is_no_drift() -> None:
    """The recorded generation is newer than the one in the cache."""
    simulation = settled(build.group())
    old = simulation.objects.daemonsets[GROUP]
    metadata = msgspec.structs.replace(old.metadata, generation=old.metadata.generation - 1)
    simulation.objects.daemonsets[GROUP] = DaemonSet(metadata=metadata, spec=old.spec)
    assert not applied_kinds(simulation.group())


# --- the interfaces of a group without VIPs -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("spec", "interfaces"),
    [
        ({"interface": "vlan20"}, ["vlan20"]),
        ({"interface": "vlan20", "vrrp_interface": "eth0"}, ["eth0", "vlan20"]),
        ({"interface": "vlan20", "interface_from_ip": "192.0.2.1"}, None),
    ],
)
def test_agents_learn_the_interfaces_of_a_group_without_vips(
    spec: dict[str, Any], interfaces: list[str] | None
) -> None:
    """Only then: the configuration of a group with VIPs names them, and so does not change at an upgrade."""
    simulation = settled(build.group(**spec))
    applied = simulation.records.applied[f"{names.DAEMON_SET} {GROUP}"]
    assert agent_json(simulation).get("interfaces") == interfaces
    simulation.snapshot.put(serving(WEB, "192.0.2.200"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert "interfaces" not in agent_json(simulation)
    simulation.snapshot.drop(names.SERVICE, WEB)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert agent_json(simulation).get("interfaces") == interfaces
    assert simulation.records.applied[f"{names.DAEMON_SET} {GROUP}"] == applied


def agent_json(simulation: SimulatedCluster) -> dict[str, Any]:
    """What the ConfigMap of the group tells agents."""
    found: dict[str, Any] = json.loads((simulation.objects.configmaps[GROUP].data or {})[names.AGENT_KEY])
    return found
