"""The objects for Prometheus exist where its operator is installed, and never stop a group."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.meta import Metadata, OwnerReference
from kavip.api.workload import PodMonitor, Role
from kavip.reconcile.group.manifests import digest, monitoring
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.observed.records import ObjectConflict, Records, RejectedObject
from kavip.reconcile.plan import Apply, Key, KeyKind, ReconcileOptions
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster
from tests.support import build

ROLE = f"{GROUP}-prometheus-k8s"
KINDS = ["PodMonitor", "Role", "RoleBinding"]


def applied_kinds(simulation: SimulatedCluster) -> list[str]:
    """The kinds that the group's next plan applies. The plan is carried out."""
    return [write.kind for write in simulation.group().writes if isinstance(write, Apply)]


def served(*, monitors: bool = True) -> SimulatedCluster:
    """A group with ConfigMap and DaemonSet, in a cluster with or without the kind PodMonitor."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    simulation.objects.has_pod_monitors = monitors
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def accepted(simulation: SimulatedCluster) -> tuple[str, str, str]:
    """Status, reason and message of Accepted."""
    found = next(each for each in simulation.snapshot.groups[GROUP].status.conditions or () if each.type == "Accepted")
    return found.status, found.reason, found.message


def test_they_are_applied_once_the_kind_exists() -> None:
    """PodMonitor, Role and RoleBinding are applied once the cluster has the kind PodMonitor."""
    simulation = served(monitors=False)
    assert not simulation.objects.monitoring
    simulation.objects.has_pod_monitors = True
    assert applied_kinds(simulation) == KINDS
    assert not simulation.group().writes
    assert sorted(simulation.objects.monitoring) == [f"PodMonitor {GROUP}", f"Role {ROLE}", f"RoleBinding {ROLE}"]


def test_they_are_what_keepalived_operator_made() -> None:
    """Labels, port name, rules and subject are those of keepalived-operator."""
    monitor, role, binding = monitoring(build.group(), account=ReconcileOptions().prometheus_account)
    assert monitor["metadata"]["name"] == "edge"
    assert monitor["metadata"]["labels"] == {"keepalivedGroup": "edge", "metrics": "keepalived"}
    assert monitor["spec"] == {
        "selector": {"matchLabels": {"keepalivedGroup": "edge"}},
        "podMetricsEndpoints": [{"port": "metrics"}],
    }
    (rule,) = role["rules"]
    assert (rule["resources"], rule["verbs"]) == (["endpoints", "pods", "services"], ["get", "list", "watch"])
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "edge-prometheus-k8s"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "openshift-monitoring"}
    ]
    owners = {each["metadata"]["ownerReferences"][0]["uid"] for each in (monitor, role, binding)}
    assert owners == {f"uid-{GROUP}"}


def test_another_prometheus_is_named_by_a_setting() -> None:
    """A changed account changes the RoleBinding alone."""
    simulation = served()
    simulation.options = ReconcileOptions(prometheus_account="monitoring/prometheus")
    assert applied_kinds(simulation) == ["RoleBinding"]


def test_edited_objects_are_applied_again() -> None:
    """A Role with more verbs, and a PodMonitor with a newer generation, are applied again."""
    simulation = served()
    role = simulation.objects.monitoring[f"Role {ROLE}"]
    assert isinstance(role, Role)
    (rule,) = role.rules or []
    wide = msgspec.structs.replace(rule, verbs=["*"])
    simulation.objects.monitoring[f"Role {ROLE}"] = msgspec.structs.replace(role, rules=[wide])
    assert applied_kinds(simulation) == ["Role"]
    monitor = simulation.objects.monitoring[f"PodMonitor {GROUP}"]
    metadata = msgspec.structs.replace(monitor.metadata, generation=monitor.metadata.generation + 1)
    simulation.objects.monitoring[f"PodMonitor {GROUP}"] = PodMonitor(metadata=metadata)
    assert applied_kinds(simulation) == ["PodMonitor"]
    del simulation.objects.monitoring[f"RoleBinding {ROLE}"]
    assert applied_kinds(simulation) == ["RoleBinding"]


@pytest.mark.parametrize("seen", [True, False], ids=["labelled", "found by the writer"])
def test_an_object_of_another_program_is_left_alone_and_reported(seen: bool) -> None:
    """None of the three is written, and the condition names the object. The VIPs are served."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    simulation.objects.has_pod_monitors = True
    if seen:
        owner = OwnerReference(api_version="v1", kind="Deployment", name="shop", uid="another", controller=True)
        metadata = Metadata(name="edge", namespace="lb", labels={names.GROUP_LABEL: "edge"}, owner_references=[owner])
        simulation.objects.store(None, PodMonitor(metadata=metadata))
    else:
        simulation.records.conflicts[f"PodMonitor {GROUP}"] = ObjectConflict(
            OwnerConflict("without a controlling owner"), NOW
        )
    plan = simulation.group()
    assert [write.kind for write in plan.writes if isinstance(write, Apply)] == ["ConfigMap", "DaemonSet"]
    assert accepted(simulation)[:2] == ("False", "ObjectConflict")
    assert f"PodMonitor {GROUP} is" in accepted(simulation)[2]
    assert plan.requeue_after is not None


def test_a_rejected_object_costs_only_the_metrics() -> None:
    """Without the right to create them, the group is served and reports what the API server refused."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    simulation.objects.has_pod_monitors = True
    role = monitoring(build.group(metrics_port=9650), account=ReconcileOptions().prometheus_account)[1]
    simulation.records.rejected[f"Role {ROLE}"] = RejectedObject(
        digest(role), "attempting to grant extra privileges", NOW
    )
    assert applied_kinds(simulation) == ["ConfigMap", "DaemonSet"]
    status, reason, message = accepted(simulation)
    assert (status, reason) == ("True", "Accepted")
    assert f"the API server refuses Role {ROLE}: attempting to grant" in message


def test_records_of_a_group_are_forgotten_with_it() -> None:
    """A new group of the same name starts without records."""
    records = Records()
    memories: tuple[dict[str, Any], ...] = (records.applied, records.conflicts, records.rejected)
    for memory in memories:
        memory.update({f"Role {ROLE}": None, f"Role lb/other{names.PROMETHEUS_ROLE_SUFFIX}": None})
    records.forget_group(GROUP)
    assert all(len(memory) == 1 for memory in memories)
