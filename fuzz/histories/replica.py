"""
One replica of the controller: its own caches and, while it leads, a queue, workers and a writer, all of them real.

Groups are not reconciled (DaemonSets and ConfigMaps): the address of a Service does not depend on that.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest.mock import AsyncMock

from fuzz.histories.fakeclient import FakeClient
from fuzz.histories.loop import Loop
from fuzz.histories.server import Server
from kavip.caches import Caches
from kavip.controller.templaterenderer import TemplateRenderer
from kavip.controller.worker import Worker
from kavip.controller.writer import Writer
from kavip.kube.workqueue import WorkQueue
from kavip.reconcile import enqueue
from kavip.reconcile.group.outdated import Outdated
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Key, KeyKind, Notice, Plan, ProbeTarget, ReconcileOptions
from kavip.reconcile.service.reconcile import plan_service

EPOCH: Final = datetime(2026, 6, 1, tzinfo=UTC)
WORKERS: Final = 3
BACKOFF: Final = 1.0


class _NoProber:
    """A prober without agents."""

    agents = AgentStates()

    def set_target(self, group: str, target: ProbeTarget | None) -> None:
        """Ignore the target."""


class _RecordingWorker(Worker):
    """A worker that keeps its first exception."""

    error: Exception | None = None

    def _decide(self, key: Key) -> tuple[Plan, Iterable[Outdated]]:
        try:
            return super()._decide(key)
        except Exception as error:  # raised again for the worker, kept for raise_errors()
            self.error = self.error or error
            raise


class Replica:
    """See the module."""

    def __init__(self, server: Server, loop: Loop, name: str) -> None:
        """Start the watches; the replica does not lead yet."""
        self.name, self.loop = name, loop
        self.client = FakeClient(server, name)
        client: Any = self.client
        self.caches = Caches(client, owned=False, now=lambda: self.now)
        self.caches.open()
        self.records = Records()
        self.notices: list[tuple[Key, Notice]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._term: list[asyncio.Task[Any]] = []
        self.queue: WorkQueue[Key] | None = None
        self.worker: _RecordingWorker | None = None
        for informer in self.caches.informers:
            self._start(self._tasks, informer.run())
        loop.spin()

    @property
    def now(self) -> datetime:
        """The wall clock."""
        return EPOCH + timedelta(seconds=self.loop.time())

    @property
    def leads(self) -> bool:
        """Whether its term has begun: the caches have the writes of the previous leader."""
        return self.queue is not None

    def lead(self) -> None:
        """Begin a term."""
        self._start(self._term, self._lead())
        self.loop.spin()

    async def _lead(self) -> None:
        """Serve one term, as :class:`kavip.controller.leadership.Leading` does."""
        await self.caches.refresh()
        self.records.settle()
        queue: WorkQueue[Key] = WorkQueue(base=0.05, cap=BACKOFF)
        client: Any = self.client
        self.worker = worker = _RecordingWorker(
            snapshot=self.caches.snapshot,
            objects=self.caches.objects,
            records=self.records,
            pending=self.caches.pending,
            operator=self.caches.operator,
            queue=queue,
            writer=Writer(client, self.records, self.caches.pending, now=lambda: self.now),
            prober=_NoProber(),
            renderer=TemplateRenderer(self.caches.templates, changed=lambda _: None, read=AsyncMock()),
            notify=lambda key, notice: self.notices.append((key, notice)),
            options=ReconcileOptions(),
            now=lambda: self.now,
            clock=self.loop.time,
        )

        def add(key: Key) -> None:
            if key.kind is not KeyKind.GROUP:
                worker.add(key)

        self.caches.lead(add)
        first, settled = enqueue.start(self.caches.snapshot)
        worker.begin(enqueue.Start(tuple(key for key in first if key.kind is not KeyKind.GROUP), settled))
        self.queue = queue
        await worker.run(WORKERS)

    def resign(self) -> None:
        """End the term; open writes may still succeed."""
        self._end(self._term)
        self.caches.follow()
        self.queue = None

    def die(self) -> None:
        """End the process."""
        self.resign()
        self._end(self._tasks)

    def raise_errors(self) -> None:
        """Raise the error of a failed task or decision."""
        if self.worker is not None and self.worker.error is not None:
            raise self.worker.error
        for task in (*self._tasks, *self._term):
            if task.done() and not task.cancelled():
                task.result()

    def forgotten(self) -> list[str]:
        """
        The Services whose addresses differ from the plan, and which nothing will enqueue.

        A Service is not forgotten if its key is queued, in process or in a back-off, if a write whose event enqueues it
        is open, or if it waits for a pool for which another Service was requeued: it is requeued after that one.
        """
        queue, snapshot = self.queue, self.caches.snapshot
        if queue is None:
            return []
        waiting = snapshot.ledger.waiters
        called = {pool for pools in waiting._called.values() for pool in pools}  # noqa: SLF001 - not public
        coming = queue._dirty | queue._processing | queue._timers.keys()  # noqa: SLF001 - not public
        coming |= self.caches.pending.returning()
        found = []
        for key in snapshot.services:
            waiter = waiting._waiters.get(key)  # noqa: SLF001 - not public
            if Key(KeyKind.SERVICE, key) in coming or (waiter is not None and not called.isdisjoint(waiter.pools)):
                continue
            plan = plan_service(snapshot, key, now=self.now, observed=Observed(records=self.records))
            held = snapshot.ledger.held(key)
            if plan.claims is not None and set(plan.claims) != set(held or ()):
                found.append(f"{key} has {held} and is to have {plan.claims}: {waiter}")
        return found

    def _start(self, tasks: list[asyncio.Task[Any]], work: Coroutine[Any, Any, Any]) -> None:
        tasks.append(self.loop.create_task(work))

    def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        self.raise_errors()
        for task in tasks:
            task.cancel()
        self.loop.spin()
        tasks.clear()
