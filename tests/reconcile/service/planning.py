"""Helpers for tests of a Service's plan: the Service, and the writes of its plan."""

from typing import Any

import msgspec

from kavip import names
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.reconcile.plan import Plan
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, body_of
from tests.support import build

ASSIGNED = names.ConditionType.ADDRESS_ASSIGNED
PROGRAMMED = names.ConditionType.SERVICE_PROGRAMMED
WEB = "shop/web"
VIP = "192.0.2.128"


def web(**more: Any) -> Service:
    """A Service of the group."""
    return build.service(WEB, group=GROUP, **more)


def with_condition(service: Service, kind: str, status: str, reason: str, **more: Any) -> Service:
    """*service* with one more condition."""
    condition = Condition(type=kind, status=status, reason=reason, last_transition_time="2026-01-01T00:00:00Z", **more)
    status_ = msgspec.structs.replace(service.status, conditions=[*(service.status.conditions or ()), condition])
    return msgspec.structs.replace(service, status=status_)


def conditions_of(plan: Plan) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition that *plan* writes."""
    return {each["type"]: (each["status"], each["reason"]) for each in body_of(plan)["conditions"]}


def programmed_of(simulation: SimulatedCluster, key: str = WEB) -> str:
    """The message of the condition Programmed."""
    return next(
        each.message for each in simulation.snapshot.services[key].status.conditions or () if each.type == PROGRAMMED
    )
