"""
One replica of the controller: its own caches, and while it leads a queue, workers and a writer, all of them the real
ones.

What groups make is left out (DaemonSets and the like): a Service's address does not depend on it.
"""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fuzz.histories.line import Line
from fuzz.histories.loop import Loop
from fuzz.histories.server import Server
from kavip.caches import Caches
from kavip.controller import wakes
from kavip.controller.apply import Writer
from kavip.controller.observed import Observed
from kavip.controller.outcome import Key, Kind, Notice, Options, Target
from kavip.controller.worker import Worker
from kavip.kube.workqueue import WorkQueue

EPOCH: Final = datetime(2026, 6, 1, tzinfo=UTC)
WORKERS: Final = 3
BACKOFF: Final = 1.0


class _Blind:
    """No agents are asked."""

    observed = Observed()

    def aim(self, group: str, target: Target | None) -> None:
        """Look nowhere."""


class Replica:
    """See the module."""

    def __init__(self, server: Server, loop: Loop, name: str) -> None:
        """Watching, not leading."""
        self.name, self.loop = name, loop
        self.line = Line(server, name)
        client: Any = self.line
        self.caches = Caches(client, owned=False)
        self.told: list[tuple[Key, Notice]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._term: list[asyncio.Task[Any]] = []
        self.queue: WorkQueue[Key] | None = None
        for informer in self.caches.informers:
            self._start(self._tasks, informer.run())
        loop.spin()

    @property
    def now(self) -> datetime:
        """The wall clock."""
        return EPOCH + timedelta(seconds=self.loop.time())

    def lead(self) -> None:
        """Begin a term, as :class:`kavip.leading.Leading` does."""
        queue: WorkQueue[Key] = WorkQueue(base=0.05, cap=BACKOFF)
        client: Any = self.line
        writer = Writer(client, self.caches.objects, now=lambda: self.now)
        worker = Worker(
            snapshot=self.caches.snapshot,
            objects=self.caches.objects,
            queue=queue,
            writer=writer,
            eye=_Blind(),
            notify=lambda key, notice: self.told.append((key, notice)),
            options=Options(),
            now=lambda: self.now,
            clock=self.loop.time,
        )

        def add(key: Key) -> None:
            if key.kind is not Kind.GROUP:
                worker.add(key)

        for key in wakes.everything(self.caches.snapshot):
            add(key)
        self.queue, self.caches.wake = queue, add
        self._start(self._term, worker.run(WORKERS))
        self.loop.spin()

    def resign(self) -> None:
        """The term ends; what is on its way may still arrive."""
        self.caches.rest()
        self.queue = None
        self._end(self._term)

    def die(self) -> None:
        """The process is gone."""
        self.resign()
        self._end(self._tasks)

    def check(self) -> None:
        """Nothing that runs has failed."""
        for task in (*self._tasks, *self._term):
            if task.done() and not task.cancelled():
                task.result()

    def _start(self, tasks: list[asyncio.Task[Any]], work: Coroutine[Any, Any, Any]) -> None:
        tasks.append(self.loop.create_task(work))

    def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        self.check()
        for task in tasks:
            task.cancel()
        self.loop.spin()
        tasks.clear()
