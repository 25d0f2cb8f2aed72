"""An API server and its watch in memory, and a leader that works against it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from unittest.mock import AsyncMock

from kavip.caches import Caches
from kavip.controller.templaterenderer import TemplateRenderer
from kavip.controller.worker import Worker
from kavip.kube.workqueue import WorkQueue
from kavip.reconcile import enqueue
from kavip.reconcile.enqueue import Start
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Key, KeyKind, Plan, ReconcileOptions, StatusPatch
from tests.reconcile.simulatedcluster import NOW, SimulatedCluster, cluster

PATIENCE = 60.0


class Server:
    """Carries out status writes; the watch shows each before or after its answer."""

    def __init__(self, caches: Caches, *, early: bool = False, seconds: float = 0.0) -> None:
        """*early*: the watch is faster than the answer. *seconds*: what a write takes."""
        self.caches, self.early, self.seconds = caches, early, seconds
        self.sent: list[str] = []

    @property
    def writes(self) -> Counter[str]:
        """The number of writes of each Service."""
        return Counter(self.sent)

    async def send(self, plan: Plan) -> bool:
        """Carry out the status writes of *plan*, as :class:`kavip.controller.writer.Writer` sends them."""
        for write in plan.writes:
            if isinstance(write, StatusPatch) and write.kind is KeyKind.SERVICE:
                self.caches.pending.send(write)
                self.sent.append(write.key)
                before, after = self._patched(write)
                if self.early:
                    self.caches._update(before, after)
                await asyncio.sleep(self.seconds)
                if not self.early:
                    self.caches.pending.accept(write, after.metadata.resource_version)
                    asyncio.get_running_loop().call_soon(self.caches._update, before, after)
        return True

    def _patched(self, write: StatusPatch) -> tuple[Any, Any]:
        before = self.caches.snapshot.services[write.key]
        simulation = SimulatedCluster(cluster(before))
        simulation._patch(write)
        return before, simulation.snapshot.services[write.key]


class Prober:
    """A prober whose answers the test sets."""

    def __init__(self) -> None:
        """No agent has answered."""
        self.agents = AgentStates()

    def set_target(self, group: str, target: object) -> None:
        """Ignore the target."""


@asynccontextmanager
async def leading(
    caches: Caches,
    server: Server,
    *,
    records: Records | None = None,
    prober: Prober | None = None,
    start: Callable[[Caches], Start] = lambda caches: Start(tuple(enqueue.everything(caches.snapshot)), ()),
    now: Callable[[], datetime] = lambda: NOW,
    workers: int = 4,
) -> AsyncIterator[WorkQueue[Key]]:
    """A leader over *caches* that begins with *start*."""
    queue: WorkQueue[Key] = WorkQueue()
    worker = Worker(
        snapshot=caches.snapshot,
        objects=caches.objects,
        records=records or Records(),
        pending=caches.pending,
        operator=caches.operator,
        queue=queue,
        writer=server,  # type: ignore[arg-type]  # as much of it as the worker uses
        prober=prober or Prober(),
        renderer=TemplateRenderer(caches.templates, changed=lambda _: None, read=AsyncMock()),
        notify=lambda key, notice: None,
        options=ReconcileOptions(),
        now=now,
        clock=asyncio.get_running_loop().time,
    )
    caches.lead(worker.add)
    worker.begin(start(caches))
    task = asyncio.create_task(worker.run(workers))
    try:
        yield queue
    finally:
        caches.follow()
        queue.close()
        await task


async def idle(queue: WorkQueue[Key]) -> None:
    """Wait until no key is ready, returns through the watch included."""
    async with asyncio.timeout(PATIENCE):
        quiet = 0
        while quiet < 5:
            await asyncio.sleep(0.01)
            quiet = 0 if len(queue) else quiet + 1
