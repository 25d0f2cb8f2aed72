"""When the worker lets keys have their turn: between others, and not more often than their changes are worth."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest

from kavip.api.address import parse_address
from kavip.api.meta import Condition
from kavip.api.pool import PoolStatus, VIPPool
from kavip.controller.delays import (
    FOLD,
    GROUP_RATE,
    MOST_FOLD,
    MOST_POOL_INTERVAL,
    POOL_INTERVAL,
    POOL_RATE,
    PROGRESS_INTERVAL,
    Delays,
)
from kavip.errors import Unavailable
from kavip.names import Reason
from kavip.reconcile.group.outdated import Outdated
from kavip.reconcile.group.reconcile import BegunPlan
from kavip.reconcile.plan import (
    Apply,
    GroupPlan,
    GroupRecord,
    Key,
    KeyKind,
    Plan,
    PoolPlan,
    StatusPatch,
    Unconfirmed,
)
from kavip.snapshot import Snapshot
from tests.controller.workerfixture import running_worker, web
from tests.reconcile.simulatedcluster import GROUP, NOW
from tests.support import build

WEB = Key(KeyKind.SERVICE, "shop/web")
EDGE = Key(KeyKind.GROUP, GROUP)


async def test_keys_with_nothing_to_do_let_other_tasks_run() -> None:
    """Each worker processes one key per turn of the loop: otherwise a new leader of many could not renew its lease."""
    async with running_worker(workers=2) as fixture:
        for number in range(100):
            add = fixture.queue.add if number % 2 else fixture.queue.add_low_priority
            add(Key(KeyKind.SERVICE, f"shop/gone-{number}"))
        turns = 0
        while len(fixture.queue):
            await asyncio.sleep(0)
            turns += 1
    assert turns >= 100 / 2


async def test_other_keys_get_a_turn_while_the_services_of_a_group_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Service is written before the last of many batches. What the comparison found is requeued and recorded."""
    late, doubt, spent = Key(KeyKind.SERVICE, "shop/late"), Unconfirmed(Reason.NO_MASTER, since=1.0), list[float]()
    monkeypatch.setattr(Delays, "prolong", lambda *_, **more: spent.append(more["spent"]))
    async with running_worker(web(), web("shop/late"), build.group(), build.pool()) as fixture:

        def comparison() -> Iterator[Outdated]:
            fixture.seconds += 3.0
            yield Outdated(services=(WEB,), unconfirmed={WEB.name: doubt})
            for _ in range(10_000):
                if fixture.writer.sent:
                    break
                yield Outdated()
            written_between.append(bool(fixture.writer.sent))
            yield Outdated(reworded=(late,), obstructed=frozenset({late.name}), requeue_after=0.01)

        written_between = list[bool]()
        plans = iter([BegunPlan(GroupPlan(record=GroupRecord()), comparison())])
        monkeypatch.setattr("kavip.controller.worker.begin_plan", lambda *_, **__: next(plans, BegunPlan(GroupPlan())))
        fixture.queue.add(EDGE)
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        assert written_between == [True]
        assert spent[0] == 3.0
        record = fixture.records.group(EDGE.name)
        assert record.unconfirmed == {WEB.name: doubt}
        assert record.obstructed == {late.name}


def test_a_comparison_postpones_its_group() -> None:
    """In proportion to its time, and after what the plan has postponed already."""
    seconds = 100.0
    delays = Delays(Snapshot(), now=lambda: NOW, clock=lambda: seconds)
    delays.postpone(EDGE, GroupPlan(), spent=0.5)
    assert delays.of(EDGE) == 2.0
    delays.prolong(EDGE, spent=1.0)
    assert delays.of(EDGE) == 6.0
    seconds = 110.0
    delays.prolong(EDGE, spent=1.0)
    assert delays.of(EDGE) == 4.0


CHANGE = GroupPlan(writes=(Apply("ConfigMap", GROUP, {}, "u", unseen=False),))
COUNTS = PoolPlan(writes=(StatusPatch(KeyKind.POOL, "edge", {}),))


@pytest.mark.parametrize(
    ("kind", "plan", "rate", "least", "most"),
    [
        (KeyKind.GROUP, CHANGE, GROUP_RATE, FOLD, MOST_FOLD),
        (KeyKind.POOL, COUNTS, POOL_RATE, POOL_INTERVAL, MOST_POOL_INTERVAL),
        (KeyKind.POOL, replace(COUNTS, requeue_after=9.0), POOL_RATE, FOLD, POOL_INTERVAL),
    ],
    ids=["group", "pool", "pool with a cool-down"],
)
@pytest.mark.parametrize("count", [1, 40, 200])
def test_the_more_keys_are_written_the_rarer_each_of_them(
    kind: KeyKind, plan: Plan, rate: float, least: float, most: float, count: int
) -> None:
    """All that change without an end share a rate, between the interval of one alone and the longest one."""
    seconds, writes, names = 0.0, 0, [f"lb/g{number}" for number in range(count)]
    snapshot = (
        Snapshot()
        if plan.requeue_after
        else Snapshot.from_objects(counted(name, f"10.{number}.0.0/24") for number, name in enumerate(names))
    )
    delays = Delays(snapshot, now=lambda: NOW, clock=lambda: seconds)
    due = dict[Key, float]()
    while seconds < 40.0:
        for key in (Key(kind, name) for name in names):
            due[key] = min(due.get(key, inf), seconds + delays.after_change(key))
            if due[key] <= seconds and delays.of(key) <= 0:
                delays.postpone(key, plan, spent=0.0)
                writes += seconds >= 20.0
                del due[key]
        seconds += 0.05
    interval = min(max(count / rate, least), most)
    assert writes / 20.0 == pytest.approx(count / interval, rel=0.2)


def counted(name: str = "edge", *ranges: str, ready: str = "True", **more: Any) -> VIPPool:
    """A pool whose status has the conditions of one in force that is *ready*."""
    found = [
        Condition(type=kind, status=state, reason=kind, observed_generation=1)
        for kind, state in (("Accepted", "True"), ("Ready", ready), ("example.org/Seen", "True"))
    ]
    foreign = msgspec.structs.replace(found[-1], observed_generation=0)
    return msgspec.structs.replace(
        build.pool(name, *ranges, **more), status=PoolStatus(conditions=[*found[:-1], foreign])
    )


def test_a_change_that_needs_no_write_takes_no_turn_of_others() -> None:
    """For example that of a pool's own status."""
    names = [f"p{number}" for number in range(100)]
    # no two ranges overlap, so all are in force
    pools = [counted(name, f"10.{number}.0.0/24") for number, name in enumerate(names)]
    delays = Delays(Snapshot.from_objects(pools), now=lambda: NOW, clock=lambda: 0.0)
    for name in names[1:]:
        delays.after_change(Key(KeyKind.POOL, name))
        delays.postpone(Key(KeyKind.POOL, name), PoolPlan(), spent=0.0)
    assert delays.after_change(Key(KeyKind.POOL, names[0])) == POOL_INTERVAL


def test_a_group_that_changes_once_waits_for_no_other() -> None:
    """The first change is written at once, whatever others do."""
    delays = Delays(Snapshot(), now=lambda: NOW, clock=lambda: 0.0)
    for number in range(100):
        delays.postpone(Key(KeyKind.GROUP, f"lb/g{number}"), CHANGE, spent=0.0)
    assert delays.of(EDGE) <= 0


def test_only_keys_that_wait_are_kept() -> None:
    """Groups that come and go leave nothing."""
    seconds = 0.0
    delays = Delays(Snapshot(), now=lambda: NOW, clock=lambda: seconds)
    for number in range(1_000):
        delays.postpone(Key(KeyKind.GROUP, f"lb/g{number}"), CHANGE, spent=0.0)
        seconds += FOLD / 2
    assert len(delays._not_before) <= 3


async def test_changes_of_a_group_are_debounced() -> None:
    """The first change is planned at once. Further changes in the interval are planned once, at its end."""
    async with running_worker(build.group(metrics_port=9650)) as fixture:
        fixture.queue.add(EDGE)
        await fixture.until(lambda: fixture.writer.sent)
        assert any(isinstance(write, Apply) for write in fixture.writer.sent[0].writes)
        for _ in range(5):
            fixture.queue.add(EDGE)
            await asyncio.sleep(0.01)
        assert len(fixture.writer.sent) == 1
        fixture.seconds += FOLD
        await fixture.until(lambda: len(fixture.writer.sent) == 2)


@pytest.mark.slow
async def test_changes_of_pool_counts_are_debounced() -> None:
    """A pool without a status is written at once. Many changes of it within the interval are one write, at its end."""
    pool = Key(KeyKind.POOL, "edge")
    async with running_worker(build.pool()) as fixture:
        fixture.worker.add(pool)
        await fixture.until(lambda: fixture.writer.sent)
        fixture.snapshot.put(counted())
        fixture.seconds += POOL_INTERVAL
        began = asyncio.get_running_loop().time()
        for number in range(5):
            fixture.snapshot.put(web(f"shop/h{number}", holds=[f"192.0.2.{128 + number}"]))
            fixture.worker.add(pool)
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        assert asyncio.get_running_loop().time() - began >= POOL_INTERVAL
        (patch,) = [write for write in fixture.writer.sent[1].writes if isinstance(write, StatusPatch)]
        assert patch.body["status"]["ipv4"]["assigned"] == 5


@pytest.mark.parametrize(
    "pool",
    [
        build.pool(),
        msgspec.structs.replace(counted(), metadata=build.metadata("edge", generation=2)),
        counted(ready="False"),
        counted("edge", "not a range"),
        None,
    ],
    ids=["new", "edited", "ready again", "not accepted any more", "deleted"],
)
def test_another_state_of_a_pool_waits_for_nothing(pool: VIPPool | None) -> None:
    """Only numbers do; conditions of other programs do not matter."""
    delays = Delays(Snapshot.from_objects(filter(None, [pool])), now=lambda: NOW, clock=lambda: 0.0)
    assert delays.after_change(Key(KeyKind.POOL, "edge")) == 0


def test_a_cool_down_is_written_at_once() -> None:
    """The next leader has to know of it."""
    snapshot = Snapshot.from_objects([counted("edge"), web(holds=["192.0.2.130"])])
    delays = Delays(snapshot, now=lambda: NOW, clock=lambda: 0.0)
    key = Key(KeyKind.POOL, "edge")
    assert delays.after_change(key) == POOL_INTERVAL
    snapshot.ledger.cooldown.withdraw(parse_address("192.0.2.130"), WEB.name, now=NOW)
    assert delays.after_change(key) == 0


# --- the progress of a group ------------------------------------------------------------------------------------------
PROGRESS = StatusPatch(KeyKind.GROUP, GROUP, {}, is_progress=True)
URGENT = replace(PROGRESS, is_progress=False)


def test_progress_is_withheld_until_its_interval_is_over() -> None:
    """What else the plan writes is not. The group is planned again at the end, or earlier if the plan says so."""
    seconds, (change,) = 10.0, CHANGE.writes
    delays = Delays(Snapshot(), now=lambda: NOW, clock=lambda: seconds)
    plan = replace(CHANGE, writes=(change, PROGRESS))
    assert delays.without_progress(EDGE, plan) == replace(CHANGE, requeue_after=PROGRESS_INTERVAL)
    seconds += PROGRESS_INTERVAL / 2
    assert delays.without_progress(EDGE, plan).requeue_after == PROGRESS_INTERVAL / 2
    assert delays.without_progress(EDGE, replace(plan, requeue_after=0.1)).requeue_after == 0.1
    seconds += PROGRESS_INTERVAL / 2
    assert delays.without_progress(EDGE, plan) is plan
    delays.begin_interval(EDGE)
    assert delays.without_progress(EDGE, plan) == replace(CHANGE, requeue_after=PROGRESS_INTERVAL)


@pytest.mark.parametrize("writes", [(), (URGENT,)], ids=["nothing to report", "an urgent status"])
def test_an_urgent_status_ends_the_delay(writes: tuple[StatusPatch, ...]) -> None:
    """It contains the progress; so does a status that needs no change any more."""
    seconds = 10.0
    delays = Delays(Snapshot(), now=lambda: NOW, clock=lambda: seconds)
    delays.without_progress(EDGE, GroupPlan(writes=(PROGRESS,)))
    plan = GroupPlan(writes=writes)
    assert delays.without_progress(EDGE, plan) is plan
    seconds += PROGRESS_INTERVAL
    assert delays.without_progress(EDGE, GroupPlan(writes=(PROGRESS,))).writes == ()


async def test_the_worker_writes_progress_with_the_next_plan_after_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue brings the group again, without any change of it."""
    plan = BegunPlan(GroupPlan(writes=(PROGRESS,)))
    monkeypatch.setattr("kavip.controller.worker.begin_plan", lambda *_, **__: plan)
    monkeypatch.setattr("kavip.controller.delays.PROGRESS_INTERVAL", 0.01)
    async with running_worker(build.group()) as fixture:
        fixture.queue.add(EDGE)
        await fixture.until(lambda: not fixture.queue._dirty and fixture.queue._timers)
        assert not fixture.writer.sent
        fixture.seconds += 0.01
        await fixture.until(lambda: fixture.writer.sent)


async def test_progress_that_cannot_be_written_is_retried_with_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not withheld again, which would count as a success. After the write it is."""
    plan, failures = BegunPlan(GroupPlan(writes=(PROGRESS,))), list[int]()
    monkeypatch.setattr("kavip.controller.worker.begin_plan", lambda *_, **__: plan)
    async with running_worker(build.group()) as fixture:

        def fail() -> bool:
            failures.append(fixture.queue.failures(EDGE))
            raise Unavailable(0, "Timeout", "the API server does not answer in time")

        def is_waiting() -> bool:
            return not len(fixture.queue) and bool(fixture.queue._timers)

        fixture.writer.answers = [fail] * 3
        fixture.queue.add(EDGE)
        await fixture.until(is_waiting)
        fixture.seconds += PROGRESS_INTERVAL
        fixture.queue.add(EDGE)
        await fixture.until(lambda: len(fixture.writer.sent) == 4)
        assert failures == [0, 1, 2]
        fixture.queue.add(EDGE)
        await fixture.until(is_waiting)
        assert len(fixture.writer.sent) == 4
