"""Whether keepalived-operator still runs, by its Deployment and its Lease."""

import pytest

from kavip import names
from kavip.api.lease import Lease, LeaseSpec
from kavip.api.workload import Deployment, DeploymentSpec, DeploymentStatus
from kavip.reconcile.group.inactive import plan_while_operator_runs
from kavip.reconcile.observed.operator import DURATION, OperatorWatch, WritesBlocked
from kavip.reconcile.plan import GroupPlan
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, body_of, cluster
from tests.support import build

KEY = "old/03846a46.redhat.io"


def lease(renewed: str, *, holder: str = "pod-1", seconds: int | None = 15) -> Lease:
    """The old operator's Lease."""
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed)
    return Lease(metadata=build.metadata(KEY), spec=spec)


def deployment(replicas: int, *, left: int = 0) -> Deployment:
    """The old operator's Deployment, with *left* pods that still end."""
    return Deployment(
        metadata=build.metadata("old/keepalived-operator"),
        spec=DeploymentSpec(replicas=replicas),
        status=DeploymentStatus(replicas=left),
    )


def seen(*objects: tuple[float, Lease | Deployment]) -> OperatorWatch:
    """The observed state after *objects* arrived at their times."""
    watch = OperatorWatch()
    for at, obj in objects:
        watch.store(None, obj, at=at)
    return watch


def test_without_lease_and_deployment_the_operator_does_not_run() -> None:
    """The cluster never had the operator."""
    assert OperatorWatch().blocked(0.0) is None


def test_the_state_is_unknown_for_the_duration_of_the_lease() -> None:
    """A Lease of a former holder is not renewed. Until this is known, kavip neither writes nor reports the operator."""
    watch = seen((100.0, lease("t1")))
    assert watch.blocked(100.0) == WritesBlocked(())
    assert watch.blocked(115.0) == WritesBlocked(())
    assert watch.blocked(115.1) is None


def test_a_lease_that_is_renewed_is_held() -> None:
    """The time of arrival of a renewal counts, not the time in it."""
    watch = seen((100.0, lease("2031-01-01T00:00:00Z")), (110.0, lease("1999-01-01T00:00:00Z")))
    blocked = watch.blocked(125.0)
    assert blocked is not None
    assert blocked.by == (f"Lease {KEY}, which pod-1 renews",)
    assert watch.blocked(125.1) is None


def test_a_write_that_is_no_renewal_does_not_count() -> None:
    """A label on the Lease does not renew it."""
    watch = seen((100.0, lease("t1")), (114.0, lease("t1")))
    assert watch.blocked(115.1) is None


@pytest.mark.parametrize(("seconds", "lasts"), [(None, DURATION), (4, 4)])
def test_the_duration_in_the_lease_counts(seconds: int | None, lasts: int) -> None:
    """Without a duration the default counts."""
    watch = seen((0.0, lease("t1", seconds=seconds)))
    assert (watch.blocked(lasts), watch.blocked(lasts + 0.1)) == (WritesBlocked(()), None)


def test_a_released_lease_has_no_holder() -> None:
    """An empty holder and a deleted Lease count as released."""
    assert seen((0.0, lease("t1", holder=""))).blocked(0.0) is None
    watch = seen((0.0, lease("t1")))
    watch.store(lease("t1"), None, at=1.0)
    assert watch.blocked(1.0) is None


def test_a_broken_watch_does_not_expire_a_lease() -> None:
    """While the watch is broken a held Lease stays held, and an expired one stays expired."""
    watch = seen((0.0, lease("t1")), (2.0, lease("t2")))
    for at in (10.0, 20.0, 30.0):
        watch.restart_leases(at=at)
    assert watch.blocked(44.0) is not None
    assert watch.blocked(46.0) is None
    watch.restart_leases(at=46.0)
    assert watch.blocked(46.0) is None


@pytest.mark.parametrize(("replicas", "left", "runs"), [(1, 1, True), (1, 0, True), (0, 1, True), (0, 0, False)])
def test_a_deployment_runs_while_it_has_or_wants_pods(replicas: int, left: int, runs: bool) -> None:
    """A Deployment with zero replicas runs until its last pod is gone."""
    blocked = seen((0.0, deployment(replicas, left=left))).blocked(0.0)
    assert blocked == (WritesBlocked(("Deployment old/keepalived-operator",)) if runs else None)


def test_a_deleted_deployment_does_not_count() -> None:
    """After the deletion kavip may begin."""
    watch = seen((0.0, deployment(1)))
    watch.store(deployment(1), None, at=1.0)
    assert watch.blocked(1.0) is None


def test_groups_name_the_operator_object() -> None:
    """One write per group, with the object and the next step. The other conditions stay as the operator wrote them."""
    simulation = SimulatedCluster(cluster(build.group(), build.service("shop/web", group=GROUP), build.pool()))
    blocked = WritesBlocked(("Deployment old/keepalived-operator",))
    plan = plan_while_operator_runs(simulation.snapshot, GROUP, blocked, now=NOW)
    (condition,) = body_of(plan)["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        names.ConditionType.ACCEPTED,
        "False",
        "OldOperatorRunning",
    )
    assert "Deployment old/keepalived-operator" in condition["message"]
    assert "scale its Deployment to 0" in condition["message"]
    assert len(plan.writes) == 1


@pytest.mark.parametrize(
    ("key", "blocked"),
    [
        ("lb/gone", WritesBlocked(("Deployment old/x",))),
        (GROUP, WritesBlocked()),
    ],
)
def test_nothing_else_is_written(key: str, blocked: WritesBlocked) -> None:
    """A group gets no condition before it is known whether keepalived-operator runs."""
    snapshot = cluster(build.group(), build.service("shop/web", group=GROUP), build.pool())
    assert plan_while_operator_runs(snapshot, key, blocked, now=NOW) == GroupPlan()
