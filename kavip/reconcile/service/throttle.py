"""
Whether a verdict on ``Programmed`` is news: worth a write now, later, or not at all.

While nodes take up a configuration the message would change with every node. A message that merely counts them is
therefore left as it is for :data:`PATIENCE`; every other one is written as soon as it differs.
"""

import re
from datetime import datetime
from typing import Final

from kavip.api import conditions
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.observed.nodes import EVER
from kavip.reconcile.plan import ConditionState, age

PATIENCE: Final = 10.0
"""Seconds after which the message of a Service that is still pending says what it waits for now."""

_RAREST: Final = 3600.0
_COUNT: Final = re.compile(r"\d+ of \d+ nodes run ")  # how programmed begins to count


def was_judged(service: Service) -> bool:
    """Whether *service* has the condition."""
    return _told(service) is not None


def is_wrong(service: Service, found: ConditionState) -> bool:
    """Whether the condition of *service* says something else than *found*; how many nodes it counts apart."""
    old = _told(service)
    if old is None:
        return True
    if (old.status, old.reason, old.observed_generation) != (found.status, found.reason, service.metadata.generation):
        return True
    return old.message != found.message and not (_COUNT.match(old.message) and _COUNT.match(found.message))


def is_stale(service: Service, found: ConditionState, *, now: datetime, began: datetime = EVER) -> bool:
    """
    Whether it is time to count again.

    *began* is when the agents were first asked: right after a start they have not answered, and whatever was counted
    before is better than nothing.
    """
    old = _told(service)
    return old is not None and old.message != found.message and _quiet(old, now, began) >= PATIENCE


def next_look(service: Service, found: ConditionState, *, now: datetime, began: datetime = EVER) -> float | None:
    """In how many seconds a Service that is pending is looked at again: ever more rarely; None: it is not pending."""
    if found.reason != Reason.PENDING:
        return None
    old = _told(service)
    quiet = _quiet(old, now, began) if old and old.status == found.status else 0.0
    return min(max(PATIENCE - quiet if quiet < PATIENCE else quiet, 1.0), _RAREST)


def _quiet(old: Condition, now: datetime, began: datetime) -> float:
    """For how many seconds both the condition and we have been there."""
    return min(age(old.last_transition_time or "", now), (now - began).total_seconds())


def _told(service: Service) -> Condition | None:
    return conditions.find(service.status.conditions, ConditionType.SERVICE_PROGRAMMED)
