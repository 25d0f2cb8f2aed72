"""How many status writes an allocation costs, and a restart: counted between worker and caches."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from kavip.caches import Caches
from kavip.controller.worker import Worker
from kavip.kube.client import Client
from kavip.kube.workqueue import WorkQueue
from kavip.reconcile import enqueue
from kavip.reconcile.observed.nodes import AgentStates
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Key, KeyKind, Plan, ReconcileOptions, StatusPatch
from kavip.snapshot import Object
from tests.reconcile.scenes import GROUP, NOW, World, cluster
from tests.support import build

PATIENCE = 60.0
COUNT = 8


class Server:
    """An API server and its watch: status writes of Services are done, and come back before or after the answer."""

    def __init__(self, caches: Caches, *, early: bool) -> None:
        """*early*: the watch is faster than the answer."""
        self.caches, self.early = caches, early
        self.writes: Counter[str] = Counter()

    async def send(self, plan: Plan) -> bool:
        """Do the status writes of *plan*, as :class:`kavip.controller.writer.Writer` would have them done."""
        for write in plan.writes:
            if isinstance(write, StatusPatch) and write.kind is KeyKind.SERVICE:
                self.caches.pending.send(write)
                self.writes[write.key] += 1
                before, after = self._patched(write)
                if self.early:
                    self.caches._take(before, after)
                await asyncio.sleep(0)
                if not self.early:
                    self.caches.pending.accept(write, after.metadata.resource_version)
                    asyncio.get_running_loop().call_soon(self.caches._take, before, after)
        return True

    def _patched(self, write: StatusPatch) -> tuple[Any, Any]:
        before = self.caches.snapshot.services[write.key]
        world = World(cluster(before))
        world._patch(write)
        return before, world.snapshot.services[write.key]


class Eye:
    """A probe that has seen nothing."""

    agents = AgentStates()

    def aim(self, group: str, target: object) -> None:
        """Look nowhere."""


@asynccontextmanager
async def leading(caches: Caches, server: Server) -> AsyncIterator[WorkQueue[Key]]:
    """A leader over *caches* that begins with everything."""
    queue: WorkQueue[Key] = WorkQueue()
    worker = Worker(
        snapshot=caches.snapshot,
        objects=caches.objects,
        records=Records(),
        pending=caches.pending,
        rivals=caches.rivals,
        queue=queue,
        writer=server,  # type: ignore[arg-type]  # as much of it as the worker uses
        eye=Eye(),
        notify=lambda key, notice: None,
        options=ReconcileOptions(),
        now=lambda: NOW,
    )
    caches.lead(worker.add)
    for key in enqueue.everything(caches.snapshot):
        worker.add(key)
    task = asyncio.create_task(worker.run(4))
    try:
        yield queue
    finally:
        caches.follow()
        queue.close()
        await task


async def rest(queue: WorkQueue[Key]) -> None:
    """Wait until nothing is left to do, returns through the watch included."""
    async with asyncio.timeout(PATIENCE):
        quiet = 0
        while quiet < 5:
            await asyncio.sleep(0.01)
            quiet = 0 if len(queue) else quiet + 1


@pytest.mark.parametrize("early", [True, False], ids=["watch first", "answer first"])
async def test_one_write_for_an_allocation_and_none_for_a_restart(early: bool) -> None:
    """Address and both conditions go in one write; who takes over what is held writes nothing, nor does a label."""
    services = [build.service(f"shop/s{number}", group=GROUP) for number in range(COUNT)]
    caches = Caches(cast(Client, None), owned=False)
    there: list[Object] = [build.group(), build.pool(), build.node("n1", "192.0.2.11"), *services]
    for each in there:
        caches._take(None, each)
    server = Server(caches, early=early)
    async with leading(caches, server) as queue:
        await rest(queue)
    assert server.writes == {each.key: 1 for each in services}
    async with leading(caches, server) as queue:
        await rest(queue)
        before = caches.snapshot.services["shop/s0"]
        metadata = msgspec.structs.replace(before.metadata, labels={"a": "b"}, resource_version="5000")
        caches._take(before, msgspec.structs.replace(before, metadata=metadata))
        await rest(queue)
    assert server.writes.total() == COUNT
    assert all(each.ingress_addresses for each in caches.snapshot.services.values())
