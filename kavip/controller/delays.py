"""
When a key may be reconciled, so that changes that come together are written together.

What follows from many new Services, the configurations of groups and the numbers of pools, would slow down the writes
of their addresses. So the more groups or pools are written, the more changes of each are written together. A group's
first change is written at once. What is only a number or a message for a reader, the counts of a pool and the progress
of a group, is written a second after the first change.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Final

from kavip.api.service import Service
from kavip.reconcile.plan import Key, KeyKind, Plan, StatusPatch
from kavip.reconcile.pool import has_only_counts
from kavip.reconcile.service.throttle import WriteBudget
from kavip.snapshot import Snapshot

GROUP_DELAY: Final = 0.05
"""Seconds by which the plan of a group is delayed, so that the write of the Service that caused it goes first."""
FOLD: Final = 0.3
"""Seconds within which the changes of a group make one new configuration."""
PROGRESS_INTERVAL: Final = 1.0
"""Seconds by which a status of a group that only reports progress is delayed; most nodes have followed by then."""
POOL_INTERVAL: Final = 1.0
"""Seconds by which the counts of a pool are delayed, at least. While addresses cool down: :data:`FOLD`."""
GROUP_RATE: Final = 20.0
"""Configurations per second of all groups together; more if a group would wait longer than :data:`MOST_FOLD`."""
MOST_FOLD: Final = 2.0
"""The most seconds between two configurations of a group because of others."""
POOL_RATE: Final = 10.0
"""Status writes per second of all pools together; more if a pool would wait longer than :data:`MOST_POOL_INTERVAL`."""
MOST_POOL_INTERVAL: Final = 5.0
"""The same of a pool; :data:`POOL_INTERVAL` while addresses cool down."""
_GROUP_SHARE: Final = 4  # times as long as the plan of a group took, the group is not planned again


class _RateLimiter:
    """Spreads writes of several keys: *rate* per second in all, unless a key would wait longer than *most* seconds."""

    def __init__(self, rate: float, most: float) -> None:
        self._rate, self._most = rate, most
        self._next = 0.0

    def delay(self, now: float) -> float:
        """Count a write of a key; the seconds until that key may be written again."""
        self._next = min(max(self._next, now) + 1 / self._rate, now + self._most)
        return self._next - now

    def give_back(self) -> None:
        """Do not count a write: it was not needed."""
        self._next -= 1 / self._rate


class Delays:
    """The delays of the keys of *snapshot*. *now* is the wall clock, *clock* the monotonic one."""

    def __init__(self, snapshot: Snapshot, *, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        """Remember nothing before the first change."""
        self._snapshot, self._now, self._clock = snapshot, now, clock
        self._not_before: dict[Key, float] = {}  # when a group or pool may be reconciled again; the last change last
        self._due: dict[Key, float] = {}  # when the counts of a pool that has changed are written
        self._progress: dict[Key, float] = {}  # since when the progress of a group is withheld
        self._budget = WriteBudget()
        self._groups = _RateLimiter(GROUP_RATE, MOST_FOLD)
        self._pools = _RateLimiter(POOL_RATE, MOST_POOL_INTERVAL)

    def after_change(self, key: Key) -> float:
        """The seconds by which the plan of *key* is delayed after a change."""
        match key.kind:
            case KeyKind.GROUP:
                return GROUP_DELAY
            case KeyKind.POOL if has_only_counts(self._snapshot, key.name):
                now = self._clock()
                if key not in self._due:
                    self._due[key] = now + max(POOL_INTERVAL, self._pools.delay(now))
                return max(0.0, self._due[key] - now)
        return 0.0

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
            ((each.until - now).total_seconds() for each in self._snapshot.ledger.cooldown.of(pool)), default=inf
        )

    def postpone(self, key: Key, plan: Plan, *, spent: float) -> None:
        """
        Fold what comes after *plan* of a group or pool, which took *spent* seconds.

        A group whose plan takes long, because it is large, is postponed in proportion, so that other keys get a turn.
        """
        if key.kind is KeyKind.SERVICE:
            return
        now, delay = self._clock(), spent * _GROUP_SHARE
        if key.kind is KeyKind.POOL:
            is_counted = self._due.pop(key, None) is not None
            if not plan.writes:
                if is_counted:
                    self._pools.give_back()
                return
            is_cooling = plan.requeue_after is not None
            least, most = (FOLD, POOL_INTERVAL) if is_cooling else (POOL_INTERVAL, MOST_POOL_INTERVAL)
            delay = least if is_counted else min(max(least, self._pools.delay(now)), most)
        elif any(not isinstance(write, StatusPatch) for write in plan.writes):
            delay = max(delay, FOLD, self._groups.delay(now))
        self._hold(key, until=now + delay)

    def without_progress(self, key: Key, plan: Plan) -> Plan:
        """*plan* without a status that only reports progress, until :data:`PROGRESS_INTERVAL` has passed."""
        patches = [each for each in plan.writes if isinstance(each, StatusPatch)]
        if not patches or not all(each.is_progress for each in patches):
            self._progress.pop(key, None)
            return plan
        now = self._clock()
        wait = self._progress.setdefault(key, now) + PROGRESS_INTERVAL - now
        if wait <= 0:
            return plan
        if plan.requeue_after is not None:
            wait = min(wait, plan.requeue_after)
        return replace(plan, writes=tuple(each for each in plan.writes if each not in patches), requeue_after=wait)

    def prolong(self, group: Key, *, spent: float) -> None:
        """Postpone *group* in proportion for the *spent* seconds of its comparison, too."""
        self._hold(group, until=max(self._not_before.get(group, 0.0), self._clock()) + spent * _GROUP_SHARE)

    def _hold(self, key: Key, *, until: float) -> None:
        """Postpone *key*, and drop what is over: most keys change once, and some are gone."""
        self._not_before.pop(key, None)
        self._not_before[key] = until
        while self._not_before[first := next(iter(self._not_before))] <= self._clock() and first != key:
            del self._not_before[first]

    def spend(self, service: Service) -> None:
        """Count a write of the status of *service*."""
        self._budget.spend(service, now=self._clock())

    def begin_interval(self, group: Key) -> None:
        """The status of *group* is written: what follows is withheld again."""
        self._progress.pop(group, None)

    def forget(self, service: str) -> None:
        """Forget a *service* that is gone."""
        self._budget.forget(service)
