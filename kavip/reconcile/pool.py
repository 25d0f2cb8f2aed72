"""
The plan of one pool: how much of it is used, what cools down, and whether it is in force.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kavip import names
from kavip.api import conditions
from kavip.api.pool import PoolStatus, Usage, VIPPool
from kavip.api.refusal import Refusal, listed
from kavip.ipam import messages
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.usage import FamilyUsage
from kavip.ipam.pool import REJECTED
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.names import ConditionType, Reason
from kavip.reconcile.mergepatch import merge_patch
from kavip.reconcile.plan import ConditionChange, ConditionState, KeyKind, Notice, PoolPlan, StatusPatch, timestamp
from kavip.snapshot import Snapshot


def plan_pool(snapshot: Snapshot, key: str, *, now: datetime) -> PoolPlan:
    """
    What is to be written for the pool called *key*; nothing if its status says it all.

    It is to be looked at again when the first of its addresses has cooled down.
    """
    pool = snapshot.pools.get(key)
    if pool is None or pool.metadata.deletion_timestamp:
        return PoolPlan()
    parsed = snapshot.parsed_pools
    usage = snapshot.ledger.usage(key)
    problem = parsed.problems.get(key)
    cautions = _cautions(snapshot, key)
    verdicts = _verdicts(snapshot, key, cautions)
    fresh = [verdict.condition(pool.metadata, kind) for kind, verdict in verdicts.items()]
    cooling = snapshot.ledger.cooldown.of(key)
    status = PoolStatus(
        ipv4=_wire(usage.get(4)),
        ipv6=_wire(usage.get(6)),
        cooling=[each.wire for each in cooling] or None,
        conditions=conditions.merged(pool.status.conditions, fresh, now=timestamp(now)),
    )
    changes = merge_patch(_json(pool.status), _json(status))
    ends = max((cooling[0].until - now).total_seconds(), 0.0) if cooling else None
    if not changes:
        return PoolPlan(requeue_after=ends)
    body = {"metadata": {"resourceVersion": pool.metadata.resource_version}, "status": changes}
    telling = tuple(verdicts)[: 1 if problem else None]  # a pool that is not accepted is never ready
    events = tuple(notice for kind in telling if (notice := _notice(pool, kind, verdicts[kind], cautions)))
    return PoolPlan(writes=(StatusPatch(KeyKind.POOL, key, body),), events=events, requeue_after=ends)


def has_only_counts(snapshot: Snapshot, key: str) -> bool:
    """Whether the status of pool *key* lacks at most counts and messages: no state of a condition, no cool-down."""
    pool = snapshot.pools.get(key)
    if pool is None or snapshot.ledger.cooldown.of(key):
        return False
    return all(
        verdict.change(conditions.find(pool.status.conditions, kind), pool.metadata) is not ConditionChange.STATE
        for kind, verdict in _verdicts(snapshot, key, cautions=()).items()
    )


def _verdicts(snapshot: Snapshot, key: str, cautions: tuple[str, ...]) -> Mapping[ConditionType, ConditionState]:
    """The state of each condition of pool *key*."""
    problem = snapshot.parsed_pools.problems.get(key)
    return {
        ConditionType.ACCEPTED: _accepted(snapshot.ledger.usage(key), problem, cautions),
        ConditionType.READY: _ready(key, snapshot.ledger, is_accepted=problem is None),
    }


def _cautions(snapshot: Snapshot, key: str) -> tuple[str, ...]:
    """Which addresses in the ranges of pool *key* the cluster uses itself, or may use."""
    pool = snapshot.parsed_pools.get(key)
    if pool is None:
        return ()
    api_server = sorted(each for each in snapshot.api_server_addresses if pool.is_usable(each))
    found = [f"{each} ({names.API_SERVER})" for each in api_server]
    found += [each.what for each in pool.barred if each.what != REJECTED]
    claimed = [str(each) for each in snapshot.pod_ranges.in_pool(pool)]
    return (
        *([f"it never gives {listed(found)}: list these in spec.exclude"] if found else ()),
        *([f"it overlaps {listed(claimed)}: list this in spec.exclude if pods have the addresses"] if claimed else ()),
    )


def _accepted(usage: Mapping[int, FamilyUsage], problem: Refusal | None, cautions: tuple[str, ...]) -> ConditionState:
    if problem is None:
        counts = " and ".join(f"{each.total} {FAMILY_NAMES[family]}" for family, each in usage.items())
        message = f"in force: {counts or 'no'} addresses to give"
        return ConditionState("True", Reason.ACCEPTED, "; ".join((message, *cautions)))
    rest = "; that pool was there first and stays in force" if problem.reason is Reason.OVERLAP else ""
    return ConditionState("False", problem.reason, f"{problem.message}{rest}")


def _ready(pool: str, ledger: Ledger, *, is_accepted: bool) -> ConditionState:
    usage = ledger.usage(pool)
    if not is_accepted:
        return ConditionState("False", Reason.NO_ADDRESSES, "the pool is not accepted, so it gives nothing")
    if not usage:
        return ConditionState(
            "False",
            Reason.NO_ADDRESSES,
            "nothing is left to give: see spec.exclude, spec.avoidBuggyIPs, or on OpenShift rejectedCIDRs",
        )
    full = messages.describe_full(pool, usage, dict.fromkeys(usage, 1), ledger)
    if not any(family.available for family in usage.values()):
        return ConditionState("False", Reason.EXHAUSTED, f"full: {full}; free an address or add some to spec.addresses")
    free = " and ".join(FAMILY_NAMES[family] for family, each in usage.items() if each.available)
    return ConditionState("True", Reason.READY, f"{free} addresses are free" + (f"; full: {full}" if full else ""))


def _notice(pool: VIPPool, kind: ConditionType, verdict: ConditionState, cautions: tuple[str, ...]) -> Notice | None:
    """One Event for a change of reason, and for new *cautions*; that a new pool is well needs none."""
    old = conditions.find(pool.status.conditions, kind)
    if any(each in verdict.message and each not in (old.message if old else "") for each in cautions):
        return Notice(verdict.reason, verdict.message, warning=True)
    if old is not None and old.reason == verdict.reason:
        return None
    is_well = verdict.status == "True"
    if is_well and (old is None or old.status == "Unknown"):
        return None
    return Notice(verdict.reason, verdict.message, warning=not is_well)


def _wire(usage: FamilyUsage | None) -> Usage | None:
    if usage is None:
        return None
    shown = usage.clamped()
    return Usage(total=shown.total, assigned=shown.assigned, available=shown.available)


def _json(status: PoolStatus) -> dict[str, object]:
    body: dict[str, object] = msgspec.to_builtins(status)
    return body
