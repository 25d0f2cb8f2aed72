"""What the API server refuses, and what the lists of the administrator do not have, stands in the conditions."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.observed.records import RECHECK, RejectedObject
from kavip.reconcile.plan import Apply, PodAnnotation, PodRemoval, ReconcileOptions
from tests.reconcile.group.settledgroup import (
    ACCEPTED,
    PROGRAMMED,
    WEB,
    applied_kinds,
    condition,
    serving,
    settled,
    with_pods,
)
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster, pod
from tests.reconcile.takeover.oldinstallation import old_installation
from tests.support import build

LISTS = ReconcileOptions(policy_images=("registry/keepalived:2",), policy_service_accounts=("kavip-node",))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("image", "evil", "spec.image: 'evil': want an image of the chart value policies.images, or none"),
        ("agent_image", "evil", "spec.agentImage: 'evil': want an image of the chart value policies.images, or none"),
        (
            "service_account_name",
            "admin",
            "spec.serviceAccountName: 'admin': want an account of the chart value policies.serviceAccounts, or none",
        ),
    ],
)
def test_a_group_outside_the_lists_is_not_written(field: str, value: str, message: str) -> None:
    """Its objects stay as they are, and Accepted names field, value and chart value."""
    simulation = settled(build.group(), serving(WEB, "192.0.2.130"))
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, **{field: value})
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    simulation.options = LISTS
    assert not applied_kinds(simulation.group())
    assert condition(simulation, ACCEPTED) == ("False", "Invalid", message)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"image": names.DEFAULT_IMAGE, "agent_image": LISTS.image},
        {"image": "registry/keepalived:2", "service_account_name": "kavip-node"},
        {"service_account_name": "default"},
    ],
)
def test_a_group_inside_the_lists_is_written(fields: dict[str, Any]) -> None:
    """kavip's own image and the default account need not be listed."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650, **fields)))
    simulation.options = LISTS
    assert applied_kinds(simulation.group()) == ["ConfigMap", "DaemonSet"]


def test_a_refused_object_is_tried_again_after_longer_and_longer_times() -> None:
    """The delay is a second at first, and a minute at most."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    body = next(each for each in simulation.plan_group().writes if isinstance(each, Apply)).body
    for times, delay in ((1, 1.0), (2, 2.0), (6, 32.0), (7, RECHECK), (1000, RECHECK)):
        simulation.records.rejected[f"ConfigMap {GROUP}"] = RejectedObject(digest(body), "no", simulation.now, times)
        plan = simulation.group()
        assert (applied_kinds(plan), plan.requeue_after) == ([], delay)
    simulation.later(RECHECK)
    assert applied_kinds(simulation.group()) == ["ConfigMap", "DaemonSet"]


def test_a_refused_annotation_stands_in_accepted() -> None:
    """The group stays accepted, and its pods are annotated again later, or with another configuration."""
    simulation = with_pods(settled(build.group(), serving(WEB, "192.0.2.130")), pod("edge-1", "n1"))
    (write,) = [each for each in simulation.plan_group().writes if isinstance(each, PodAnnotation)]
    assert write.group == GROUP
    simulation.records.pods[GROUP] = RejectedObject(write.value, "lb/edge-1: denied by a policy", NOW)
    plan = simulation.group()
    assert not [each for each in plan.writes if isinstance(each, PodAnnotation)]
    assert plan.requeue_after == 1.0
    told = "the API server refuses their annotation: lb/edge-1: denied by a policy"
    assert condition(simulation, ACCEPTED) == (
        "True",
        "Accepted",
        f"the group is served, but its pods read changes up to two minutes late: {told}",
    )
    simulation.records.pods[GROUP] = RejectedObject("another", "lb/edge-1: denied by a policy", NOW)
    assert [each for each in simulation.group().writes if isinstance(each, PodAnnotation)]
    assert condition(simulation, ACCEPTED)[2] == "the group is served"


def test_a_refused_deletion_stands_in_programmed() -> None:
    """A take-over names the pod that the API server does not let it delete, and tries again later."""
    simulation = old_installation("n3")
    simulation.group()
    (write,) = [each for each in simulation.plan_group().writes if isinstance(each, PodRemoval)]
    simulation.records.pods[GROUP] = RejectedObject(write.uid, f"{write.key}: denied by a policy", simulation.now)
    plan = simulation.group()
    assert not [each for each in plan.writes if isinstance(each, PodRemoval)]
    assert plan.requeue_after == 1.0
    told = f"the API server refuses to delete a pod: {write.key}: denied by a policy"
    assert told in condition(simulation, PROGRAMMED)[2]
    simulation.later(2)
    assert [each for each in simulation.group().writes if isinstance(each, PodRemoval)]
