"""
The status of a group: its conditions, and what its nodes run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kavip.api import conditions
from kavip.api.group import GroupStatus, KeepalivedGroup, NodesStatus
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.group.accepted import accepted
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.group.existing import Existing
from kavip.reconcile.group.instances import instances_of, virtual_ips_of
from kavip.reconcile.group.programmed import programmed, runs
from kavip.reconcile.group.ready import nodes_with_ready_pod, ready
from kavip.reconcile.group.rollout import Rollout
from kavip.reconcile.mergepatch import merge_patch
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import ConditionState, KeyKind, StatusPatch, Unconfirmed, timestamp
from kavip.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StatusPlan:
    """The verdict *accepted*, and the *patches* of the status: one, or none where nothing changes."""

    accepted: ConditionState
    patches: tuple[StatusPatch, ...]


def plan_status(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    desired: Desired,
    rollout: Rollout,
    mastership: Mastership,
    doubts: Mapping[str, Unconfirmed],
    now: datetime,
) -> StatusPlan:
    """The status of *group*; *doubts*: what is reported only after it has lasted."""
    verdicts = _verdicts(snapshot, group, observed, existing=existing, desired=desired, rollout=rollout)
    entries = [verdict.condition(group.metadata, kind) for kind, verdict in verdicts.items()]
    states, nodes = mastership.states, desired.nodes
    status = GroupStatus(
        conditions=conditions.merged(group.status.conditions, entries, now=timestamp(now)),
        router_ids=desired.router_ids.status or None,
        observed_generation=group.metadata.generation,
        instances=instances_of(group, desired, mastership, doubts) or None,
        virtual_ips=virtual_ips_of(group, mastership, doubts) or None,
        nodes=NodesStatus(
            desired=len(nodes),
            ready=len(nodes_with_ready_pod(nodes, existing.pods)),
            current=sum(runs(states, node.metadata.name, rollout.config_hash) for node in nodes),
        ),
        config_hash=rollout.config_hash,
        metrics_port=desired.port,
    )
    return StatusPlan(verdicts[ConditionType.ACCEPTED], _patches(group, status))


def _verdicts(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    desired: Desired,
    rollout: Rollout,
) -> Mapping[ConditionType, ConditionState]:
    """The verdict of each condition, those of keepalived-operator included."""
    states = observed.agents.states_of(group.key)
    verdict = accepted(
        snapshot,
        group,
        configuration=desired.configuration.refusal,
        objects=rollout.objects.problem,
        monitoring=rollout.objects.monitoring_problem,
    )
    is_served = verdict.status == "True" or verdict.reason == Reason.DUPLICATE_DEFAULT
    failure = "" if is_served else verdict.message
    return {
        ConditionType.ACCEPTED: verdict,
        ConditionType.PROGRAMMED: programmed(
            group,
            desired,
            config_hash=rollout.config_hash,
            states=states,
            takeover=rollout.replacement.programmed,
            switchover=rollout.switchover.message if rollout.switchover else "",
        ),
        ConditionType.READY: ready(
            snapshot,
            group,
            desired,
            pods=existing.pods,
            states=states,
            failure=observed.objects.failure_of(group.key),
        ),
        # keepalived-operator never set the one of these that does not hold to False
        ConditionType.RECONCILE_SUCCESS: ConditionState(
            "True" if is_served else "False", Reason.RECONCILE_SUCCEEDED, ""
        ),
        ConditionType.RECONCILE_ERROR: ConditionState(
            "False" if is_served else "True", Reason.RECONCILE_FAILED, failure
        ),
    }


def _patches(group: KeepalivedGroup, status: GroupStatus) -> tuple[StatusPatch, ...]:
    old, new = group.status, status
    if new.router_ids is old.router_ids:  # thousands of entries in mode Shared
        old, new = (msgspec.structs.replace(each, router_ids=None) for each in (old, new))
    changes = merge_patch(_json(old), _json(new))
    if not changes:
        return ()
    body = {"metadata": {"resourceVersion": group.metadata.resource_version}, "status": changes}
    return (StatusPatch(KeyKind.GROUP, group.key, body),)


def _json(status: GroupStatus) -> Mapping[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(status)
    return body
