"""Whether keepalived-operator still runs, told by its Deployment and by its Lease."""

import pytest

from kavip import names
from kavip.api.lease import Lease, LeaseSpec
from kavip.api.workload import Deployment, DeploymentSpec, DeploymentStatus
from kavip.reconcile.group.inactive import plan_while_operator_runs
from kavip.reconcile.observed.operator import DURATION, OperatorWatch, WritesBlocked
from kavip.reconcile.plan import GroupPlan
from tests.reconcile.scenes import GROUP, NOW, World, body_of, cluster
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
    """What is known after *objects* came at their times."""
    rivals = OperatorWatch()
    for at, obj in objects:
        rivals.see(None, obj, at=at)
    return rivals


def test_without_lease_and_deployment_nothing_is_in_the_way() -> None:
    """A cluster that never had the operator."""
    assert OperatorWatch().hindrance(0.0) is None


def test_a_lease_is_watched_for_its_duration_before_anything_is_said() -> None:
    """One that its holder left behind is not renewed; until that is known kavip neither writes nor accuses."""
    rivals = seen((100.0, lease("t1")))
    assert rivals.hindrance(100.0) == WritesBlocked(())
    assert rivals.hindrance(115.0) == WritesBlocked(())
    assert rivals.hindrance(115.1) is None


def test_a_lease_that_is_renewed_is_held() -> None:
    """Each renewal counts from when it was seen, whatever time stands in it."""
    rivals = seen((100.0, lease("2031-01-01T00:00:00Z")), (110.0, lease("1999-01-01T00:00:00Z")))
    hindrance = rivals.hindrance(125.0)
    assert hindrance is not None
    assert hindrance.who == (f"Lease {KEY}, which pod-1 renews",)
    assert rivals.hindrance(125.1) is None


def test_a_write_that_is_no_renewal_does_not_count() -> None:
    """A label on the Lease keeps nobody alive."""
    rivals = seen((100.0, lease("t1")), (114.0, lease("t1")))
    assert rivals.hindrance(115.1) is None


@pytest.mark.parametrize(("seconds", "lasts"), [(None, DURATION), (4, 4)])
def test_a_lease_lasts_as_long_as_it_says(seconds: int | None, lasts: int) -> None:
    """And for a default where it does not say."""
    rivals = seen((0.0, lease("t1", seconds=seconds)))
    assert (rivals.hindrance(lasts), rivals.hindrance(lasts + 0.1)) == (WritesBlocked(()), None)


def test_a_lease_that_was_given_up_is_nobodys() -> None:
    """An empty holder, or no Lease any more."""
    assert seen((0.0, lease("t1", holder=""))).hindrance(0.0) is None
    rivals = seen((0.0, lease("t1")))
    rivals.see(lease("t1"), None, at=1.0)
    assert rivals.hindrance(1.0) is None


def test_what_could_not_be_watched_is_no_silence() -> None:
    """While the watch is broken a Lease that was held stays so; one that had run out does not come back."""
    rivals = seen((0.0, lease("t1")), (2.0, lease("t2")))
    for at in (10.0, 20.0, 30.0):
        rivals.blink(at=at)
    assert rivals.hindrance(44.0) is not None
    assert rivals.hindrance(46.0) is None
    rivals.blink(at=46.0)
    assert rivals.hindrance(46.0) is None


@pytest.mark.parametrize(("replicas", "left", "runs"), [(1, 1, True), (1, 0, True), (0, 1, True), (0, 0, False)])
def test_a_deployment_runs_while_it_has_or_wants_pods(replicas: int, left: int, runs: bool) -> None:
    """Scaled to zero it runs until its last pod is gone."""
    hindrance = seen((0.0, deployment(replicas, left=left))).hindrance(0.0)
    assert hindrance == (WritesBlocked(("Deployment old/keepalived-operator",)) if runs else None)


def test_a_deployment_that_is_deleted_is_gone() -> None:
    """Nothing is in the way any more."""
    rivals = seen((0.0, deployment(1)))
    rivals.see(deployment(1), None, at=1.0)
    assert rivals.hindrance(1.0) is None


def test_groups_say_who_is_in_the_way() -> None:
    """One write per group, with the object and the next step; the other conditions stay the operator's."""
    world = World(cluster(build.group(), build.service("shop/web", group=GROUP), build.pool()))
    hindrance = WritesBlocked(("Deployment old/keepalived-operator",))
    plan = plan_while_operator_runs(world.snapshot, GROUP, hindrance, now=NOW)
    (condition,) = body_of(plan)["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        names.Condition.ACCEPTED,
        "False",
        "OldOperatorRunning",
    )
    assert "Deployment old/keepalived-operator" in condition["message"]
    assert "scale its Deployment to 0" in condition["message"]
    assert len(plan.writes) == 1


@pytest.mark.parametrize(
    ("key", "hindrance"),
    [
        ("lb/gone", WritesBlocked(("Deployment old/x",))),
        (GROUP, WritesBlocked()),
    ],
)
def test_nothing_else_is_written(key: str, hindrance: WritesBlocked) -> None:
    """A group gets no condition before it is known whether keepalived-operator runs."""
    snapshot = cluster(build.group(), build.service("shop/web", group=GROUP), build.pool())
    assert plan_while_operator_runs(snapshot, key, hindrance, now=NOW) == GroupPlan()
