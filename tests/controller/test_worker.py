"""The worker: claims before writes, and how keys are requeued."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.lease import Lease, LeaseSpec
from kavip.api.meta import Metadata
from kavip.controller import worker
from kavip.controller.worker import FOLD, POOL_INTERVAL
from kavip.errors import Conflict, Forbidden, LeaseLost, Rejected, Unavailable
from kavip.ipam.request import read_request
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.observed.records import ObjectConflict
from kavip.reconcile.plan import Apply, Key, KeyKind, Plan, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot
from kavip.telemetry import ADDRESS_CONFLICTS, ALLOCATION_SECONDS, RECONCILES
from tests.controller.shop import web, working
from tests.reconcile.world import GROUP, NOW
from tests.support import build

WEB = Key(KeyKind.SERVICE, "shop/web")
EDGE = Key(KeyKind.GROUP, GROUP)
VIP = parse_address("192.0.2.128")
STATUS = StatusPatch(KeyKind.SERVICE, "shop/web", {"metadata": {"resourceVersion": "1"}})


def counted(kind: str, result: str) -> float:
    """How often keys of *kind* ended with *result*, since the process started."""
    value: float = RECONCILES.labels(kind, result)._value.get()
    return value


def allocations() -> tuple[float, float]:
    """The number and the total seconds of allocations since the process started."""
    (found,) = ALLOCATION_SECONDS.collect()
    values = {each.name: each.value for each in found.samples}
    return values["kavip_allocation_seconds_count"], values["kavip_allocation_seconds_sum"]


def lost_writes() -> float:
    """The number of address writes with a 409 since the process started."""
    value: float = ADDRESS_CONFLICTS.labels("WriteConflict")._value.get()
    return value


async def test_two_services_never_get_one_address() -> None:
    """The claim is in the ledger before the first write is sent, so the second plan sees it although no watch does."""
    async with working(web("shop/a"), web("shop/b"), build.group(), build.pool()) as shop:
        shop.writer.hold.clear()
        shop.queue.add(Key(KeyKind.SERVICE, "shop/a"))
        shop.queue.add(Key(KeyKind.SERVICE, "shop/b"))
        await shop.until(lambda: len(shop.writer.sent) == 2)
        shop.writer.hold.set()
        claims = [plan.claims for plan in shop.writer.sent]
        assert claims == [(VIP,), (parse_address("192.0.2.129"),)]


async def test_a_conflict_removes_the_claim_and_plans_again() -> None:
    """After a 409 the write was certainly not done, so its claim is removed."""
    before = counted("service", "conflict")
    async with working(web(), build.group(), build.pool()) as shop:
        shop.writer.answers = [Conflict(409, "Conflict", "stale")]
        held: list[object] = []
        shop.worker.requeue_waiters = lambda: held.append(shop.snapshot.ledger.held("shop/web"))  # type: ignore[method-assign]  # noted
        shop.queue.add(WEB)
        await shop.until(lambda: len(shop.writer.sent) == 2)
    assert held[:2] == [(VIP,), ()]  # claimed, then given back
    assert counted("service", "conflict") == before + 1


async def test_a_withheld_write_is_counted_and_removes_its_claim() -> None:
    """The next leader may assign the address to another Service."""
    before = counted("service", "withheld")
    async with working(web(), build.group(), build.pool()) as shop:
        shop.writer.answers = [LeaseLost("gone")]
        held: list[object] = []
        shop.worker.requeue_waiters = lambda: held.append(shop.snapshot.ledger.held("shop/web"))  # type: ignore[method-assign]  # noted
        shop.queue.add(WEB)
        await shop.until(lambda: len(shop.writer.sent) == 2)
    assert held[:2] == [(VIP,), ()]
    assert counted("service", "withheld") == before + 1


async def test_an_allocation_is_timed_from_the_event_to_the_response() -> None:
    """A failed write does not stop the clock. A write without an address is no allocation."""
    async with working(web(), build.group(), build.pool()) as shop:

        def late() -> bool:
            shop.seconds += 2.0
            return True

        def lost() -> bool:
            shop.seconds += 5.0
            raise Conflict(409, "Conflict", "stale")

        before, lost_before = allocations(), lost_writes()
        shop.writer.answers = [lost, late]
        shop.worker.add(WEB)
        await shop.until(lambda: allocations() != before)
        assert allocations() == (before[0] + 1, before[1] + 7.0)
        assert lost_writes() == lost_before + 1
        shop.snapshot.put(web(holds=["192.0.2.128"]))
        shop.worker.add(WEB)
        await shop.until(lambda: len(shop.writer.sent) == 3)
        assert allocations()[0] == before[0] + 1


async def test_a_conflict_after_a_timeout_keeps_the_claim() -> None:
    """The write that timed out may have caused the conflict, so no other Service gets its address."""
    async with working(web(), build.group(), build.pool()) as shop:
        shop.writer.answers = [Unavailable(0, "Timeout", "no answer"), Conflict(409, "Conflict", "stale")]
        held: list[object] = []
        shop.worker.requeue_waiters = lambda: held.append(shop.snapshot.ledger.held("shop/web"))  # type: ignore[method-assign]  # noted
        shop.queue.add(WEB)
        await shop.until(lambda: len(shop.writer.sent) == 3)
    assert set(held) == {(VIP,)}


async def test_nothing_is_planned_on_a_version_that_kavip_has_replaced() -> None:
    """The key waits until the watch shows the write, and is then planned on the new version."""
    async with working(web(), build.group(), build.pool()) as shop:
        shop.pending.send(STATUS)
        shop.pending.accept(STATUS, "2")
        for _ in range(3):
            shop.queue.add(WEB)
            await asyncio.sleep(0.01)
        assert not shop.writer.sent
        service = shop.snapshot.services["shop/web"]
        metadata = msgspec.structs.replace(service.metadata, resource_version="2")
        shop.snapshot.put(msgspec.structs.replace(service, metadata=metadata))
        shop.queue.add(WEB)
        await shop.until(lambda: shop.writer.sent)


async def test_a_write_that_may_have_been_done_keeps_its_claim() -> None:
    """After a timeout no other Service gets the address."""
    async with working(web(), build.group(), build.pool()) as shop:
        shop.writer.answers = [Unavailable(0, "Timeout", "no answer")]
        shop.queue.add(WEB)
        await shop.until(lambda: shop.writer.sent and not shop.writer.answers)
        assert shop.snapshot.ledger.held("shop/web") == (VIP,)
        await shop.until(lambda: len(shop.writer.sent) == 2)
        assert shop.writer.sent[1].claims == (VIP,)


@pytest.mark.parametrize("error", [Rejected(422, "Invalid", "no"), Forbidden(403, "Forbidden", "no")])
async def test_a_rejected_write_is_retried(error: Exception) -> None:
    """The key backs off, and the error is counted, because the cause may disappear."""
    before = counted("service", "error")
    async with working(web(), build.group(), build.pool()) as shop:
        shop.writer.answers = [error]
        shop.queue.add(WEB)
        await shop.until(lambda: len(shop.writer.sent) == 2)
    assert counted("service", "error") == before + 1


@pytest.mark.slow
async def test_a_plan_that_fails_does_not_stop_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of kavip is counted and retried. Other keys continue."""
    before = counted("group", "error")

    def broken(*args: Any, **more: Any) -> Plan:
        raise RuntimeError("a defect")

    monkeypatch.setattr("kavip.controller.worker.plan_group", broken)
    async with working(web(), build.group(), build.pool()) as shop:
        shop.queue.add(EDGE)
        shop.queue.add(WEB)
        await shop.until(lambda: shop.writer.sent and counted("group", "error") >= before + 2)
    assert shop.writer.sent[0].claims == (VIP,)


async def test_events_follow_the_write() -> None:
    """A failed write has no Event."""
    async with working(web(), build.group(), build.pool()) as shop:
        shop.writer.answers = [Conflict(409, "Conflict", "stale")]
        shop.queue.add(WEB)
        await shop.until(lambda: shop.told)
        assert len(shop.writer.sent) == 2
        assert [notice.reason for _, notice in shop.told] == ["Assigned", "Pending"]


async def test_a_freed_address_requeues_the_oldest_waiting_service() -> None:
    """The change that frees an address requeues the key without a back-off."""
    held = "192.0.2.128"
    holder = web("shop/a", holds=[held])
    async with working(web(), holder, build.group(), build.pool("edge", f"{held}/32")) as shop:
        shop.queue.add(WEB)
        await shop.until(lambda: shop.writer.sent)
        assert shop.writer.sent[0].waits == ("edge",)
        shop.snapshot.drop(names.SERVICE, "shop/a")
        shop.worker.requeue_waiters()
        await shop.until(lambda: len(shop.writer.sent) == 2)
        assert shop.writer.sent[1].claims == (VIP,)


async def test_a_service_that_is_no_longer_managed_frees_its_address() -> None:
    """A release claims no address, and requeues waiting Services when the write is seen."""
    leaving = web("shop/a", holds=["192.0.2.128"])
    async with working(web(), leaving, build.group(), build.pool("edge", "192.0.2.128/32")) as shop:
        shop.queue.add(WEB)
        await shop.until(lambda: shop.writer.sent)
        shop.snapshot.put(build.service("shop/a", type="ClusterIP"))
        shop.worker.requeue_waiters()
        await shop.until(lambda: len(shop.writer.sent) == 2)


async def test_an_ownership_conflict_is_reported_at_once() -> None:
    """A conflicting object that the writer finds is in the status of the next plan."""
    async with working(build.group(metrics_port=9650)) as shop:

        def meet() -> bool:
            why = OwnerConflict("nobody's: it has no controlling owner")
            shop.records.conflicts[f"ConfigMap {GROUP}"] = ObjectConflict(why, NOW)
            return False

        shop.writer.answers = [meet]
        shop.queue.add(EDGE)
        await shop.until(lambda: shop.writer.sent)
        shop.seconds += FOLD
        await shop.until(lambda: len(shop.writer.sent) == 2)
        (patch,) = [write for write in shop.writer.sent[1].writes if isinstance(write, StatusPatch)]
        accepted = next(each for each in patch.body["status"]["conditions"] if each["type"] == "Accepted")
        assert accepted["reason"] == "ObjectConflict"


async def test_changes_of_a_group_are_debounced() -> None:
    """The first change is planned at once. Further changes in the interval are planned once, at its end."""
    async with working(build.group(metrics_port=9650)) as shop:
        shop.queue.add(EDGE)
        await shop.until(lambda: shop.writer.sent)
        assert any(isinstance(write, Apply) for write in shop.writer.sent[0].writes)
        for _ in range(5):
            shop.queue.add(EDGE)
            await asyncio.sleep(0.01)
        assert len(shop.writer.sent) == 1
        shop.seconds += FOLD
        await shop.until(lambda: len(shop.writer.sent) == 2)


@pytest.mark.slow
async def test_changes_of_pool_counts_are_debounced() -> None:
    """Many changes during the pause after a write cause one more write, and no change causes none."""
    pool = Key(KeyKind.POOL, "edge")
    async with working(build.pool()) as shop:
        shop.queue.add(pool)
        await shop.until(lambda: shop.writer.sent)
        for number in range(5):
            shop.snapshot.put(web(f"shop/h{number}", holds=[f"192.0.2.{128 + number}"]))
            shop.queue.add(pool)
            await asyncio.sleep(0.01)
        assert len(shop.writer.sent) == 1
        shop.seconds += POOL_INTERVAL
        await shop.until(lambda: len(shop.writer.sent) == 2)
        (patch,) = [write for write in shop.writer.sent[1].writes if isinstance(write, StatusPatch)]
        assert patch.body["status"]["ipv4"]["assigned"] == 5


async def test_a_group_is_probed_while_it_exists() -> None:
    """The prober gets the nodes of the group. After a deletion the target and the memory of the group are removed."""
    async with working(build.group(metrics_port=9650)) as shop:
        shop.queue.add(EDGE)
        await shop.until(lambda: shop.eye.targets.get(GROUP))
        assert shop.records.reserved[GROUP].port == 9650
        shop.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
        shop.seconds += FOLD
        shop.queue.add(EDGE)
        await shop.until(lambda: shop.eye.targets[GROUP] is None)
        assert GROUP not in shop.records.reserved


async def test_a_pending_service_is_requeued() -> None:
    """The delay in the plan becomes a delay in the queue."""
    async with working(web(), build.group(), build.pool()) as shop:
        later: list[tuple[Key, float]] = []
        shop.queue.add_after = lambda key, delay: later.append((key, delay))  # type: ignore[method-assign]  # noted
        shop.queue.add(WEB)
        await shop.until(lambda: later)
        assert later == [(WEB, 10.0)]


async def test_one_service_is_written_by_one_worker_at_a_time() -> None:
    """During a write, the same key waits."""
    async with working(web(), build.group(), build.pool(), workers=8) as shop:
        shop.writer.hold.clear()
        for _ in range(5):
            shop.queue.add(WEB)
            await asyncio.sleep(0.005)
        assert len(shop.writer.sent) == 1
        shop.writer.hold.set()
        await shop.until(lambda: len(shop.writer.sent) == 2)


async def test_a_requeue_before_an_own_write_is_seen_is_kept() -> None:
    """The event of that write then enqueues the Service again."""
    async with working(web(), build.group(), build.pool()) as shop:
        shop.pending.send(STATUS)
        shop.pending.accept(STATUS, "2")
        assert not shop.pending.returning()
        shop.worker.add(WEB)
        await shop.until(shop.pending.returning)
        assert shop.writer.sent == []


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
    async with working(holder, young, old, build.group(), small) as shop:
        assert shop.snapshot.parsed_pools.in_force
        for each in (old, young):
            shop.snapshot.ledger.wait(read_request(each)[0], ["edge"])
        shop.snapshot.drop(names.SERVICE, "shop/h")
        shop.worker.requeue_waiters()
        await shop.until(lambda: shop.writer.sent)
        assert [(plan.writes[0].key, plan.claims) for plan in shop.writer.sent] == [("shop/b", (VIP,))]


async def test_a_waiting_service_in_deletion_does_not_block_the_next() -> None:
    """It gets no address, and does not delay the others until it is deleted."""
    old = web("shop/a", created="2020-01-01T00:00:00Z")
    young = web("shop/b", created="2021-01-01T00:00:00Z")
    holder = web("shop/h", holds=["192.0.2.128"])
    leaving = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, deletion_timestamp="2026-01-02T00:00:00Z")
    )
    async with working(holder, young, old, build.group(), build.pool("edge", "192.0.2.128/32")) as shop:
        assert shop.snapshot.parsed_pools.in_force
        for each in (old, young):
            shop.snapshot.ledger.wait(read_request(each)[0], ["edge"])
        shop.snapshot.put(leaving)
        shop.snapshot.drop(names.SERVICE, "shop/h")
        shop.worker.requeue_waiters()
        await shop.until(lambda: shop.writer.sent)
        assert [plan.claims for plan in shop.writer.sent] == [(VIP,)]


async def test_an_address_after_its_cool_down_goes_to_a_waiting_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool is planned at the end of a cool-down in spite of the debounce. Its status is written once for all."""
    monkeypatch.setattr("kavip.controller.worker.FOLD", 60.0)
    pool = build.pool("edge", "192.0.2.128/32", cooldown_seconds=60)
    async with working(web("shop/a", holds=["192.0.2.128"]), web("shop/b"), build.group(), pool) as shop:
        shop.snapshot.ledger.cooldown.lead(NOW)
        shop.snapshot.drop(names.SERVICE, "shop/a")
        shop.snapshot.ledger.cooldown.start(NOW)
        shop.queue.add(Key(KeyKind.POOL, "edge"))
        await shop.until(lambda: shop.writer.sent)
        shop.queue.add(Key(KeyKind.SERVICE, "shop/b"))
        await shop.until(lambda: len(shop.writer.sent) == 2)
        (cooling,) = cooling_of(shop.writer.sent[0])
        assert (cooling["address"], cooling["until"]) == ("192.0.2.128", "2026-03-01T12:01:00Z")
        assert shop.writer.sent[1].claims is None
        shop.now += timedelta(seconds=59.9)
        shop.queue.add(Key(KeyKind.POOL, "edge"))
        await shop.until(lambda: not len(shop.queue))
        assert len(shop.writer.sent) == 2  # debounced only until the end of the cool-down
        shop.now += timedelta(seconds=0.1)
        await shop.until(lambda: len(shop.writer.sent) == 3)
        assert shop.writer.sent[2].claims == (VIP,)
        shop.seconds += 60
        shop.queue.add(Key(KeyKind.POOL, "edge"))
        await shop.until(lambda: len(shop.writer.sent) == 4)
        assert not shop.snapshot.ledger.cooldown.of("edge")


def cooling_of(plan: Plan) -> Any:
    """``status.cooling`` as *plan* writes it."""
    (write,) = plan.writes
    assert isinstance(write, StatusPatch)
    return write.body["status"]["cooling"]


async def test_a_service_is_written_before_the_plan_of_its_group() -> None:
    """The plan of a group takes longer, so it runs after the Service even if one event enqueues both."""
    async with working(web(), build.group(), build.pool(), workers=1) as shop:
        shop.worker.add(EDGE)
        shop.worker.add(WEB)
        await shop.until(lambda: len(shop.writer.sent) == 2)
        assert shop.writer.sent[0].claims == (VIP,)


@pytest.mark.parametrize("key", [WEB, Key(KeyKind.POOL, "edge")])
async def test_services_and_pools_are_not_written_while_the_old_operator_may_run(key: Key) -> None:
    """Services get no address, and pools get no status."""
    async with working(web(), build.group(), build.pool()) as shop:
        lease = Lease(metadata=Metadata(name="x", namespace="old"), spec=LeaseSpec(holder_identity="old"))
        shop.operator.store(None, lease, at=0.0)
        shop.queue.add(key)
        await shop.until(lambda: not len(shop.queue))
        assert shop.writer.sent == []
