"""A worker with its collaborators, some of them fakes, without an API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

from kavip.controller.templaterenderer import TemplateRenderer
from kavip.controller.worker import Worker
from kavip.kube.workqueue import WorkQueue
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.operator import OperatorWatch
from kavip.reconcile.observed.records import Records
from kavip.reconcile.observed.templates import ConfigTemplates
from kavip.reconcile.plan import Key, KeyKind, Notice, Plan, ProbeTarget, ReconcileOptions
from kavip.reconcile.predicate import PendingWrites
from kavip.snapshot import Object, Snapshot
from tests.reconcile.simulatedcluster import GROUP, NOW, cluster
from tests.support import build

PATIENCE = 60.0


class FakeWriter:
    """A fake writer that records plans; *answers* are raised or called, one per plan."""

    def __init__(self) -> None:
        """Every write succeeds until *answers* is set."""
        self.sent: list[Any] = []  # Plans of any kind
        self.answers: list[Exception | Callable[[], bool]] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def send(self, plan: Plan) -> bool:
        """Record *plan*."""
        self.sent.append(plan)
        await self.hold.wait()
        answer = self.answers.pop(0) if self.answers else (lambda: True)
        if isinstance(answer, Exception):
            raise answer
        return answer()


class FakeProber:
    """A fake prober with a fixed state."""

    def __init__(self) -> None:
        """Start without answers."""
        self.agents = AgentStates()
        self.targets: dict[str, ProbeTarget | None] = {}

    def set_target(self, group: str, target: ProbeTarget | None) -> None:
        """Record the target."""
        self.targets[group] = target


class WorkerFixture:
    """A worker with its collaborators, some of them fakes."""

    def __init__(self, snapshot: Snapshot, **options: Any) -> None:
        """Create a worker with a fake writer and a clock of the test."""
        self.snapshot, self.objects, self.writer, self.fake_prober = (
            snapshot,
            OwnedObjects(),
            FakeWriter(),
            FakeProber(),
        )
        self.records, self.pending, self.operator = Records(), PendingWrites(), OperatorWatch()
        self.queue: WorkQueue[Key] = WorkQueue(base=0.01, cap=0.05)
        self.renderer = TemplateRenderer(
            ConfigTemplates(), changed=lambda group: self.queue.add(Key(KeyKind.GROUP, group)), read=AsyncMock()
        )
        self.notices: list[tuple[Key, Notice]] = []
        self.seconds, self.now = 0.0, NOW
        self.worker = Worker(
            snapshot=snapshot,
            objects=self.objects,
            records=self.records,
            pending=self.pending,
            operator=self.operator,
            queue=self.queue,
            writer=self.writer,  # type: ignore[arg-type]  # as much of it as the worker uses
            prober=self.fake_prober,
            renderer=self.renderer,
            notify=lambda key, notice: self.notices.append((key, notice)),
            options=ReconcileOptions(**options),
            now=lambda: self.now,
            clock=lambda: self.seconds,
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until *condition* holds."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def running_worker(*objects: Object, workers: int = 2, **more: Any) -> AsyncIterator[WorkerFixture]:
    """A running worker with *objects* in its Snapshot."""
    fixture = WorkerFixture(cluster(*objects), **more)
    task = asyncio.create_task(fixture.worker.run(workers))
    try:
        yield fixture
    finally:
        fixture.queue.close()
        await task


def web(key: str = "shop/web", **more: Any) -> Any:
    """A Service of the group."""
    return build.service(key, group=GROUP, **more)
