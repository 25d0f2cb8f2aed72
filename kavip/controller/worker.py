"""
The workers: take a key from the queue, reconcile it, carry the Plan out, and requeue the key when that is due.

A decision and the claims that follow from it are made without an ``await`` between them, so no two workers assign one
address. Errors of the API server are retried with back-off. Any other error of a plan is counted, logged and retried
too: one bad object must not stop the others.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.controller.delays import Delays
from kavip.controller.writer import Writer
from kavip.errors import ApiError, Conflict, Forbidden, LeaseLost, QueueClosed, Rejected, Throttled
from kavip.kube.workqueue import WorkQueue
from kavip.names import Contest
from kavip.podtemplate.defaulttemplate import NO_TEMPLATE, DefaultTemplate
from kavip.reconcile.enqueue import Start
from kavip.reconcile.group.inactive import plan_while_operator_runs
from kavip.reconcile.group.outdated import Outdated
from kavip.reconcile.group.reconcile import begin_plan, compared
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.operator import OperatorWatch, WritesBlocked
from kavip.reconcile.observed.records import Records
from kavip.reconcile.observed.templates import ConfigTemplates
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
from kavip.reconcile.service.allocation import record_waits
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot
from kavip.telemetry import ADDRESS_CONFLICTS, ALLOCATION_SECONDS, RECONCILE_SECONDS, RECONCILES, RESULTS
from kavip.vrrp.configtemplate import RenderRequest

log = structlog.get_logger()

WORKERS: Final = 32
"""Status writes in flight: five to seven times as fast as one after the other."""
_RESULTS: Final = {  # looked up once: labels() costs as much as a small plan
    (kind, result): RECONCILES.labels(kind, result) for kind in KeyKind for result in RESULTS
}
_SECONDS: Final = {kind: RECONCILE_SECONDS.labels(kind) for kind in KeyKind}


class Prober(Protocol):
    """The part of :class:`~kavip.controller.prober.AgentProber` that the worker uses."""

    @property
    def agents(self) -> AgentStates:
        """The agents' last answers."""

    def set_target(self, group: str, target: ProbeTarget | None) -> None:
        """Ask these nodes from now on."""


class Renderer(Protocol):
    """The part of :class:`~kavip.controller.templaterenderer.TemplateRenderer` that the worker uses."""

    @property
    def templates(self) -> ConfigTemplates:
        """The templates that groups name, and what came out of them."""

    @property
    def read(self) -> Callable[[str], Awaitable[None]]:
        """Reads the template that a group names."""

    def ask(self, group: str, request: RenderRequest | None, *, now: datetime) -> None:
        """Render *request* for *group* from now on; None: nothing."""

    def forget(self, group: str) -> None:
        """Forget a *group* that is gone."""


Notify = Callable[[Key, Notice], None]
"""Sends an Event about the object of a key. It must neither wait nor raise."""


class Worker:
    """Reconciles the keys of *queue*."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        objects: OwnedObjects,
        records: Records,
        pending: PendingWrites,
        operator: OperatorWatch,
        queue: WorkQueue[Key],
        writer: Writer,
        prober: Prober,
        renderer: Renderer,
        notify: Notify,
        options: ReconcileOptions,
        template: Callable[[], DefaultTemplate] = lambda: NO_TEMPLATE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Do nothing before :meth:`run`.

        *template* is the patch of all pods, *renderer* renders those of ``keepalived.conf``. *now* is the wall clock,
        *clock* the monotonic one.
        """
        self._snapshot, self._objects, self._records, self._operator = snapshot, objects, records, operator
        self._queue, self._writer, self._pending = queue, writer, pending
        self._prober, self._notify, self._options, self._now, self._clock = prober, notify, options, now, clock
        self._template, self._renderer = template, renderer
        self._delays = Delays(snapshot, now=now, clock=clock)
        self._dirty_since: dict[Key, float] = {}  # of Services

    def add(self, key: Key) -> None:
        """Add *key*, whose plan may have changed."""
        if key.kind is KeyKind.SERVICE:
            self._dirty_since.setdefault(key, self._clock())
        if delay := self._delays.after_change(key):
            self._queue.add_after(key, delay)
        else:
            self._queue.add(key)

    def begin(self, start: Start) -> None:
        """Begin a term. Services that have what they request let all other keys pass."""
        for key in start.first:
            self.add(key)
        for key in start.settled:
            self._queue.add_low_priority(key)

    def requeue_waiters(self) -> None:
        """Add the Services that wait for what has become free. Call it after each change of the Snapshot."""
        for name in self._snapshot.ledger.drain_requeues():
            self.add(Key(KeyKind.SERVICE, name))

    async def run(self, workers: int = WORKERS) -> None:
        """Work until the queue is closed or the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(workers):
                tasks.create_task(self._work(), name=f"worker {number}")

    async def _work(self) -> None:
        while True:
            try:
                async with self._queue.get() as key:
                    if key.kind is KeyKind.POOL:
                        self._expire_cool_downs()
                    if (delay := self._delays.of(key)) > 0:
                        self._queue.add_after(key, delay)
                    elif self._is_stale(key):
                        self._pending.requeue_on_return(key)
                    else:
                        self._pending.confirm(key)
                        await self._reconcile_safely(key)
                    await asyncio.sleep(0)  # a plan without writes awaits nothing, and a new leader makes thousands
            except QueueClosed:
                return

    # --- may it be reconciled now -------------------------------------------------------------------------------------
    def _expire_cool_downs(self) -> None:
        """Free the addresses whose cool-down has ended, of any pool."""
        self._snapshot.ledger.cooldown.expire(self._now())
        self.requeue_waiters()

    def _is_stale(self, key: Key) -> bool:
        """
        Whether the cache still shows the version that our last status write has replaced.

        A write that is decided on it could only conflict. The watch requeues the key with the new version.
        """
        shown = self._object(key)
        return shown is not None and self._pending.is_replaced(key, shown.metadata.resource_version)

    def _object(self, key: Key) -> Service | KeepalivedGroup | VIPPool | None:
        match key.kind:
            case KeyKind.SERVICE:
                return self._snapshot.services.get(key.name)
            case KeyKind.GROUP:
                return self._snapshot.any_group(key.name)
            case KeyKind.POOL:
                return self._snapshot.pools.get(key.name)

    # --- one reconcile ------------------------------------------------------------------------------------------------
    async def _reconcile_safely(self, key: Key) -> None:
        """Reconcile *key*, count the result, and retry it if that fails."""
        started = self._clock()
        since = self._dirty_since.pop(key, started)
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
            self._queue.add_rate_limited(key)  # the watch brings the newer version, perhaps earlier
        except Throttled as error:
            self._queue.add_after(key, error.retry_after) if error.retry_after else self._queue.add_rate_limited(key)
        except ApiError as error:
            delay = self._queue.add_rate_limited(key)
            log.warning("write failed", kind=key.kind, key=key.name, error=str(error), retry_seconds=round(delay, 2))
        except Exception:  # the edge: one bad object must not stop the others
            self._queue.add_rate_limited(key)
            log.exception("plan failed", kind=key.kind, key=key.name)
            self._snapshot.ledger.waiters.answer(key.name)  # another Service may take what this one was called for
            self.requeue_waiters()
        if result != "done" and key.kind is KeyKind.SERVICE:
            self._dirty_since[key] = since
        _RESULTS[key.kind, result].inc()
        _SECONDS[key.kind].observe(self._clock() - started)

    async def _reconcile(self, key: Key, since: float) -> None:
        if key.kind is KeyKind.GROUP:
            await self._renderer.read(key.name)
        started = self._clock()
        plan, comparison = self._decide(key)
        assigns, was_claimed = self._assigns(key, plan), self._snapshot.ledger.is_expecting(key.name)
        self._record(key, plan)
        plan = self._delays.without_progress(key, plan)
        self._delays.postpone(key, plan, spent=self._clock() - started)
        if isinstance(plan, ServicePlan) and plan.is_rewording and not self._queue.has_low_priority(key):
            self._queue.add_low_priority(key)
            return
        if plan.writes and not await self._send(key, plan, assigns=assigns, was_claimed=was_claimed):
            self._queue.add(key)  # the next plan writes into the status what was in the way
            return
        if assigns:
            ALLOCATION_SECONDS.observe(self._clock() - since)
        for notice in plan.events:
            self._notify(notice.about or key, notice)
        self._requeue(key, plan)
        if comparison:
            await self._compare(key, comparison)

    def _decide(self, key: Key) -> tuple[Plan, Iterable[Outdated]]:
        """The plan of *key*, and the comparison of the Services that belongs to that of a group."""
        if blocked := self._operator.blocked(self._clock()):
            return self._decide_blocked(key, blocked), ()
        observed = Observed(
            self._prober.agents, self._objects, self._records, self._template(), self._renderer.templates
        )
        now, options = self._now(), self._options
        match key.kind:
            case KeyKind.SERVICE:
                return plan_service(self._snapshot, key.name, now=now, observed=observed, options=options), ()
            case KeyKind.GROUP:
                return begin_plan(self._snapshot, key.name, now=now, observed=observed, options=options)
            case KeyKind.POOL:
                return plan_pool(self._snapshot, key.name, now=now), ()

    def _decide_blocked(self, key: Key, blocked: WritesBlocked) -> Plan:
        match key.kind:
            case KeyKind.SERVICE:
                return ServicePlan()
            case KeyKind.GROUP:
                return plan_while_operator_runs(self._snapshot, key.name, blocked, now=self._now())
            case KeyKind.POOL:
                return PoolPlan()

    def _assigns(self, key: Key, plan: Plan) -> bool:
        """Whether *plan* assigns an address that the Service's status does not show."""
        service = self._snapshot.services.get(key.name)
        if service is None or not isinstance(plan, ServicePlan):
            return False
        return not set(plan.claims or ()).issubset(service.ingress_addresses)

    async def _compare(self, group: Key, comparison: Iterable[Outdated]) -> None:
        """Requeue the Services of *group* whose conditions are outdated; other keys get a turn between two batches."""
        found = list[Outdated]()
        await asyncio.sleep(0)
        started = self._clock()
        for batch in comparison:
            self._delays.prolong(group, spent=self._clock() - started)
            for service in batch.services:
                self._queue.add(service)
            for service in batch.reworded:
                self._queue.add_low_priority(service)
            found.append(batch)
            await asyncio.sleep(0)
            started = self._clock()
        outdated = Outdated.merge(found)
        if record := self._records.groups.get(group.name):
            self._records.groups[group.name] = compared(record, outdated)
        if outdated.requeue_after is not None:
            self._queue.add_after(group, outdated.requeue_after)

    # --- what later decisions need ------------------------------------------------------------------------------------
    def _record(self, key: Key, plan: Plan) -> None:
        """Record what later decisions need. No ``await`` may come between the decision and this."""
        match plan:
            case ServicePlan():
                self._record_service(key.name, plan)
            case GroupPlan():
                self._record_group(key.name, plan)

    def _record_service(self, key: str, plan: ServicePlan) -> None:
        service, ledger = self._snapshot.services.get(key), self._snapshot.ledger
        if service is None:
            self._records.removals.pop(key, None)
            self._delays.forget(key)
            return
        if plan.claims is not None:
            ledger.expect(key, plan.claims, resource_version=service.metadata.resource_version)
        record_waits(self._snapshot, service, plan)
        for address in plan.withdrawn:
            ledger.cooldown.withdraw(address, key, now=self._now())
        self.requeue_waiters()
        if plan.removal is not None:
            self._records.removals[key] = plan.removal

    def _record_group(self, key: str, plan: GroupPlan) -> None:
        if key not in self._snapshot.groups:
            self._records.forget_group(key)
            self._prober.set_target(key, None)
            self._renderer.forget(key)
        self._renderer.ask(key, plan.rendering, now=self._now())
        if plan.record is not None:
            self._records.groups[key] = plan.record
        if plan.target is not None:
            self._prober.set_target(key, plan.target)
        if plan.pod_allowance is not None:
            self._records.pod_allowance = plan.pod_allowance

    # --- after the decision -------------------------------------------------------------------------------------------
    async def _send(self, key: Key, plan: Plan, *, assigns: bool, was_claimed: bool) -> bool:
        """Send the writes of *plan*; False: an object was in the way."""
        service = self._snapshot.services.get(key.name) if isinstance(plan, ServicePlan) else None
        try:
            is_done = await self._writer.send(plan)
        except (Conflict, Rejected, Forbidden, LeaseLost) as error:
            if assigns and isinstance(error, Conflict):
                ADDRESS_CONFLICTS.labels(Contest.WRITE_CONFLICT).inc()
            if isinstance(plan, ServicePlan) and plan.claims is not None and not was_claimed:
                self._abandon_claims(key)
            raise
        if service is not None:
            self._delays.spend(service)
        if is_done and any(isinstance(each, StatusPatch) for each in plan.writes):
            self._delays.begin_interval(key)
        return is_done

    def _abandon_claims(self, key: Key) -> None:
        """
        Free what the status write was to assign: it was certainly not carried out, and it was the first one.

        An earlier write that timed out may have been carried out, and may have caused the conflict. Claims of such a
        write stay until the watch shows its result.
        """
        self._snapshot.ledger.abandon(key.name)
        self.requeue_waiters()

    def _requeue(self, key: Key, plan: Plan) -> None:
        for other in plan.also:
            self._queue.add(other)
        for other in plan.also_low_priority if isinstance(plan, GroupPlan) else ():
            self._queue.add_low_priority(other)
        if plan.requeue_after is None:
            return
        if isinstance(plan, ServicePlan) and plan.is_rewording:
            self._queue.add_low_priority_after(key, plan.requeue_after)
        else:
            self._queue.add_after(key, plan.requeue_after)
