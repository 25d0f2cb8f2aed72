"""The worker requeues the Services that wait when an address becomes free."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.controller import worker
from kavip.ipam.request import read_request
from kavip.reconcile.plan import Key, KeyKind, Plan, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot
from tests.controller.workerfixture import running_worker, web
from tests.reconcile.simulatedcluster import NOW
from tests.support import build

WEB = Key(KeyKind.SERVICE, "shop/web")
VIP = parse_address("192.0.2.128")


async def test_after_a_failed_plan_the_next_waiting_service_gets_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A freed address requeues the oldest waiting Service. If its plan fails, the next one gets the address."""

    def failing(snapshot: Snapshot, key: str, **more: Any) -> Plan:
        if key == "shop/a":
            raise ZeroDivisionError
        return plan_service(snapshot, key, **more)

    monkeypatch.setattr(worker, "plan_service", failing)
    holder = web("shop/h", holds=["192.0.2.128"])
    small = build.pool("edge", "192.0.2.128/32")
    young, old = (web(f"shop/{name}", created=f"202{age}-01-01T00:00:00Z") for age, name in ((1, "b"), (0, "a")))
    async with running_worker(holder, young, old, build.group(), small) as fixture:
        assert fixture.snapshot.parsed_pools.in_force
        for each in (old, young):
            fixture.snapshot.ledger.wait(read_request(each)[0], ["edge"])
        fixture.snapshot.drop(names.SERVICE, "shop/h")
        fixture.worker.requeue_waiters()
        await fixture.until(lambda: fixture.writer.sent)
        assert [(plan.writes[0].key, plan.claims) for plan in fixture.writer.sent] == [("shop/b", (VIP,))]


async def test_a_waiting_service_in_deletion_does_not_block_the_next() -> None:
    """It gets no address, and does not delay the others until it is deleted."""
    old = web("shop/a", created="2020-01-01T00:00:00Z")
    young = web("shop/b", created="2021-01-01T00:00:00Z")
    holder = web("shop/h", holds=["192.0.2.128"])
    leaving = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, deletion_timestamp="2026-01-02T00:00:00Z")
    )
    async with running_worker(holder, young, old, build.group(), build.pool("edge", "192.0.2.128/32")) as fixture:
        assert fixture.snapshot.parsed_pools.in_force
        for each in (old, young):
            fixture.snapshot.ledger.wait(read_request(each)[0], ["edge"])
        fixture.snapshot.put(leaving)
        fixture.snapshot.drop(names.SERVICE, "shop/h")
        fixture.worker.requeue_waiters()
        await fixture.until(lambda: fixture.writer.sent)
        assert [plan.claims for plan in fixture.writer.sent] == [(VIP,)]


async def test_an_address_after_its_cool_down_goes_to_a_waiting_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool is planned at the end of a cool-down in spite of the debounce. Its status is written once for all."""
    monkeypatch.setattr("kavip.controller.delays.FOLD", 60.0)
    pool = build.pool("edge", "192.0.2.128/32", cooldown_seconds=60)
    async with running_worker(web("shop/a", holds=["192.0.2.128"]), web("shop/b"), build.group(), pool) as fixture:
        fixture.snapshot.ledger.cooldown.lead(NOW)
        fixture.snapshot.drop(names.SERVICE, "shop/a")
        fixture.snapshot.ledger.cooldown.start(NOW)
        fixture.queue.add(Key(KeyKind.POOL, "edge"))
        await fixture.until(lambda: fixture.writer.sent)
        fixture.queue.add(Key(KeyKind.SERVICE, "shop/b"))
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        (cooling,) = cooling_of(fixture.writer.sent[0])
        assert (cooling["address"], cooling["until"]) == ("192.0.2.128", "2026-03-01T12:01:00Z")
        assert fixture.writer.sent[1].claims is None
        fixture.now += timedelta(seconds=59.9)
        fixture.queue.add(Key(KeyKind.POOL, "edge"))
        await fixture.until(lambda: not len(fixture.queue))
        assert len(fixture.writer.sent) == 2  # debounced only until the end of the cool-down
        fixture.now += timedelta(seconds=0.1)
        await fixture.until(lambda: len(fixture.writer.sent) == 3)
        assert fixture.writer.sent[2].claims == (VIP,)
        fixture.seconds += 60
        fixture.queue.add(Key(KeyKind.POOL, "edge"))
        await fixture.until(lambda: len(fixture.writer.sent) == 4)
        assert not fixture.snapshot.ledger.cooldown.of("edge")


def cooling_of(plan: Plan) -> Any:
    """``status.cooling`` as *plan* writes it."""
    (write,) = plan.writes
    assert isinstance(write, StatusPatch)
    return write.body["status"]["cooling"]
