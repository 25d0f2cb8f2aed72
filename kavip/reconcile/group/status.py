"""
The status of a group: its conditions, and what its nodes run.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from kavip.api import conditions
from kavip.api.group import GroupStatus, InstanceStatus, KeepalivedGroup, NodesStatus
from kavip.names import ConditionType, Reason
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
from kavip.reconcile.plan import ConditionChange, ConditionState, KeyKind, StatusPatch, Unconfirmed, timestamp
from kavip.reconcile.rollout.peers import drained_before
from kavip.snapshot import Snapshot
from kavip.vrrp.running import running_nodes

_MOST_DRAINED: Final = 512
_PROGRESS: Final = frozenset({"conditions", "configHash", "instances", "nodes"})
"""The fields that change with each Service and while the nodes take over a configuration."""


def status_of(
    group: KeepalivedGroup,
    *,
    existing: Existing,
    desired: Desired,
    rollout: Rollout,
    mastership: Mastership,
    doubts: Mapping[str, Unconfirmed],
) -> GroupStatus:
    """The status of *group* without its conditions; *doubts*: what is reported only after it has lasted."""
    nodes, config_hash = desired.nodes, rollout.config_hash
    return GroupStatus(
        router_ids=desired.router_ids.status or None,
        observed_generation=group.metadata.generation,
        instances=instances_of(group, desired, mastership, doubts) or None,
        virtual_ips=virtual_ips_of(group, mastership, doubts) or None,
        nodes=NodesStatus(
            desired=len(nodes),
            ready=len(nodes_with_ready_pod(nodes, existing.pods)),
            current=sum(runs(mastership.states, node.metadata.name, config_hash) for node in nodes),
        ),
        drained_nodes=_drained_nodes(group, existing) or None,
        config_hash=config_hash,
        metrics_port=desired.port,
    )


def _drained_nodes(group: KeepalivedGroup, existing: Existing) -> list[str]:
    """
    The drained nodes of the text that is published, not of one that may be refused, in the order of their turns.

    They stay while it is lost.
    """
    drained = running_nodes(existing.running.content).drained if existing.running else drained_before(group)
    return sorted(drained, key=lambda name: (drained[name], name))[:_MOST_DRAINED]


def condition_states(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    desired: Desired,
    rollout: Rollout,
    mastership: Mastership,
) -> Mapping[ConditionType, ConditionState]:
    """The state of each condition of *group*, with the two conditions of keepalived-operator."""
    states = observed.agents.states_of(group.key)
    verdict = accepted(
        snapshot,
        group,
        configuration=desired.configuration.refusal,
        objects=rollout.objects.problem or desired.template_problem or rollout.objects.template_problem,
        monitoring=rollout.objects.monitoring_problem,
        pods=rollout.objects.pods.problem,
    )
    is_served = verdict.status == "True" or verdict.reason == Reason.DUPLICATE_DEFAULT
    return {
        ConditionType.ACCEPTED: verdict,
        ConditionType.PROGRAMMED: programmed(
            group,
            desired,
            config_hash=rollout.config_hash,
            states=states,
            takeover=rollout.replacement.programmed,
            switchover=rollout.switchover,
        ),
        ConditionType.READY: ready(
            snapshot,
            group,
            desired,
            pods=existing.pods,
            mastership=mastership,
            failure=observed.objects.failure_of(group.key),
        ),
        **old_states("" if is_served else verdict.message),
    }


def old_states(failure: str) -> Mapping[ConditionType, ConditionState]:
    """keepalived-operator's two conditions, one of them False; *failure* is "" after a success."""
    success, error = ("False", "True") if failure else ("True", "False")
    return {
        ConditionType.RECONCILE_SUCCESS: ConditionState(success, Reason.RECONCILE_SUCCEEDED, ""),
        ConditionType.RECONCILE_ERROR: ConditionState(error, Reason.RECONCILE_FAILED, failure),
    }


def status_patches(
    group: KeepalivedGroup, status: GroupStatus, states: Mapping[ConditionType, ConditionState], *, now: datetime
) -> tuple[StatusPatch, ...]:
    """The patch that gives *group* the new *status* with the conditions *states*; none if nothing changes."""
    entries = [state.condition(group.metadata, kind) for kind, state in states.items()]
    merged = conditions.merged(group.status.conditions, entries, now=timestamp(now))
    old, new = group.status, msgspec.structs.replace(status, conditions=merged)
    if new.router_ids is old.router_ids:  # thousands of entries in mode Shared
        old, new = (msgspec.structs.replace(each, router_ids=None) for each in (old, new))
    changes = merge_patch(_json(old), _json(new))
    if not changes:
        return ()
    body = {"metadata": {"resourceVersion": group.metadata.resource_version}, "status": changes}
    is_progress = changes.keys() <= _PROGRESS and _is_progress(group, status, states)
    return (StatusPatch(KeyKind.GROUP, group.key, body, is_progress),)


def _is_progress(group: KeepalivedGroup, status: GroupStatus, states: Mapping[ConditionType, ConditionState]) -> bool:
    """Whether no instance differs but in its count, and no condition but in its message or by progress of nodes."""
    if _uncounted(group.status) != _uncounted(status):
        return False
    stored = {each.type: each for each in group.status.conditions or ()}
    return all(
        state.is_progress or state.change(stored.get(kind), group.metadata) is not ConditionChange.STATE
        for kind, state in states.items()
    )


def _uncounted(status: GroupStatus) -> list[InstanceStatus]:
    return [msgspec.structs.replace(each, virtual_ips=0) for each in status.instances or ()]


def _json(status: GroupStatus) -> Mapping[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(status)
    return body
