"""When the worker lets keys have their turn: between others, and not more often than their changes are worth."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kavip.controller.delays import (
    FOLD,
    GROUP_RATE,
    MOST_FOLD,
    MOST_POOL_INTERVAL,
    POOL_INTERVAL,
    POOL_RATE,
    Delays,
)
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
    seconds, writes, keys = 0.0, 0, [Key(kind, f"lb/g{number}") for number in range(count)]
    delays = Delays(Snapshot(), now=lambda: NOW, clock=lambda: seconds)
    while seconds < 40.0:
        for key in keys:
            if delays.of(key) <= 0:
                delays.postpone(key, plan, spent=0.0)
                writes += seconds >= 20.0
        seconds += 0.05
    interval = min(max(count / rate, least), most)
    assert writes / 20.0 == pytest.approx(count / interval, rel=0.2)


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
    """Many changes during the pause after a write cause one more write, and no change causes none."""
    pool = Key(KeyKind.POOL, "edge")
    async with running_worker(build.pool()) as fixture:
        fixture.queue.add(pool)
        await fixture.until(lambda: fixture.writer.sent)
        for number in range(5):
            fixture.snapshot.put(web(f"shop/h{number}", holds=[f"192.0.2.{128 + number}"]))
            fixture.queue.add(pool)
            await asyncio.sleep(0.01)
        assert len(fixture.writer.sent) == 1
        fixture.seconds += POOL_INTERVAL
        await fixture.until(lambda: len(fixture.writer.sent) == 2)
        (patch,) = [write for write in fixture.writer.sent[1].writes if isinstance(write, StatusPatch)]
        assert patch.body["status"]["ipv4"]["assigned"] == 5
