"""A DaemonSet without pods: the group reports the cause, with the words of its Event."""

import pytest

from kavip.api.event import Event, ObjectReference
from kavip.api.meta import Metadata
from kavip.reconcile.plan import Key, KeyKind
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build

REFUSED = (
    'Error creating: pods "edge-{}" is forbidden: violates PodSecurity "baseline:latest": '
    "host namespaces (hostNetwork=true)"
)
AGAIN = (
    "; Kubernetes retries at growing intervals, and at once after: "
    "kubectl annotate daemonset edge --namespace lb --overwrite retried=$(date +%s)"
)


def event(note: str, *, name: str = "e1", at: str = "2026-03-01T12:00:00Z", uid: str = "uid-DaemonSet") -> Event:
    """An Event of the DaemonSet controller."""
    return Event(
        metadata=Metadata(name=name, namespace="lb", uid=f"uid-{name}"),
        deprecated_last_timestamp=at,
        reason="FailedCreate",
        regarding=ObjectReference(kind="DaemonSet", namespace="lb", name="edge", uid=uid),
        note=note,
    )


def ready(simulation: SimulatedCluster) -> tuple[str, str, str]:
    """Status, reason and message of Ready after all writes."""
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    found = next(each for each in simulation.snapshot.groups[GROUP].status.conditions or () if each.type == "Ready")
    return found.status, found.reason, found.message


@pytest.fixture
def simulation() -> SimulatedCluster:
    """A group on two nodes, without pods."""
    made = SimulatedCluster(cluster(build.group()))
    made.settle(Key(KeyKind.GROUP, GROUP))
    return made


def test_a_pod_security_error_comes_with_the_label_to_set(simulation: SimulatedCluster) -> None:
    """Ready=False has the DaemonSet's error and the remedy, without the pod name, which changes with each attempt."""
    assert simulation.objects.store(None, event(REFUSED.format("x7kq2"))) == (GROUP,)
    status, reason, message = ready(simulation)
    assert (status, reason) == ("False", "PodsNotReady")
    assert message == (
        "0 of 2 pods are ready; waiting for those on n1, n2; the DaemonSet reports: Error creating: pods are "
        'forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true); '
        f"label namespace lb with pod-security.kubernetes.io/enforce=privileged{AGAIN}"
    )
    simulation.objects.store(None, event(REFUSED.format("abcde"), name="e2", at="2026-03-01T12:05:00Z"))
    assert not simulation.group().writes


def test_other_errors_are_reported_as_they_are(simulation: SimulatedCluster) -> None:
    """An error about a quota names no label; the last Event counts."""
    simulation.objects.store(None, event("Error creating: exceeded quota", at="2026-03-01T12:05:00Z"))
    simulation.objects.store(None, event(REFUSED.format("x7kq2"), name="e2"))
    assert ready(simulation)[2].endswith(f"the DaemonSet reports: Error creating: exceeded quota{AGAIN}")


@pytest.mark.parametrize(
    "note",
    [
        'Error creating: Pod "edge-{}" is invalid: spec.containers[0].resources.requests: Invalid value: "32Mi"',
        'Error creating: pods "edge-{}" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1',
    ],
    ids=["limit range", "quota"],
)
def test_the_same_error_is_reported_once(simulation: SimulatedCluster, note: str) -> None:
    """The message is the same for any pod, and for one Event or combined Events."""
    simulation.objects.store(None, event(note.format("x7kq2")))
    assert "x7kq2" not in ready(simulation)[2]
    folded = f"(combined from similar events): {note.format('abcde')}"
    simulation.objects.store(None, event(folded, name="e2", at="2026-03-01T12:05:00Z"))
    assert not simulation.group().writes


def test_an_error_is_over_when_the_pods_exist(simulation: SimulatedCluster) -> None:
    """Events stay for an hour. A pod that exists and is not ready has another cause."""
    simulation.objects.store(None, event("Error creating: exceeded quota"))
    simulation.objects.pods[GROUP] = {each.metadata.key: each for each in (pod("a", "n1"), pod("b", "n2", ready=False))}
    assert ready(simulation)[2] == "1 of 2 pods are ready; waiting for those on n2"


def test_an_error_of_another_daemon_set_does_not_count(simulation: SimulatedCluster) -> None:
    """An Event of an older DaemonSet of that name, and an Event that has expired, do not count."""
    simulation.objects.store(None, event("Error creating: exceeded quota", uid="uid-of-an-older-one"))
    assert "DaemonSet reports" not in ready(simulation)[2]
    simulation.objects.store(None, event("Error creating: exceeded quota", name="e2"))
    simulation.objects.store(event("Error creating: exceeded quota", name="e2"), None)
    assert "DaemonSet reports" not in ready(simulation)[2]
