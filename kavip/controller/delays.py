"""
When a key may be reconciled: a first change is written at once, and those that follow it soon are written together.

What follows from many new Services, the configurations of groups and the numbers of pools, would slow down the writes
of their addresses. So the more groups or pools are written, the more changes of each are written together.
"""

from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Final

from kavip.api.service import Service
from kavip.reconcile.plan import Key, KeyKind, Plan, StatusPatch
from kavip.reconcile.service.throttle import WriteBudget
from kavip.snapshot import Snapshot

FOLD: Final = 0.3
"""Seconds within which the changes of a group make one new configuration."""
POOL_INTERVAL: Final = 1.0
"""Seconds between two status writes of a pool; from :data:`FOLD` on while addresses cool down."""
GROUP_RATE: Final = 20.0
"""Configurations per second of all groups together, while no group waits longer than :data:`MOST_FOLD`."""
MOST_FOLD: Final = 2.0
POOL_RATE: Final = 10.0
"""Status writes per second of all pools together, while no pool waits longer than :data:`MOST_POOL_INTERVAL`."""
MOST_POOL_INTERVAL: Final = 5.0
_GROUP_SHARE: Final = 4  # times as long as the plan of a group took, the group is not planned again


class _Pace:
    """Spreads what is repeated: *rate* per second, and none of it delayed for more than *most* seconds."""

    def __init__(self, rate: float, most: float) -> None:
        self._rate, self._most = rate, most
        self._next = 0.0

    def delay(self, now: float) -> float:
        """Count one more; the seconds until the same is repeated."""
        self._next = min(max(self._next, now) + 1 / self._rate, now + self._most)
        return self._next - now


class Delays:
    """The delays of the keys of *snapshot*. *now* is the wall clock, *clock* the monotonic one."""

    def __init__(self, snapshot: Snapshot, *, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        """Delay nothing before :meth:`postpone` and :meth:`spend`."""
        self._snapshot, self._now, self._clock = snapshot, now, clock
        self._not_before: dict[Key, float] = {}  # when a group or pool may be reconciled again
        self._budget = WriteBudget()
        self._groups, self._pools = _Pace(GROUP_RATE, MOST_FOLD), _Pace(POOL_RATE, MOST_POOL_INTERVAL)

    def of(self, key: Key) -> float:
        """The seconds until *key* may be reconciled; 0 or less: now."""
        match key.kind:
            case KeyKind.SERVICE:
                service = self._snapshot.services.get(key.name)
                return self._budget.delay(service, now=self._clock()) if service is not None else 0.0
            case KeyKind.GROUP:
                return self._not_before.get(key, 0.0) - self._clock()
            case KeyKind.POOL:
                return min(self._not_before.get(key, 0.0) - self._clock(), self._next_expiry(key.name))

    def _next_expiry(self, pool: str) -> float:
        """The seconds until the next cool-down of *pool* ends."""
        now = self._now()
        return min(
            ((rest.until - now).total_seconds() for rest in self._snapshot.ledger.cooldown.of(pool)), default=inf
        )

    def postpone(self, key: Key, plan: Plan, *, spent: float) -> None:
        """
        Fold what comes after *plan* of a group or pool, which took *spent* seconds.

        A group whose plan takes long, because it is large, is postponed in proportion, so that other keys get a turn.
        """
        if key.kind is KeyKind.SERVICE:
            return
        now, delay = self._clock(), spent * _GROUP_SHARE
        if key.kind is KeyKind.POOL and plan.writes:
            paced = self._pools.delay(now)
            delay = max(POOL_INTERVAL, paced) if plan.requeue_after is None else min(max(FOLD, paced), POOL_INTERVAL)
        elif any(not isinstance(write, StatusPatch) for write in plan.writes):
            delay = max(delay, FOLD, self._groups.delay(now))
        self._not_before[key] = now + delay

    def prolong(self, group: Key, *, spent: float) -> None:
        """Postpone *group* in proportion for the *spent* seconds of its comparison, too."""
        self._not_before[group] = max(self._not_before.get(group, 0.0), self._clock()) + spent * _GROUP_SHARE

    def spend(self, service: Service) -> None:
        """Count a write of the status of *service*."""
        self._budget.spend(service, now=self._clock())

    def forget(self, service: str) -> None:
        """Forget a *service* that is gone."""
        self._budget.forget(service)
