"""
The workers: lend a key, plan, apply, and see that it comes back when it should.

A plan and the claims that follow from it are made in one synchronous stretch, so that no two workers give one address
away. Errors of the API server are retried with back-off; whatever else a plan raises is counted, logged, and retried
too: one bad object must not stop the others.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Final, Protocol

import structlog

from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.controller.writer import Writer
from kavip.errors import ApiError, Conflict, Forbidden, LeaseLost, QueueClosed, Rejected, Throttled
from kavip.ipam.request import read_request
from kavip.kube.workqueue import WorkQueue
from kavip.names import Contest
from kavip.reconcile.enqueue import Start
from kavip.reconcile.group.inactive import plan_while_operator_runs
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.observed.nodes import AgentStates
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.operator import OperatorWatch, WritesBlocked
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import (
    GroupPlan,
    Key,
    KeyKind,
    Notice,
    Plan,
    PoolPlan,
    ProbeTarget,
    ReconcileOptions,
    ServicePlan,
    StatusPatch,
)
from kavip.reconcile.pool import plan_pool
from kavip.reconcile.predicate import PendingWrites
from kavip.reconcile.service.budget import Restraint
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot
from kavip.telemetry import ADDRESS_CONFLICTS, ALLOCATION_SECONDS, RECONCILE_SECONDS, RECONCILES, RESULTS

log = structlog.get_logger()

WORKERS: Final = 32  # as many status writes in flight: five to seven times as fast as one after the other
FOLD: Final = 0.3  # seconds within which the changes of a group make one new configuration
POOL_REST: Final = 1.0  # seconds between two status writes of a pool; FOLD where addresses cool down
_RESULTS: Final = {  # looked up once: labels() costs as much as a small plan
    (kind, result): RECONCILES.labels(kind, result) for kind in KeyKind for result in RESULTS
}
_SECONDS: Final = {kind: RECONCILE_SECONDS.labels(kind) for kind in KeyKind}
BREATHER: Final = 0.05  # seconds by which the plan of a group lets the write go that it follows from
_BREATHS: Final = 4  # times as long as a group's plan took, the group rests


class Eye(Protocol):
    """What the worker needs of the probe."""

    @property
    def agents(self) -> AgentStates:
        """The agents' last answers."""

    def aim(self, group: str, target: ProbeTarget | None) -> None:
        """Look at these nodes from now on."""


Notify = Callable[[Key, Notice], None]
"""Sends an Event about the object of a key; must neither wait nor raise."""


class Worker:
    """Works the keys of *queue* off."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        objects: OwnedObjects,
        records: Records,
        pending: PendingWrites,
        rivals: OperatorWatch,
        queue: WorkQueue[Key],
        writer: Writer,
        eye: Eye,
        notify: Notify,
        options: ReconcileOptions,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*now* is the wall clock, *clock* the monotonic one that rests and strangers are dated by."""
        self._snapshot, self._objects, self._records, self._rivals = snapshot, objects, records, rivals
        self._queue, self._writer, self._pending = queue, writer, pending
        self._eye, self._notify, self._options, self._now, self._clock = eye, notify, options, now, clock
        self._rests: dict[Key, float] = {}
        self._restraint = Restraint()
        self._since: dict[Key, float] = {}  # when a Service that is to be looked at was seen

    def add(self, key: Key) -> None:
        """Something has happened that concerns *key*."""
        if key.kind is KeyKind.SERVICE:
            self._since.setdefault(key, self._clock())
        if key.kind is KeyKind.GROUP:
            self._queue.add_after(key, BREATHER)
        else:
            self._queue.add(key)

    def begin(self, start: Start) -> None:
        """Begin a term: who holds what he asks for lets everybody else pass."""
        for key in start.first:
            self.add(key)
        for key in start.settled:
            self._queue.add_low_priority(key)

    async def run(self, workers: int = WORKERS) -> None:
        """Work until the queue is closed or the task cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(workers):
                tasks.create_task(self._work(), name=f"worker {number}")

    async def _work(self) -> None:
        while True:
            try:
                async with self._queue.get() as key:
                    rest = self._rests.get(key, 0.0) - self._clock()
                    if key.kind is KeyKind.POOL:
                        rest = min(rest, self._end_cool_downs(key.name))
                    if key.kind is KeyKind.SERVICE and (service := self._snapshot.services.get(key.name)):
                        rest = self._restraint.pause(service, now=self._clock())
                    if rest > 0:
                        self._queue.add_after(key, rest)
                    elif not self._awaits_return(key):
                        await self._one(key)
            except QueueClosed:
                return

    def _end_cool_downs(self, pool: str) -> float:
        """Free what has cooled down, in whatever pool; the seconds until *pool* is to be looked at for the next."""
        now, cooldown = self._now(), self._snapshot.ledger.cooldown
        cooldown.expire(now)
        self.wake()
        return min(((entry.until - now).total_seconds() for entry in cooldown.of(pool)), default=inf)

    def _awaits_return(self, key: Key) -> bool:
        """
        Whether the cache still shows what our last status write was decided on.

        Whatever is decided on it again could only be refused. The watch brings the key back with the write: what has
        called for the key meanwhile is news that our own write does not answer, so its return is no mere echo.
        """
        shown = self._object(key)
        if shown is not None and self._pending.is_replaced(key, shown.metadata.resource_version):
            self._pending.requeue_on_return(key)
            return True
        self._pending.confirm(key)
        return False

    def _object(self, key: Key) -> Service | KeepalivedGroup | VIPPool | None:
        match key.kind:
            case KeyKind.SERVICE:
                return self._snapshot.services.get(key.name)
            case KeyKind.GROUP:
                return self._snapshot.any_group(key.name)
            case KeyKind.POOL:
                return self._snapshot.pools.get(key.name)

    async def _one(self, key: Key) -> None:
        started = self._clock()
        since = self._since.pop(key, started)
        result = "error"
        try:
            await self._reconcile(key, since)
            result = "done"
            self._queue.forget(key)
        except LeaseLost as error:
            result = "withheld"
            self._queue.add_rate_limited(key)
            log.info("write withheld", kind=key.kind, key=key.name, why=str(error))
        except Conflict:
            result = "conflict"
            self._queue.add_rate_limited(key)  # the watch brings what we did not know; it may come first
        except Throttled as error:
            self._queue.add_after(key, error.retry_after) if error.retry_after else self._queue.add_rate_limited(key)
        except ApiError as error:
            delay = self._queue.add_rate_limited(key)
            log.warning("write failed", kind=key.kind, key=key.name, error=str(error), retry_seconds=round(delay, 2))
        except Exception:  # the edge: one bad object must not stop the others
            self._queue.add_rate_limited(key)
            log.exception("plan failed", kind=key.kind, key=key.name)
            self._snapshot.ledger.waiters.answer(key.name)  # what it was called for, the next may take
            self.wake()
        if result != "done":
            self._since[key] = since
        _RESULTS[key.kind, result].inc()
        _SECONDS[key.kind].observe(self._clock() - started)

    async def _reconcile(self, key: Key, since: float) -> None:
        started = self._clock()
        decided = self._decide(key)
        gives = self._gives(key, decided)
        service = self._snapshot.services.get(key.name) if isinstance(decided, ServicePlan) and decided.writes else None
        is_claimed = self._snapshot.ledger.is_expecting(key.name)
        self._remember(key, decided)
        self._rest(key, decided, spent=self._clock() - started)
        if decided.writes:
            try:
                is_done = await self._writer.send(decided)
            except (Conflict, Rejected, Forbidden, LeaseLost) as error:
                if gives and isinstance(error, Conflict):
                    ADDRESS_CONFLICTS.labels(Contest.WRITE_CONFLICT).inc()
                if isinstance(decided, ServicePlan) and decided.claims is not None and not is_claimed:
                    self._forget_claims(key)
                raise
            if service is not None:
                self._restraint.spend(service, now=self._clock())
            if not is_done:
                self._queue.add(key)  # what stood in the way is known now, and belongs into the status
                return
        if gives:
            ALLOCATION_SECONDS.observe(self._clock() - since)
        for notice in decided.events:
            self._notify(key, notice)
        for other in decided.also:
            self._queue.add(other)
        if decided.requeue_after is not None:
            self._queue.add_after(key, decided.requeue_after)

    def _gives(self, key: Key, decided: Plan) -> bool:
        """Whether the Service gets an address that its status does not show."""
        service = self._snapshot.services.get(key.name)
        if service is None or not isinstance(decided, ServicePlan):
            return False
        return not set(decided.claims or ()).issubset(service.ingress_addresses)

    def _decide(self, key: Key) -> Plan:
        if hindrance := self._rivals.hindrance(self._clock()):
            return self._decide_hindered(key, hindrance)
        observed = Observed(self._eye.agents, self._objects, self._records)
        match key.kind:
            case KeyKind.SERVICE:
                return plan_service(
                    self._snapshot,
                    key.name,
                    now=self._now(),
                    observed=observed,
                    options=self._options,
                )
            case KeyKind.GROUP:
                return plan_group(
                    self._snapshot,
                    key.name,
                    now=self._now(),
                    observed=observed,
                    options=self._options,
                )
            case KeyKind.POOL:
                return plan_pool(self._snapshot, key.name, now=self._now())

    def _decide_hindered(self, key: Key, hindrance: WritesBlocked) -> Plan:
        match key.kind:
            case KeyKind.SERVICE:
                return ServicePlan()
            case KeyKind.GROUP:
                return plan_while_operator_runs(self._snapshot, key.name, hindrance, now=self._now())
            case KeyKind.POOL:
                return PoolPlan()

    def _remember(self, key: Key, decided: Plan) -> None:
        """Record what later decisions need. There is no `await` between the decision and this."""
        match decided:
            case ServicePlan():
                self._remember_service(key.name, decided)
            case GroupPlan():
                self._remember_group(key.name, decided)

    def _remember_service(self, key: str, decided: ServicePlan) -> None:
        service, ledger = self._snapshot.services.get(key), self._snapshot.ledger
        if service is None:
            self._records.removals.pop(key, None)
            self._restraint.forget(key)
            return
        if decided.claims is not None:
            ledger.expect(key, decided.claims, resource_version=service.metadata.resource_version)
        if decided.waits == () and not decided.unmet:
            ledger.waiters.drop(key)
        elif decided.waits is not None:
            request, _ = read_request(service, group=self._snapshot.group_of(service))
            ledger.wait(request, decided.waits, reason=decided.unmet)
        ledger.waiters.answer(key)
        self.wake()
        if decided.removal is not None:
            self._records.removals[key] = decided.removal

    def _remember_group(self, key: str, decided: GroupPlan) -> None:
        if key not in self._snapshot.groups:
            self._records.forget_group(key)
            self._eye.aim(key, None)
        if decided.record is not None:
            self._records.groups[key] = decided.record
        if decided.target is not None:
            self._eye.aim(key, decided.target)

    def wake(self) -> None:
        """Add the Services that wait for what has become free; to be called after the Snapshot has changed."""
        for name in self._snapshot.ledger.drain_requeues():
            self.add(Key(KeyKind.SERVICE, name))

    def _forget_claims(self, key: Key) -> None:
        """
        The status write was surely not done, and it was the first.

        One before it that timed out may have been done, and be the very reason of a conflict: claims that stood already
        stay until the watch shows what became of them.
        """
        self._snapshot.ledger.abandon(key.name)
        self.wake()

    def _rest(self, key: Key, decided: Plan, *, spent: float) -> None:
        """
        Fold what comes next: a first change goes at once, those that follow it go together.

        A group whose plan takes long, because it is large, rests in proportion: others want to be served as well.
        """
        if key.kind is KeyKind.SERVICE:
            return
        rest = spent * _BREATHS
        if key.kind is KeyKind.POOL and decided.writes:
            rest = POOL_REST if decided.requeue_after is None else FOLD
        elif any(not isinstance(write, StatusPatch) for write in decided.writes):
            rest = max(rest, FOLD)
        self._rests[key] = self._clock() + rest
