"""
The plan of one pool: how much of it is used, what cools down, and whether it is in force.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kavip.api import conditions
from kavip.api.pool import PoolStatus, Usage
from kavip.api.refusal import Refusal
from kavip.controller.difference import merge_patch
from kavip.controller.outcome import Kind, Plan, StatusPatch, Verdict, timestamp
from kavip.ipam import stock
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.snapshot import Snapshot


def plan_pool(snapshot: Snapshot, key: str, *, now: datetime) -> Plan:
    """
    What is to be written for the pool called *key*; nothing where its status says it all.

    It is to be looked at again when the first of its addresses has cooled down.
    """
    pool = snapshot.pools.get(key)
    if pool is None or pool.metadata.deletion_timestamp:
        return Plan()
    parsed = snapshot.parsed_pools  # first: it also makes the ledger count over these pools
    usage = snapshot.ledger.usage(key)
    problem = parsed.problems.get(key)
    fresh = (
        _accepted(problem).on(pool.metadata, ConditionType.ACCEPTED),
        _ready(usage, is_accepted=problem is None).on(pool.metadata, ConditionType.READY),
    )
    rests = snapshot.ledger.rests.of(key)
    status = PoolStatus(
        ipv4=_wire(usage.get(4)),
        ipv6=_wire(usage.get(6)),
        cooling=[rest.wire for rest in rests] or None,
        conditions=conditions.merged(pool.status.conditions, fresh, now=timestamp(now)),
    )
    changes = merge_patch(_json(pool.status), _json(status))
    ends = max((rests[0].until - now).total_seconds(), 0.0) if rests else None
    if not changes:
        return Plan(requeue_after=ends)
    body = {"metadata": {"resourceVersion": pool.metadata.resource_version}, "status": changes}
    return Plan(writes=(StatusPatch(Kind.POOL, key, body),), requeue_after=ends)


def _accepted(problem: Refusal | None) -> Verdict:
    if problem is not None:
        return Verdict("False", problem.reason, problem.message)
    return Verdict("True", Reason.ACCEPTED, "its addresses may be assigned")


def _ready(usage: Mapping[int, stock.Usage], *, is_accepted: bool) -> Verdict:
    if not is_accepted:
        return Verdict("False", Reason.NO_ADDRESSES, "the pool is not accepted, so it gives nothing")
    if not usage:
        return Verdict(
            "False",
            Reason.NO_ADDRESSES,
            "nothing is left to give: shorten spec.exclude, or rejectedCIDRs of Network cluster",
        )
    if not any(family.available for family in usage.values()):
        return Verdict("False", Reason.EXHAUSTED, "no address is free: add some to spec.addresses")
    return Verdict("True", Reason.READY, "has free addresses")


def _wire(usage: stock.Usage | None) -> Usage | None:
    if usage is None:
        return None
    shown = usage.clamped()
    return Usage(total=shown.total, assigned=shown.assigned, available=shown.available)


def _json(status: PoolStatus) -> dict[str, object]:
    body: dict[str, object] = msgspec.to_builtins(status)
    return body
