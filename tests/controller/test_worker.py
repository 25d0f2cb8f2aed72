"""The worker: claims before writes, and how keys are requeued. When keys get their turn: test_turns."""

import asyncio
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.lease import Lease, LeaseSpec
from kavip.api.meta import Metadata
from kavip.controller.delays import FOLD
from kavip.errors import Conflict, Forbidden, LeaseLost, Rejected, Unavailable
from kavip.reconcile.group.reconcile import BegunPlan
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.observed.records import ObjectConflict
from kavip.reconcile.plan import GroupPlan, Key, KeyKind, Notice, Plan, StatusPatch
from kavip.telemetry import ADDRESS_CONFLICTS, ALLOCATION_SECONDS, RECONCILES
from tests.controller.workerfixture import running_worker, web
from tests.reconcile.simulatedcluster import GROUP, NOW, pod
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
    async with running_worker(web("shop/a"), web("shop/b"), build.group(), build.pool()) as fixture:
        fixture.writer.hold.clear()
        fixture.queue.add(Key(KeyKind.SERVICE, "shop/a"))
        fixture.queue.add(Key(KeyKind.SERVICE, "shop/b"))
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        fixture.writer.hold.set()
        claims = [plan.claims for plan in fixture.writer.sent]
        assert claims == [(VIP,), (parse_address("192.0.2.129"),)]


async def test_a_conflict_removes_the_claim_and_plans_again() -> None:
    """After a 409 the write was certainly not done, so its claim is removed."""
    before = counted("service", "conflict")
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.writer.answers = [Conflict(409, "Conflict", "stale")]
        held: list[object] = []
        fixture.worker.requeue_waiters = lambda: held.append(fixture.snapshot.ledger.held("shop/web"))  # type: ignore[method-assign]  # noted
        fixture.queue.add(WEB)
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
    assert held[:2] == [(VIP,), ()]  # claimed, then given back
    assert counted("service", "conflict") == before + 1


async def test_a_withheld_write_is_counted_and_removes_its_claim() -> None:
    """The next leader may assign the address to another Service."""
    before = counted("service", "withheld")
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.writer.answers = [LeaseLost("gone")]
        held: list[object] = []
        fixture.worker.requeue_waiters = lambda: held.append(fixture.snapshot.ledger.held("shop/web"))  # type: ignore[method-assign]  # noted
        fixture.queue.add(WEB)
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
    assert held[:2] == [(VIP,), ()]
    assert counted("service", "withheld") == before + 1


async def test_an_allocation_is_timed_from_the_event_to_the_response() -> None:
    """A failed write does not stop the clock. A write without an address is no allocation."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:

        def late() -> bool:
            fixture.seconds += 2.0
            return True

        def lost() -> bool:
            fixture.seconds += 5.0
            raise Conflict(409, "Conflict", "stale")

        before, lost_before = allocations(), lost_writes()
        fixture.writer.answers = [lost, late]
        fixture.worker.add(WEB)
        await fixture.until(lambda: allocations() != before)
        assert allocations() == (before[0] + 1, before[1] + 7.0)
        assert lost_writes() == lost_before + 1
        fixture.snapshot.put(web(holds=["192.0.2.128"]))
        fixture.worker.add(WEB)
        await fixture.until(lambda: len(fixture.writer.sent) == 3)
        assert allocations()[0] == before[0] + 1


async def test_a_conflict_after_a_timeout_keeps_the_claim() -> None:
    """The write that timed out may have caused the conflict, so no other Service gets its address."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.writer.answers = [Unavailable(0, "Timeout", "no answer"), Conflict(409, "Conflict", "stale")]
        held: list[object] = []
        fixture.worker.requeue_waiters = lambda: held.append(fixture.snapshot.ledger.held("shop/web"))  # type: ignore[method-assign]  # noted
        fixture.queue.add(WEB)
        await fixture.until(lambda: len(fixture.writer.sent) == 3)
    assert set(held) == {(VIP,)}


async def test_nothing_is_planned_on_a_version_that_kavip_has_replaced() -> None:
    """The key waits until the watch shows the write, and is then planned on the new version."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.pending.send(STATUS)
        fixture.pending.accept(STATUS, "2")
        for _ in range(3):
            fixture.queue.add(WEB)
            await asyncio.sleep(0.01)
        assert not fixture.writer.sent
        service = fixture.snapshot.services["shop/web"]
        metadata = msgspec.structs.replace(service.metadata, resource_version="2")
        fixture.snapshot.put(msgspec.structs.replace(service, metadata=metadata))
        fixture.queue.add(WEB)
        await fixture.until(lambda: fixture.writer.sent)


async def test_a_write_that_may_have_been_done_keeps_its_claim() -> None:
    """After a timeout no other Service gets the address."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.writer.answers = [Unavailable(0, "Timeout", "no answer")]
        fixture.queue.add(WEB)
        await fixture.until(lambda: fixture.writer.sent and not fixture.writer.answers)
        assert fixture.snapshot.ledger.held("shop/web") == (VIP,)
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        assert fixture.writer.sent[1].claims == (VIP,)


@pytest.mark.parametrize("error", [Rejected(422, "Invalid", "no"), Forbidden(403, "Forbidden", "no")])
async def test_a_rejected_write_is_retried(error: Exception) -> None:
    """The key backs off, and the error is counted, because the cause may disappear."""
    before = counted("service", "error")
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.writer.answers = [error]
        fixture.queue.add(WEB)
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
    assert counted("service", "error") == before + 1


@pytest.mark.slow
async def test_a_plan_that_fails_does_not_stop_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of kavip is counted and retried. Other keys continue."""
    before = counted("group", "error")

    def broken(*args: Any, **more: Any) -> Plan:
        raise RuntimeError("a defect")

    monkeypatch.setattr("kavip.controller.worker.begin_plan", broken)
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.queue.add(EDGE)
        fixture.queue.add(WEB)
        await fixture.until(lambda: fixture.writer.sent and counted("group", "error") >= before + 2)
    assert fixture.writer.sent[0].claims == (VIP,)


async def test_events_follow_the_write() -> None:
    """A failed write has no Event."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.writer.answers = [Conflict(409, "Conflict", "stale")]
        fixture.queue.add(WEB)
        await fixture.until(lambda: fixture.notices)
        assert len(fixture.writer.sent) == 2
        assert [notice.reason for _, notice in fixture.notices] == ["Assigned", "Pending"]


async def test_an_event_may_be_about_another_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a group has Events about its Services, and about itself."""
    moved, refused = Notice("MasterChanged", "moved", warning=False, about=WEB), Notice("Invalid", "no", warning=True)
    begun = BegunPlan(GroupPlan(events=(moved, refused)))
    monkeypatch.setattr("kavip.controller.worker.begin_plan", lambda *_, **__: begun)
    async with running_worker(web(), build.group()) as fixture:
        fixture.queue.add(EDGE)
        await fixture.until(lambda: fixture.notices)
        assert fixture.notices == [(WEB, moved), (EDGE, refused)]


async def test_a_freed_address_requeues_the_oldest_waiting_service() -> None:
    """The change that frees an address requeues the key without a back-off."""
    held = "192.0.2.128"
    holder = web("shop/a", holds=[held])
    async with running_worker(web(), holder, build.group(), build.pool("edge", f"{held}/32")) as fixture:
        fixture.queue.add(WEB)
        await fixture.until(lambda: fixture.writer.sent)
        assert fixture.writer.sent[0].waits == ("edge",)
        fixture.snapshot.drop(names.SERVICE, "shop/a")
        fixture.worker.requeue_waiters()
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        assert fixture.writer.sent[1].claims == (VIP,)


async def test_a_service_that_is_no_longer_managed_frees_its_address() -> None:
    """A release claims no address, and requeues waiting Services when the write is seen."""
    leaving = web("shop/a", holds=["192.0.2.128"])
    async with running_worker(web(), leaving, build.group(), build.pool("edge", "192.0.2.128/32")) as fixture:
        fixture.queue.add(WEB)
        await fixture.until(lambda: fixture.writer.sent)
        fixture.snapshot.put(build.service("shop/a", type="ClusterIP"))
        fixture.worker.requeue_waiters()
        await fixture.until(lambda: len(fixture.writer.sent) == 2)


async def test_an_ownership_conflict_is_reported_at_once() -> None:
    """A conflicting object that the writer finds is in the status of the next plan."""
    async with running_worker(build.group(metrics_port=9650)) as fixture:

        def meet() -> bool:
            why = OwnerConflict("without a controlling owner")
            fixture.records.conflicts[f"ConfigMap {GROUP}"] = ObjectConflict(why, NOW)
            return False

        fixture.writer.answers = [meet]
        fixture.queue.add(EDGE)
        await fixture.until(lambda: fixture.writer.sent)
        fixture.seconds += FOLD
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        (patch,) = [write for write in fixture.writer.sent[1].writes if isinstance(write, StatusPatch)]
        accepted = next(each for each in patch.body["status"]["conditions"] if each["type"] == "Accepted")
        assert accepted["reason"] == "ObjectConflict"


async def test_a_group_is_probed_while_it_exists() -> None:
    """The prober gets the nodes of the group. After a deletion the target and the memory of the group are removed."""
    async with running_worker(build.group(metrics_port=9650)) as fixture:
        fixture.queue.add(EDGE)
        await fixture.until(lambda: fixture.fake_prober.targets.get(GROUP))
        assert fixture.records.reserved[GROUP].port == 9650
        fixture.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
        fixture.seconds += FOLD
        fixture.queue.add(EDGE)
        await fixture.until(lambda: fixture.fake_prober.targets[GROUP] is None)
        assert GROUP not in fixture.records.reserved


async def test_annotations_of_pods_are_counted_for_all_groups() -> None:
    """The next plan of any group sees how many pods the last one annotates."""
    async with running_worker(build.group(metrics_port=9650)) as fixture:
        fixture.objects.pods[GROUP] = {each.metadata.key: each for each in (pod("p1", "n1"), pod("p2", "n2"))}
        fixture.queue.add(EDGE)
        await fixture.until(lambda: fixture.writer.sent)
        assert fixture.records.pod_allowance.spent == 2
        assert fixture.records.group(GROUP).annotated.keys() == {"lb/p1", "lb/p2"}


async def test_a_pending_service_is_requeued() -> None:
    """The delay in the plan becomes a delay in the queue."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        later: list[tuple[Key, float]] = []
        fixture.queue.add_after = lambda key, delay: later.append((key, delay))  # type: ignore[method-assign]  # noted
        fixture.queue.add(WEB)
        await fixture.until(lambda: later)
        assert later == [(WEB, 10.0)]


async def test_one_service_is_written_by_one_worker_at_a_time() -> None:
    """During a write, the same key waits."""
    async with running_worker(web(), build.group(), build.pool(), workers=8) as fixture:
        fixture.writer.hold.clear()
        for _ in range(5):
            fixture.queue.add(WEB)
            await asyncio.sleep(0.005)
        assert len(fixture.writer.sent) == 1
        fixture.writer.hold.set()
        await fixture.until(lambda: len(fixture.writer.sent) == 2)


async def test_a_requeue_before_an_own_write_is_seen_is_kept() -> None:
    """The event of that write then enqueues the Service again."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        fixture.pending.send(STATUS)
        fixture.pending.accept(STATUS, "2")
        assert not fixture.pending.returning()
        fixture.worker.add(WEB)
        await fixture.until(fixture.pending.returning)
        assert fixture.writer.sent == []


async def test_a_service_is_written_before_the_plan_of_its_group() -> None:
    """The plan of a group takes longer, so it runs after the Service even if one event enqueues both."""
    async with running_worker(web(), build.group(), build.pool(), workers=1) as fixture:
        fixture.worker.add(EDGE)
        fixture.worker.add(WEB)
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        assert fixture.writer.sent[0].claims == (VIP,)


@pytest.mark.parametrize("key", [WEB, Key(KeyKind.POOL, "edge")])
async def test_services_and_pools_are_not_written_while_the_old_operator_may_run(key: Key) -> None:
    """Services get no address, and pools get no status."""
    async with running_worker(web(), build.group(), build.pool()) as fixture:
        lease = Lease(metadata=Metadata(name="x", namespace="old"), spec=LeaseSpec(holder_identity="old"))
        fixture.operator.store(None, lease, at=0.0)
        fixture.queue.add(key)
        await fixture.until(lambda: not len(fixture.queue))
        assert fixture.writer.sent == []
