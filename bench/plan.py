"""
Time the full plan of one Service in process: ``python -m bench.plan``.

A plan goes from the Snapshot to the status patch with its conditions. All Services are in one Shared group.

A goal is a ratio to the decoding of one Service (:mod:`.reference`), or the growth from few Services to many; the times
are measured in turns. The goal of a plan was 150 us when a decoding took 2.4 us (:mod:`.allocate` says how that is
known); it is the same time in decodings.
"""

from collections.abc import Callable, Iterator

import msgspec

from bench import events, hold
from bench.objects import LARGE, NEW, almost_full, cluster, pool, service
from bench.reference import NAME, decoding
from bench.settled import NOW
from bench.timing import MICRO, clock, flat, frozen, in_turns, plain, within
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.ipam.request import read_request
from kavip.reconcile import enqueue
from kavip.reconcile.plan import ServicePlan, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot

SIZES = (1_000, 20_000, 100_000)
MOST = 1.15
PLAN = 63  # decodings


def main() -> None:
    """Print the table."""
    print("the full plan of one Service, in process")
    snapshots = [almost_full(size) for size in SIZES]
    decoded = decoding()
    with frozen():
        for stage in zip(*map(plans, snapshots), strict=True):
            *times, beside = in_turns(*(clock(operation) for _, operation in stage), decoded)
            what, few, many = stage[0][0], times[0], times[-1]
            print(f"{what}; {NAME}: {beside * MICRO:.2f} us")
            for size, seconds in zip(SIZES, times, strict=True):
                plain(f"  at {size:,}", f"{seconds * MICRO:.1f} us")
            within(f"  {SIZES[-1]:,} Services held", many, beside, most=PLAN, of=NAME)
            flat(f"  growth, {SIZES[-1]:,} / {SIZES[0]:,}", few, many, most=MOST)
    del snapshots
    snapshots = [cluster([pool("bench", LARGE)], [service(NEW)], nodes=count) for count in (5, 1_000)]
    with frozen():
        narrow, wide = in_turns(*(clock(planning(each, service(NEW))) for each in snapshots))
    flat("growth with the cluster, 1,000 nodes / 5", narrow, wide, most=MOST)
    events.table()
    hold.table()


def plans(snapshot: Snapshot) -> Iterator[tuple[str, Callable[[], object]]]:
    """The plans of a Service that is added to *snapshot*, to be timed one after the other: what each does."""
    first, second = service(NEW), service(NEW + 1)
    snapshot.put(first)
    yield "a new Service", planning(snapshot, first)
    held = written(first, plan(snapshot, first))
    snapshot.put(held)
    assert not plan(snapshot, held).writes
    yield "nothing to do", planning(snapshot, held)
    snapshot.put(second)
    decided = plan(snapshot, second)
    assert decided.waits == ("bench",)
    yield "none is free", planning(snapshot, second)
    request, _ = read_request(second)
    snapshot.ledger.wait(request, decided.waits)
    snapshot.put(reported := written(second, decided))
    assert plan(snapshot, reported).writes == ()
    yield "none is free, and its status has it", planning(snapshot, reported)
    yield "the keys after an own status write", lambda: list(enqueue.of(snapshot, first, held))


def plan(snapshot: Snapshot, subject: Service) -> ServicePlan:
    """The plan of *subject*."""
    return plan_service(snapshot, subject.key, now=NOW)


def planning(snapshot: Snapshot, subject: Service) -> Callable[[], ServicePlan]:
    """A function to be timed: the plan of *subject*."""
    return lambda: plan(snapshot, subject)


def written(subject: Service, decided: ServicePlan) -> Service:
    """*subject* after the write of *decided*."""
    (patch,) = decided.writes
    assert isinstance(patch, StatusPatch)
    status = patch.body["status"]
    balancer = msgspec.convert(status.get("loadBalancer", {}), type(subject.status.load_balancer))
    conditions = msgspec.convert(status["conditions"], list[Condition])
    return msgspec.structs.replace(subject, status=type(subject.status)(balancer, conditions))


if __name__ == "__main__":
    main()
