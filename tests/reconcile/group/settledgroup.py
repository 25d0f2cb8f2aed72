"""Helpers for tests of a group's plan: a settled group, its plan and its conditions."""

from typing import Any

from kavip import names
from kavip.reconcile.plan import Apply, Key, KeyKind, Plan, PodAnnotation
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

WEB, API = "shop/web", "shop/api"
ACCEPTED, READY, PROGRAMMED = names.ConditionType.ACCEPTED, names.ConditionType.READY, names.ConditionType.PROGRAMMED


def serving(key: str, *vips: str, group: str = GROUP, **more: Any) -> Any:
    """A Service with externalIPs, which are its VIPs without a pool."""
    return build.service(key, group=group, type="ClusterIP", external_ips=list(vips), **more)


def applied_kinds(plan: Plan) -> list[str]:
    """The kinds of object that *plan* writes, in order."""
    return [write.kind for write in plan.writes if isinstance(write, Apply)]


def annotations(plan: Plan) -> dict[str, str]:
    """The annotation that *plan* writes, by pod."""
    return {write.key: write.value for write in plan.writes if isinstance(write, PodAnnotation)}


def condition(simulation: SimulatedCluster, kind: str, key: str = GROUP) -> tuple[str, str, str]:
    """Status, reason and message of a condition of the group."""
    found = next(each for each in simulation.snapshot.groups[key].status.conditions or () if each.type == kind)
    return found.status, found.reason, found.message


def settled(*objects: Any, nodes: int = 2, **more: Any) -> SimulatedCluster:
    """A cluster in which the group's plan has no writes."""
    simulation = SimulatedCluster(cluster(*objects, nodes=nodes), **more)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def with_pods(simulation: SimulatedCluster, *pods: Any) -> SimulatedCluster:
    """*simulation* with pods of the group."""
    simulation.objects.pods[GROUP] = {each.metadata.key: each for each in pods}
    return simulation
