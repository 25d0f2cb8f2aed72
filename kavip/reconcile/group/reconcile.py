"""
Reconciles one KeepalivedGroup: Snapshot and Observed in, the plan out.

The order of the writes keeps the VIPs where they are. VRIDs and port stand in the status before an object uses them.
The ConfigMap is written before the pods are annotated. An object that another program made is left alone, and a
condition reports it. A problem of one Service, such as a bad line or a missing VRID, never stops the group.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

from kavip.api.group import KeepalivedGroup
from kavip.names import ConditionType
from kavip.reconcile.group import notation
from kavip.reconcile.group.annotations import PASSWORD_RECHECK, awaits_password
from kavip.reconcile.group.configtemplate import PATIENCE
from kavip.reconcile.group.desired import Desired, desired_of
from kavip.reconcile.group.detection import SHORTEN
from kavip.reconcile.group.existing import existing_of
from kavip.reconcile.group.inactive import accepted_events, plan_outside
from kavip.reconcile.group.instances import master_doubts
from kavip.reconcile.group.moves import moves_of
from kavip.reconcile.group.outdated import Comparison, Outdated
from kavip.reconcile.group.rollout import Rollout, plan_rollout, target_of
from kavip.reconcile.group.status import condition_states, status_of, status_patches
from kavip.reconcile.observed import foreignclaims, neighbours
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import GroupPlan, GroupRecord, ReconcileOptions
from kavip.reconcile.rollout import peers
from kavip.reconcile.service.vips import ServingGroup
from kavip.snapshot import Snapshot

_NOTHING_OBSERVED: Final = Observed()
_DEFAULTS: Final = ReconcileOptions()


class BegunPlan(NamedTuple):
    """
    The *plan* of a group, and the *comparison* of its Services that belongs to it.

    The comparison comes after the writes. It may take long, so other keys get a turn between two of its steps.
    """

    plan: GroupPlan
    comparison: Iterable[Outdated] = ()


def plan_group(
    snapshot: Snapshot,
    key: str,
    *,
    now: datetime,
    observed: Observed = _NOTHING_OBSERVED,
    options: ReconcileOptions = _DEFAULTS,
) -> GroupPlan:
    """The plan of the group with *key*: its writes, and those of its Services whose conditions are outdated."""
    plan, comparison = begin_plan(snapshot, key, now=now, observed=observed, options=options)
    outdated = Outdated.merge(tuple(comparison))
    waits = [each for each in (plan.requeue_after, outdated.requeue_after) if each is not None]
    return replace(
        plan,
        also=outdated.services,
        also_low_priority=outdated.reworded,
        record=plan.record and compared(plan.record, outdated),
        requeue_after=min(waits, default=None),
    )


def compared(record: GroupRecord, outdated: Outdated) -> GroupRecord:
    """The *record* of a plan after its comparison has found what is *outdated*."""
    return replace(record, unconfirmed=outdated.unconfirmed, obstructed=outdated.obstructed)


def begin_plan(
    snapshot: Snapshot,
    key: str,
    *,
    now: datetime,
    observed: Observed = _NOTHING_OBSERVED,
    options: ReconcileOptions = _DEFAULTS,
) -> BegunPlan:
    """The same as :func:`plan_group`, before any Service is compared."""
    group = snapshot.any_group(key)
    if group is None or group.metadata.deletion_timestamp:
        return BegunPlan(GroupPlan())  # the garbage collector deletes its objects
    if key in snapshot.outside:
        return BegunPlan(plan_outside(snapshot, group, now=now))
    return _plan(snapshot, group, observed, options=options, now=now)


def _plan(
    snapshot: Snapshot, group: KeepalivedGroup, observed: Observed, *, options: ReconcileOptions, now: datetime
) -> BegunPlan:
    """The plan of a group that kavip serves. Each step reads the results of the steps before it."""
    snapshot.memory(group.key).begin_turn()
    existing = existing_of(snapshot, group, observed, now=now)
    desired = desired_of(snapshot, group, observed, existing=existing, options=options, now=now)
    asks_first = existing.is_lost and desired.awaits_agents
    if asks_first or desired.is_held:
        target = target_of(existing, desired, None, group.status.config_hash) if asks_first else None
        return BegunPlan(GroupPlan(rendering=desired.rendering, target=target, requeue_after=PATIENCE))
    rollout = plan_rollout(group, observed, existing=existing, desired=desired, options=options, now=now)

    serving = ServingGroup.of(snapshot, group.key, observed)
    mastership = serving.mastership(observed)
    record = observed.records.group(group.key)
    doubts = master_doubts(group, desired, mastership, record.unconfirmed_masters)
    status = status_of(
        group,
        existing=existing,
        desired=desired,
        rollout=rollout,
        mastership=mastership,
        doubts=doubts.unconfirmed,
    )
    moves = moves_of(snapshot, group, status=status, desired=desired, allowance=record.allowance, at=mastership.at)
    states = condition_states(
        snapshot, group, observed, existing=existing, desired=desired, rollout=rollout, mastership=mastership
    )

    waits = (*doubts.waits, *_waits(group, observed, desired, rollout, mastership))
    plan = GroupPlan(
        writes=(
            *rollout.objects.applies,
            *rollout.objects.pods.writes,
            *rollout.replacement.deletions,
            *status_patches(group, status, states, now=now),
        ),
        events=(*accepted_events(group, states[ConditionType.ACCEPTED]), *moves.events),
        rendering=desired.rendering,
        template_problem=desired.template_problem,
        record=GroupRecord(
            desired.reserved,
            desired.excluded,
            record.unconfirmed,
            doubts.unconfirmed,
            record.obstructed,
            moves.allowance,
            rollout.objects.pods.annotated,
            notation.last_left(existing.running, desired.configuration.current, record.notation_left, at=mastership.at),
            desired.detection.examined,
            rollout.called_off,
        ),
        target=rollout.target,
        pod_allowance=rollout.objects.pods.allowance,
        requeue_after=min(waits, default=None),
    )
    return BegunPlan(plan, Comparison(serving, desired, mastership, record))


def _waits(
    group: KeepalivedGroup, observed: Observed, desired: Desired, rollout: Rollout, mastership: Mastership
) -> Iterator[float]:
    """After how many seconds to reconcile the group again, because no watch event will report the change."""
    if mastership.foreign_claims and not mastership.are_nodes_known(mastership.asked):
        yield foreignclaims.PATIENCE  # whether they count may change with time, and with any node's answer
    if (left := mastership.at - observed.records.group(group.key).notation_left) < notation.AGAIN:
        yield notation.AGAIN - left
    if (left := desired.detection.examined_in) < inf:
        yield left if left > 0 else SHORTEN
    if desired.is_rolling or desired.is_moving:
        yield peers.RECHECK
    if desired.awaits_groups:
        yield neighbours.RECHECK
    if awaits_password(observed.agents.states_of(group.key)):
        yield PASSWORD_RECHECK
    if rollout.objects.recheck is not None:
        yield rollout.objects.recheck
    if rollout.objects.pods.recheck is not None:
        yield rollout.objects.pods.recheck
    if rollout.replacement.recheck is not None:
        yield rollout.replacement.recheck
    if rollout.switchover and rollout.switchover.requeue_after is not None:
        yield rollout.switchover.requeue_after
