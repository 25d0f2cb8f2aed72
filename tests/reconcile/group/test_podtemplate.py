"""The DaemonSet of a group with a template of its pods, and what a template that cannot be used stops."""

from typing import Any

import msgspec
import pytest

from kavip.api.group import KeepalivedGroup
from kavip.podtemplate.defaulttemplate import NO_TEMPLATE, DefaultTemplate, read
from kavip.podtemplate.permissions import ALL_PERMITTED, NOTHING_PERMITTED
from kavip.reconcile.group.manifests import daemon_set
from kavip.reconcile.group.podtemplate import patched_daemon_set
from kavip.reconcile.plan import Apply, ReconcileOptions
from tests.reconcile.group.settledgroup import ACCEPTED, WEB, applied_kinds, condition, serving, settled
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

PERMITTED = ReconcileOptions(templates=ALL_PERMITTED)
SIDECAR = {"name": "x", "image": "x:1"}
PATCH = {"spec": {"containers": [SIDECAR]}}
BAD = {"spec": {"hostNetwork": False}}
FILE = "/templates/x.yaml"


def templated(patch: dict[str, Any] | None = None, **spec: Any) -> KeepalivedGroup:
    """A group with *patch*."""
    return build.group(metrics_port=9650, pod_template=patch, **spec)


def daemonset_of(simulation: SimulatedCluster) -> Any:
    """The pod that the plan applies."""
    (body,) = [
        each.body for each in simulation.plan_group().writes if isinstance(each, Apply) and each.kind == "DaemonSet"
    ]
    return body["spec"]["template"]["spec"]


def file(text: str) -> DefaultTemplate:
    """The template of a file with *text*."""
    return read(FILE, text.encode())


def test_a_group_without_a_template_keeps_its_daemonset() -> None:
    """It is the very object that kavip makes, so an upgrade changes no byte of it."""
    body = daemon_set(templated(), image="kavip:1", port=9650)
    assert patched_daemon_set(templated(), body, NO_TEMPLATE, PERMITTED).body is body


def test_a_template_changes_the_daemonset() -> None:
    """The sidecar is in the pod, and the group is accepted."""
    simulation = SimulatedCluster(cluster(templated(PATCH)), options=PERMITTED)
    assert [each["name"] for each in daemonset_of(simulation)["containers"]] == ["x", "keepalived", "agent"]
    simulation.group()
    assert condition(simulation, ACCEPTED)[:2] == ("True", "Accepted")


def test_the_file_comes_before_the_template_of_the_group() -> None:
    """Both apply, and the group's own decides."""
    given = file("spec: {priorityClassName: a, terminationGracePeriodSeconds: 40}")
    body = daemon_set(templated(), image="kavip:1", port=9650)
    group = templated({"spec": {"priorityClassName": "b"}})
    patched = patched_daemon_set(group, body, given, PERMITTED)
    assert patched.body
    pod = patched.body["spec"]["template"]["spec"]
    assert (pod["priorityClassName"], pod["terminationGracePeriodSeconds"]) == ("b", 40)


@pytest.mark.parametrize(
    ("patch", "options", "message"),
    [
        (BAD, PERMITTED, "spec.podTemplate.spec.hostNetwork: False: want only "),
        (
            PATCH,
            ReconcileOptions(templates=NOTHING_PERMITTED),
            "spec.podTemplate: the chart value templates.namespaces ",
        ),
        (
            PATCH,
            ReconcileOptions(templates=ALL_PERMITTED, policy_images=("y",)),
            "spec.podTemplate.spec.containers[x].image: 'x:1': want an image of the chart value policies.images",
        ),
    ],
)
def test_a_template_that_cannot_be_used_stops_the_daemonset_alone(
    patch: dict[str, Any], options: ReconcileOptions, message: str
) -> None:
    """The DaemonSet stays as it is, new Services get their VIPs, and Accepted says what to change."""
    simulation = settled(templated(), serving(WEB, "192.0.2.130"))
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, pod_template=patch)
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    simulation.snapshot.put(serving("shop/new", "192.0.2.131"))
    simulation.options = options
    assert [kind for _ in range(3) for kind in applied_kinds(simulation.group())] == ["ConfigMap"]
    assert "192.0.2.131" in simulation.text()
    status, reason, text = condition(simulation, ACCEPTED)
    assert (status, reason) == ("False", "Invalid")
    assert text.startswith(message)


def test_a_file_that_cannot_be_used_stops_the_daemonset_alone() -> None:
    """The condition names line and column, of a fault in the form and of one in the outcome."""
    for text, message in (
        ("spec: [", "/templates/x.yaml: line 1, column 1: not YAML"),
        ("spec:\n  hostPID: true\n", "/templates/x.yaml: line 2, column 3: spec.hostPID: True: want only"),
    ):
        simulation = SimulatedCluster(cluster(templated()), template=file(text))
        assert applied_kinds(simulation.group()) == ["ConfigMap"]
        assert condition(simulation, ACCEPTED)[2].startswith(message)


def test_a_repaired_template_is_applied() -> None:
    """The next plan applies the DaemonSet."""
    simulation = SimulatedCluster(cluster(templated()), template=file("spec: ["))
    simulation.group()
    simulation.template = file("spec: {priorityClassName: a}")
    assert daemonset_of(simulation)["priorityClassName"] == "a"
