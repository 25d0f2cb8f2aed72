"""
The plan of a group that kavip does not serve: conditions that say why, and nothing else.

A group is inactive while keepalived-operator runs, and where the setting ``group_namespaces`` leaves its namespace out.
Its pods continue unchanged. Conditions and status fields that other programs wrote stay.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from kavip import names
from kavip.api import conditions
from kavip.api.group import KeepalivedGroup
from kavip.names import ConditionType, Reason
from kavip.reconcile.group.status import old_states
from kavip.reconcile.observed.operator import WritesBlocked
from kavip.reconcile.plan import ConditionState, GroupPlan, KeyKind, Notice, StatusPatch, timestamp
from kavip.snapshot import Snapshot

_OWN: Final = (ConditionType.PROGRAMMED, ConditionType.READY)


def plan_while_operator_runs(snapshot: Snapshot, key: str, blocked: WritesBlocked, *, now: datetime) -> GroupPlan:
    """The plan of the group with *key* while keepalived-operator runs: its ``Accepted`` reports that."""
    group = snapshot.groups.get(key) if blocked.by else None
    if group is None or group.metadata.deletion_timestamp:
        return GroupPlan()
    return _plan(group, {ConditionType.ACCEPTED: blocked.accepted}, now=now)


def plan_outside(snapshot: Snapshot, group: KeepalivedGroup, *, now: datetime) -> GroupPlan:
    """
    The plan of a group in a namespace that ``group_namespaces`` leaves out; kavip does not watch its pods.

    Every condition that kavip wrote while it served the group gets the new verdict: the old ones would never change.
    """
    verdict = _outside(snapshot, group)
    states = {kind: verdict for kind in _OWN if conditions.find(group.status.conditions, kind)}
    if states:  # kavip has served the group, so it wrote these too
        states |= old_states(verdict.message)
    return _plan(group, {ConditionType.ACCEPTED: verdict, **states}, now=now)


def is_ignored(group: KeepalivedGroup) -> bool:
    """
    Whether the controller has reported that ``group_namespaces`` leaves the namespace of *group* out.

    A group that it serves has ``Programmed`` too, and not with this reason.
    """
    accepted, programmed = (
        conditions.find(group.status.conditions, kind) for kind in (ConditionType.ACCEPTED, ConditionType.PROGRAMMED)
    )
    if accepted is None or (accepted.status, accepted.reason) != ("False", Reason.INVALID):
        return False
    return programmed is None or programmed.reason == Reason.INVALID


def accepted_events(group: KeepalivedGroup, accepted: ConditionState) -> tuple[Notice, ...]:
    """One Event if the reason of ``Accepted`` changes."""
    old = conditions.find(group.status.conditions, ConditionType.ACCEPTED)
    if old is not None and old.reason == accepted.reason:
        return ()
    return (Notice(accepted.reason, accepted.message, warning=accepted.status != "True"),)


def _plan(group: KeepalivedGroup, states: Mapping[ConditionType, ConditionState], *, now: datetime) -> GroupPlan:
    """Write *states*, once."""
    entries = [state.condition(group.metadata, kind) for kind, state in states.items()]
    merged = conditions.merged(group.status.conditions, entries, now=timestamp(now))
    if merged == (group.status.conditions or []):
        return GroupPlan()
    body = {
        "metadata": {"resourceVersion": group.metadata.resource_version},
        "status": {"conditions": msgspec.to_builtins(merged)},
    }
    return GroupPlan(
        writes=(StatusPatch(KeyKind.GROUP, group.key, body),),
        events=accepted_events(group, states[ConditionType.ACCEPTED]),
    )


def _outside(snapshot: Snapshot, group: KeepalivedGroup) -> ConditionState:
    served, namespace = ", ".join(sorted(snapshot.group_namespaces)), group.metadata.namespace
    message = f"kavip serves groups only in namespace {served} (chart value groupNamespaces): create the group there"
    if group.status.nodes and group.status.nodes.desired:  # as it was when kavip served the group
        message += (
            f" and delete this one, or add {namespace} to the value; until then its pods keep VIPs that kavip may "
            f"assign to other Services: kubectl get pods --namespace {namespace} --output wide --selector "
            f"{names.GROUP_LABEL}={group.metadata.name}"
        )
    return ConditionState("False", Reason.INVALID, f"metadata.namespace {namespace}: {message}")
