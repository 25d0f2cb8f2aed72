"""What pods are told while they wait for their password."""

from kavip.api.agent import ProblemCode
from kavip.reconcile.group.objects import NUDGE
from kavip.reconcile.plan import Key, KeyKind, PodAnnotation
from tests.reconcile.scenes import GROUP, World, cluster, pod, running, seen
from tests.support import build


def told(world: World) -> set[str]:
    """What the pods are told next; it is done."""
    return {write.value for write in world.group().writes if isinstance(write, PodAnnotation)}


def test_pods_without_their_password_are_nudged_until_they_have_it() -> None:
    """Every ten seconds kubelet is made to look at the Secret again; afterwards the annotation is as it was."""
    world = World(cluster(build.group()))
    world.objects.pods[GROUP] = {"lb/p1": pod("p1", "n1")}
    world.settle(Key(KeyKind.GROUP, GROUP))
    plain = world.objects.pods[GROUP]["lb/p1"].metadata.annotation("kavip.io/config-hash")
    world.agents = seen(n1=running("old", refused="no password", code=ProblemCode.PASSWORD_MISSING))
    plan = world.group()
    assert plan.requeue_after == NUDGE
    first = world.objects.pods[GROUP]["lb/p1"].metadata.annotation("kavip.io/config-hash")
    assert first.startswith(f"{plain}-")
    assert told(world) == set()
    world.later(NUDGE)
    (second,) = told(world)
    assert second != first
    world.agents = seen(n1=running("new"))
    assert told(world) == {plain}
    assert told(world) == set()
