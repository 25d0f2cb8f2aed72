"""
Status writes of which nobody knows whether they were done, and after which there is nothing left to write.

Until that is known, what they were to give is given to nobody else (:mod:`kavip.ipam.ledger.holdings`). Reading does
not tell: a write that was sent may be done later. A write that changes something, on condition of the same
resourceVersion, does: either it is done and the earlier one never will be, or it is refused because the earlier one
was.
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from kavip.api import conditions
from kavip.api.service import Service
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.plan import ConditionState, KeyKind, ServicePlan, StatusPatch, timestamp

_UNKNOWN: Final = ConditionState(
    "Unknown", Reason.PENDING, "an earlier write to this status was not answered; this one settles whether it was done"
)


def settled(plan: ServicePlan, service: Service, *, now: datetime) -> ServicePlan:
    """*plan* of *service*, which writes nothing, with a write that the next plan takes back."""
    entry = _UNKNOWN.condition(service.metadata, ConditionType.SERVICE_PROGRAMMED)
    merged = conditions.merged(service.status.conditions, [entry], now=timestamp(now))
    changed = [conditions.wire(each) for each in merged if each.type == entry.type]
    body = {"metadata": {"resourceVersion": service.metadata.resource_version}, "status": {"conditions": changed}}
    return replace(plan, writes=(StatusPatch(KeyKind.SERVICE, service.key, body),), requeue_after=0.0)
