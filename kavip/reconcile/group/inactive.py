"""
The plan of a group that kavip leaves alone: conditions that say why, and nothing else.

What the group's pods run stays as it is, and so do the conditions and the status that others have written.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from kavip.api import conditions
from kavip.api.group import KeepalivedGroup
from kavip.names import Condition as ConditionType
from kavip.reconcile.observed.operator import Hindrance
from kavip.reconcile.plan import GroupPlan, Kind, Notice, StatusPatch, Verdict, timestamp
from kavip.snapshot import Snapshot


def plan_aside(
    group: KeepalivedGroup, verdict: Verdict, *, now: datetime, also: Iterable[ConditionType] = ()
) -> GroupPlan:
    """Write *verdict* as ``Accepted`` and the conditions *also*, once."""
    entries = [verdict.on(group.metadata, kind) for kind in (ConditionType.ACCEPTED, *also)]
    merged = conditions.merged(group.status.conditions, entries, now=timestamp(now))
    if merged == (group.status.conditions or []):
        return GroupPlan()
    body = {
        "metadata": {"resourceVersion": group.metadata.resource_version},
        "status": {"conditions": msgspec.to_builtins(merged)},
    }
    return GroupPlan(writes=(StatusPatch(Kind.GROUP, group.key, body),), events=notices(group, verdict))


def plan_hindered(snapshot: Snapshot, key: str, hindrance: Hindrance, *, now: datetime) -> GroupPlan:
    """What may be written while something is in the way: groups say what, once it is known."""
    group = snapshot.groups.get(key) if hindrance.who else None
    if group is None or group.metadata.deletion_timestamp:
        return GroupPlan()
    return plan_aside(group, hindrance.verdict, now=now)


def notices(group: KeepalivedGroup, accepted: Verdict) -> tuple[Notice, ...]:
    """One Event where the group is accepted no longer, or again, or for another reason not."""
    old = conditions.find(group.status.conditions, ConditionType.ACCEPTED)
    if old is not None and old.reason == accepted.reason:
        return ()
    return (Notice(accepted.reason, accepted.message, warning=accepted.status != "True"),)
