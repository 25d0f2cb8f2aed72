"""How a term of leadership begins."""

import asyncio

from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from tests.controller.workerfixture import WorkerFixture, web
from tests.reconcile.simulatedcluster import cluster
from tests.support import build


async def test_a_service_created_while_a_term_begins_is_served_before_settled_ones() -> None:
    """A new Service, and a settled one with an event, are planned before thousands of settled Services."""
    crowd = [web(f"shop/s{n:02}", holds=[f"192.0.2.{128 + n}"]) for n in range(40)]
    fixture = WorkerFixture(cluster(build.group(), build.pool("edge", "192.0.2.128/25"), *crowd))
    fixture.worker.begin(enqueue.start(fixture.snapshot))
    fixture.snapshot.put(web("shop/new"))
    for name in ("shop/new", "shop/s30"):
        fixture.worker.add(Key(KeyKind.SERVICE, name))
    task = asyncio.create_task(fixture.worker.run(1))

    def served() -> list[str]:
        writes = (write for plan in fixture.writer.sent for write in plan.writes)
        return [write.key for write in writes if isinstance(write, StatusPatch) and write.kind is KeyKind.SERVICE]

    await fixture.until(lambda: len(served()) == len(crowd) + 1)
    fixture.queue.close()
    await task
    others = [each.key for each in crowd if each.key != "shop/s30"]
    assert served() == ["shop/new", "shop/s30", *others]
