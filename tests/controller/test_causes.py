"""
What made another controller give one address twice, move holders, or leave Services waiting under faults.

Each was found in its audit log; each is reproduced here at the smallest level that shows it.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kavip.api.address import parse_address
from kavip.api.service import Service
from kavip.errors import Conflict, Unavailable
from kavip.kube.workqueue import WorkQueue
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind, ServicePlan
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Object
from tests.controller.workerfixture import WorkerFixture
from tests.reconcile.simulatedcluster import GROUP, NOW, cluster
from tests.support import build

SIX = "2001:db8::1"
POOL = build.pool("edge", "192.0.2.128/32")
WEB = Key(KeyKind.SERVICE, "shop/web")
LATE = Key(KeyKind.SERVICE, "shop/late")


def web(key: str = "shop/web", *, version: str = "1", **more: Any) -> Service:
    """A Service of the group; the one named late is younger."""
    made = build.service(key, group=GROUP, created=f"2026-01-01T00:00:0{int('late' in key)}Z", **more)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, resource_version=version))


@asynccontextmanager
async def patient(*objects: Object) -> AsyncIterator[WorkerFixture]:
    """A worker over *objects* that retries a failed key after minutes, unless it is requeued."""
    fixture = WorkerFixture(cluster(*objects))
    fixture.queue = fixture.worker._queue = WorkQueue(base=600.0, cap=600.0)
    task = asyncio.create_task(fixture.worker.run(1))
    try:
        yield fixture
    finally:
        fixture.queue.close()
        await task


def written(fixture: WorkerFixture, key: Key) -> list[ServicePlan]:
    """The writes for *key*."""
    return [plan for plan in fixture.writer.sent if any(write.key == key.name for write in plan.writes)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_a_second_family_is_not_completed_with_an_address_whose_holder_comes_later(
    order: tuple[int, ...],
) -> None:
    """After a restart the older Service is planned first, but the ledger already has the holder of the address."""
    dual: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"}
    objects = (
        web(holds=["192.0.2.128"], **dual),
        web("shop/late", holds=[SIX], families=("IPv6",)),
        build.pool("edge", "192.0.2.128/31", f"{SIX}/128"),
        build.group(),
    )
    snapshot = cluster(*(objects[number] for number in order))
    first = next(iter(enqueue.everything(snapshot)))
    assert first == WEB
    plan = plan_service(snapshot, first.name, now=NOW)
    assert plan.claims is None or parse_address(SIX) not in plan.claims
    assert snapshot.ledger.held("shop/late") == (parse_address(SIX),)


async def test_a_conflict_does_not_clear_the_expectation_of_the_write_before() -> None:
    """The first write succeeded and its response was lost. It causes the 409, and no other Service gets its address."""
    async with patient(web(), web("shop/late"), build.group(), POOL) as fixture:
        fixture.writer.answers = [Unavailable(0, "NoConnection", "reset"), Conflict(409, "Conflict", "stale")]
        for failures in (1, 2):
            fixture.queue.add(WEB)
            await fixture.until(lambda: fixture.queue.failures(WEB) == failures)  # noqa: B023 - waited for at once
        fixture.queue.add(LATE)
        await fixture.until(lambda: written(fixture, LATE))
        assert not any(plan.claims for plan in written(fixture, LATE))


async def test_a_stale_copy_frees_nothing() -> None:
    """The cache repeatedly shows the Service as it was before the write: the address stays in use."""
    async with patient(web(), web("shop/late"), build.group(), POOL) as fixture:
        fixture.queue.add(WEB)
        await fixture.until(lambda: written(fixture, WEB))
        fixture.snapshot.put(web())  # an event that is older than the write
        fixture.queue.add(LATE)
        await fixture.until(lambda: written(fixture, LATE))
        assert not any(plan.claims for plan in written(fixture, LATE))


async def test_a_waiting_service_is_served_when_an_address_is_freed_and_not_after_its_back_off() -> None:
    """Its last write failed and would be retried in ten minutes, but the address is free now."""
    async with patient(web(holds=["192.0.2.128"]), web("shop/late"), build.group(), POOL) as fixture:
        fixture.writer.answers = [Unavailable(503, "Busy", "later")]
        fixture.queue.add(LATE)
        await fixture.until(lambda: fixture.queue.failures(LATE) == 1)
        fixture.snapshot.drop("Service", "shop/web")
        fixture.worker.requeue_waiters()
        await fixture.until(lambda: any(plan.claims for plan in written(fixture, LATE)))
