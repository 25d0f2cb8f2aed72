"""A worker with everything around it, and no API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kavip.controller.worker import Worker
from kavip.kube.workqueue import WorkQueue
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.operator import OperatorWatch
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Key, Notice, Plan, ProbeTarget, ReconcileOptions
from kavip.reconcile.predicate import PendingWrites
from kavip.snapshot import Object, Snapshot
from tests.reconcile.world import GROUP, NOW, cluster
from tests.support import build

PATIENCE = 60.0


class Paper:
    """A fake writer that records plans; *answers* are raised or called, one per plan."""

    def __init__(self) -> None:
        """Every write succeeds until *answers* is set."""
        self.sent: list[Any] = []  # Plans of any kind
        self.answers: list[Exception | Callable[[], bool]] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def send(self, plan: Plan) -> bool:
        """Note *plan*."""
        self.sent.append(plan)
        await self.hold.wait()
        answer = self.answers.pop(0) if self.answers else (lambda: True)
        if isinstance(answer, Exception):
            raise answer
        return answer()


class Eye:
    """A fake prober with a fixed state."""

    def __init__(self) -> None:
        """Start without answers."""
        self.agents = AgentStates()
        self.targets: dict[str, ProbeTarget | None] = {}

    def set_target(self, group: str, target: ProbeTarget | None) -> None:
        """Note the target."""
        self.targets[group] = target


class Shop:
    """A worker with everything around it."""

    def __init__(self, snapshot: Snapshot, *, ipam: str = "auto") -> None:
        """Create a worker with a fake writer and a clock of the test."""
        self.snapshot, self.objects, self.writer, self.eye = snapshot, OwnedObjects(), Paper(), Eye()
        self.records, self.pending, self.operator = Records(), PendingWrites(), OperatorWatch()
        self.queue: WorkQueue[Key] = WorkQueue(base=0.01, cap=0.05)
        self.told: list[tuple[Key, Notice]] = []
        self.seconds, self.now = 0.0, NOW
        self.worker = Worker(
            snapshot=snapshot,
            objects=self.objects,
            records=self.records,
            pending=self.pending,
            operator=self.operator,
            queue=self.queue,
            writer=self.writer,  # type: ignore[arg-type]  # as much of it as the worker uses
            prober=self.eye,
            notify=lambda key, notice: self.told.append((key, notice)),
            options=ReconcileOptions(ipam=ipam),
            now=lambda: self.now,
            clock=lambda: self.seconds,
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until *condition* holds."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def working(*objects: Object, workers: int = 2, **more: Any) -> AsyncIterator[Shop]:
    """A running worker with *objects* in its Snapshot."""
    shop = Shop(cluster(*objects), **more)
    task = asyncio.create_task(shop.worker.run(workers))
    try:
        yield shop
    finally:
        shop.queue.close()
        await task


def web(key: str = "shop/web", **more: Any) -> Any:
    """A Service of the group."""
    return build.service(key, group=GROUP, **more)
