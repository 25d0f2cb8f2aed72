"""
Time the full plan of one Service in process: ``python -m bench.plan``.

From the Snapshot to the status patch with its conditions, as a worker asks for it; all are in one Shared group.
"""

from collections.abc import Callable
from hashlib import sha256
from itertools import cycle

import msgspec

from bench.objects import GROUP, LABELS, LARGE, cluster, first_of, pool, service, services
from bench.settled import NOW, Settled, settled
from bench.timing import MICRO, best, flat, frozen, plain, within
from kavip import names
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.controller import wakes
from kavip.controller.group import plan_group
from kavip.controller.outcome import Kind, Plan, StatusPatch
from kavip.controller.plan import plan_service
from kavip.controller.pools import plan_pool
from kavip.ipam.request import read_request
from kavip.snapshot import Snapshot

SIZES = (1_000, 20_000, 100_000)
CROWDS = (100, 5_000)
MOST = 1.15
NEW = 900_000
"""The numbers of the Services that are planned."""


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
    few, many = (events(size) for size in CROWDS)
    for what in few:
        flat(f"{what}, among {CROWDS[1]:,} / {CROWDS[0]}", few[what], many[what], most=MOST)
        for size, found in zip(CROWDS, (few, many), strict=True):
            plain(f"  among {size:,}", f"{found[what] * 1e3:.2f} ms")
    for size in CROWDS:
        plain(f"  of which the text of {size:,} takes to be hashed", f"{hashing(size) * 1e3:.2f} ms")


def plans(size: int) -> dict[str, float]:
    """What the plans of a Service cost beside *size* others: the seconds by what it needs."""
    snapshot = crowd(size)
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
        snapshot.put(told := written(second, decided))
        found["none is free, as it was told before"] = best(300, planning(snapshot, told))
        found["whom the return of a status concerns"] = best(300, lambda: list(wakes.of(snapshot, first, held)))
        assert plan(snapshot, told).writes == ()
    return found


def in_a_cluster(*, nodes: int) -> float:
    """The seconds of a plan in a cluster of so many nodes."""
    snapshot = cluster([pool("bench", LARGE)], [service(NEW)], nodes=nodes)
    with frozen():
        return best(300, planning(snapshot, service(NEW)))


def crowd(size: int) -> Snapshot:
    """*size* Services that hold all addresses of a pool but one."""
    addresses = first_of(LARGE, size + 1)
    return cluster([pool("bench", f"{addresses[0]}-{addresses[-1]}")], services(size, held=addresses[:size]))


def events(size: int) -> dict[str, float]:
    """
    What one event of a Service costs in a Shared group of *size*: the seconds of all plans that it wakes.

    All Services are told where their VIPs are, and all nodes run what the ConfigMap says. A change of VIPs wakes the
    group, whose plan makes the whole text anew: once in 0.3 s at most.
    """
    scene = settled(crowd(size))
    first = next(iter(scene.snapshot.services.values()))
    metadata = msgspec.structs.replace(first.metadata, labels={**LABELS, "a": "b"})
    labelled = msgspec.structs.replace(first, metadata=metadata)
    wider, other = (
        msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, external_ips=[f"198.51.100.{number}"]))
        for number in (9, 10)
    )
    with frozen():
        return {
            "an event that leaves the VIPs alone": best(20, turns(scene, first, labelled)),
            "an event that changes them, the group's plan included": best(20, turns(scene, wider, other)),
        }


def hashing(size: int) -> float:
    """What nobody can save where one VIP is another: the name of a text is the hash of all of it."""
    data = settled(crowd(size)).objects.configmaps[GROUP].data or {}
    text = data[names.CONFIG_KEY]
    return best(20, lambda: sha256(text.encode()).hexdigest())


def turns(scene: Settled, one: Service, other: Service) -> Callable[[], None]:
    """Turn *one* into *other*, next time back, and so on; plan whatever that concerns."""
    scene.snapshot.put(one)
    pairs = cycle(((one, other), (other, one)))
    return lambda: happen(scene, *next(pairs))


def happen(scene: Settled, old: Service, new: Service) -> None:
    """Turn *old* into *new*, and plan whatever that concerns."""
    snapshot, observed, objects = scene.snapshot, scene.observed, scene.objects
    snapshot.put(new)
    for key in dict.fromkeys(wakes.of(snapshot, old, new)):
        match key.kind:
            case Kind.SERVICE:
                plan_service(snapshot, key.name, now=NOW, observed=observed, objects=objects)
            case Kind.GROUP:
                plan_group(snapshot, key.name, now=NOW, observed=observed, objects=objects)
            case Kind.POOL:
                plan_pool(snapshot, key.name, now=NOW)


def plan(snapshot: Snapshot, subject: Service) -> Plan:
    """The plan of *subject*."""
    return plan_service(snapshot, subject.key, now=NOW)


def planning(snapshot: Snapshot, subject: Service) -> Callable[[], Plan]:
    """To be timed."""
    return lambda: plan(snapshot, subject)


def written(subject: Service, decided: Plan) -> Service:
    """*subject* after the write of *decided*."""
    (patch,) = decided.writes
    assert isinstance(patch, StatusPatch)
    status = patch.body["status"]
    balancer = msgspec.convert(status.get("loadBalancer", {}), type(subject.status.load_balancer))
    conditions = msgspec.convert(status["conditions"], list[Condition])
    return msgspec.structs.replace(subject, status=type(subject.status)(balancer, conditions))


if __name__ == "__main__":
    main()
