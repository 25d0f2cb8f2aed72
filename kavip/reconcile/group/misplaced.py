"""
The plan of a group in a namespace where groups do not count (setting ``group_namespaces``).

Its pods, if it ever had any, go on and hold their VIPs: its conditions say where, and how that ends.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from kavip.api import conditions
from kavip.api.cluster import Pod
from kavip.api.group import KeepalivedGroup
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.group.inactive import plan_aside
from kavip.reconcile.plan import GroupPlan, Verdict
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot

_OTHERS: Final = (ConditionType.PROGRAMMED, ConditionType.READY)


def plan_misplaced(snapshot: Snapshot, group: KeepalivedGroup, pods: Iterable[Pod], *, now: datetime) -> GroupPlan:
    """
    Tell a group where groups do not count that it does not, and what its *pods* still do.

    What kavip said of it while it counted would stand for ever: those conditions say the same now.
    """
    stale = [kind for kind in _OTHERS if conditions.find(group.status.conditions, kind)]
    return plan_aside(group, misplaced(snapshot, group, pods), now=now, also=stale)


def misplaced(snapshot: Snapshot, group: KeepalivedGroup, pods: Iterable[Pod]) -> Verdict:
    """What is said of a group in a namespace where groups do not count."""
    homes = ", ".join(sorted(snapshot.group_namespaces))
    namespace, nodes = group.metadata.namespace, sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    message = f"groups count only in namespace {homes} (chart value groupNamespaces): "
    if nodes:
        message += (
            f"its pods still run on {few(nodes)} and hold VIPs that kavip may give to others: delete this group, its "
            f"pods go with it, and create it there; or add {namespace} to the value again"
        )
    else:
        message += "create it there"
    return Verdict("False", Reason.INVALID, f"metadata.namespace {namespace}: {message}")
