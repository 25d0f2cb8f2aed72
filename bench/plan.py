"""
Time the full plan of one Service in process: ``python -m bench.plan``.

A plan goes from the Snapshot to the status patch with its conditions. All Services are in one Shared group.
"""

from collections.abc import Callable

import msgspec

from bench import events
from bench.objects import LARGE, NEW, almost_full, cluster, pool, service
from bench.settled import NOW
from bench.timing import MICRO, best, flat, frozen, plain, within
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.ipam.request import read_request
from kavip.reconcile import enqueue
from kavip.reconcile.plan import ServicePlan, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot

SIZES = (1_000, 20_000, 100_000)
MOST = 1.15


def main() -> None:
    """Print the table."""
    print("the full plan of one Service, in process")
    times = {size: plans(size) for size in SIZES}
    few, many = times[SIZES[0]], times[SIZES[-1]]
    for what in few:
        within(f"{what}, {SIZES[-1]:,} Services held", many[what], microseconds=150)
        for size in SIZES[:-1]:
            plain(f"  at {size:,}", f"{times[size][what] * MICRO:.1f} us")
        flat(f"  growth, {SIZES[-1]:,} / {SIZES[0]:,}", few[what], many[what], most=MOST)
    narrow, wide = (in_a_cluster(nodes=count) for count in (5, 1_000))
    flat("growth with the cluster, 1,000 nodes / 5", narrow, wide, most=MOST)
    events.table()


def plans(size: int) -> dict[str, float]:
    """The seconds of the plans of a Service while *size* others have addresses, by what the plan does."""
    snapshot = almost_full(size)
    first, second = service(NEW), service(NEW + 1)
    snapshot.put(first)
    with frozen():
        found = {"a new Service": best(300, planning(snapshot, first))}
        held = written(first, plan(snapshot, first))
        snapshot.put(held)
        assert not plan(snapshot, held).writes
        found["nothing to do"] = best(300, planning(snapshot, held))
        snapshot.put(second)
        decided = plan(snapshot, second)
        assert decided.waits == ("bench",)
        found["none is free"] = best(300, planning(snapshot, second))
        request, _ = read_request(second)
        snapshot.ledger.wait(request, decided.waits)
        snapshot.put(reported := written(second, decided))
        found["none is free, and its status has it"] = best(300, planning(snapshot, reported))
        found["the keys after an own status write"] = best(300, lambda: list(enqueue.of(snapshot, first, held)))
        assert plan(snapshot, reported).writes == ()
    return found


def in_a_cluster(*, nodes: int) -> float:
    """The seconds of a plan in a cluster with *nodes* nodes."""
    snapshot = cluster([pool("bench", LARGE)], [service(NEW)], nodes=nodes)
    with frozen():
        return best(300, planning(snapshot, service(NEW)))


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
