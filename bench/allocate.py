"""
Time the allocator in process: ``python -m bench.allocate``.

An allocation begins with a parsed request and ends with addresses in the ledger; there is no JSON and no API server.
Figures of one run are compared with each other: the time of an allocation must not grow with the number of held
addresses. Objects made before a measurement are frozen in the garbage collector, as kavip does with its caches.
"""

import gc
import sys
from datetime import UTC, datetime
from functools import partial
from random import Random
from statistics import median
from time import perf_counter

from bench import goal
from bench.objects import LABELS, LARGE, SMALL, allocate, enter, first_of, pool, services
from bench.timing import MICRO, best, flat, frozen, plain, resident, timed, within
from kavip.ipam.allocate import decide
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import parse_pool
from kavip.ipam.pools import Pools
from kavip.ipam.request import Request

COUNT = 20_000
CHUNK = 1_000
HELD = 50_000
ROUNDS = 1_000_000
PATIENCE = 60.0  # seconds for those rounds
SLICES = 10
CONSTANT = 1.01


def main() -> None:
    """Print the table."""
    print(f"allocator in process, Python {sys.version.split()[0]}")
    seconds, ledger = min((allocated(COUNT, SMALL) for _ in range(3)), key=lambda run: run[0])
    what = f"allocate {COUNT:,} Services from a /16, all rules on"
    goal.row(what, f"{seconds:.3f} s", goal="under 0.5 s", met=seconds < 0.5)
    for family, usage in ledger.usage("bench").items():
        plain(f"  usage, IPv{family}", f"{usage.assigned:,} of {usage.total:,} assigned")
    few, many = grown(100)
    plain(f"per allocation at {CHUNK:,} in a /16", f"{few * MICRO:.1f} us")
    plain(f"per allocation at {100 * CHUNK:,} in a /14", f"{many * MICRO:.1f} us")
    flat(f"  growth, {100 * CHUNK:,} / {CHUNK:,}", few, many, most=1.1)
    plain("dual stack, per Service", f"{allocated(COUNT, SMALL, 'fd00::/64')[0] / COUNT * MICRO:.1f} us")
    small, full = failing(24), failing(16)
    within("fail on a full /16", full, microseconds=20)
    flat("  growth, full /16 / full /24", small, full, most=1.2)
    small, last = last_of_two("10.64.0.0/24", "11.0.0.0/24"), last_of_two(SMALL, "11.0.0.0/8")
    within("next allocation, last address of a /16 beside an empty /8", last, microseconds=20)
    flat("  growth, /16 and /8 / /24 and /24", small, last, most=1.2)
    churn()
    first, last = cooled(40)
    plain("  the same with a cool-down", f"{last * MICRO:.1f} us")
    flat(f"  growth over {40 * CHUNK:,} rounds, last half / first", first, last, most=1.15)
    seconds = restarted(COUNT)
    plain(f"restart: observe {COUNT:,} holders", f"{seconds:.3f} s")
    within("overlap check of one pool against 3,000 CIDRs", overlap(3_000), microseconds=100)


def allocated(count: int, *addresses: str) -> tuple[float, Ledger]:
    """Allocate addresses for *count* Services; the seconds that this takes, and the ledger afterwards."""
    pools = Pools.of([pool("bench", *addresses)])
    ledger = Ledger(pools)
    requests = enter(services(count, dual=len(addresses) > 1), ledger)
    with frozen():
        return timed(lambda: serve(requests, pools, ledger)), ledger


def serve(requests: list[Request], pools: Pools, ledger: Ledger) -> None:
    """Allocate addresses for all *requests*."""
    for request in requests:
        allocate(request, pools, ledger)


def grown(times: int) -> tuple[float, float]:
    """
    The seconds of one allocation in *times* small clusters, and in one large cluster with as many Services.

    A small cluster and a part of the large one take turns, so that other load on the machine affects both.
    """
    small, large = Pools.of([pool("bench", SMALL)]), Pools.of([pool("bench", LARGE)])
    found = services(times * CHUNK)
    ledgers = [Ledger(small) for _ in range(times)]
    few = [enter(found[:CHUNK], each) for each in ledgers]
    ledger = Ledger(large)
    many = enter(found, ledger)
    spent = [0.0, 0.0]
    with frozen():
        for turn in range(times):
            spent[0] += timed(partial(serve, few[turn], small, ledgers[turn]))
            part = many[turn * CHUNK : (turn + 1) * CHUNK]
            spent[1] += timed(partial(serve, part, large, ledger))
    return spent[0] / (times * CHUNK), spent[1] / (times * CHUNK)


def failing(length: int) -> float:
    """The seconds in which one more Service is refused by a full pool with the prefix *length*."""
    pools = Pools.of([pool("bench", f"10.64.0.0/{length}")])
    ledger = Ledger(pools)
    *holders, last = enter(services((1 << (32 - length)) + 1), ledger)
    serve(holders, pools, ledger)
    with frozen():
        return best(500, lambda: decide(last, pools, ledger, namespace_labels=LABELS))


def last_of_two(one: str, other: str) -> float:
    """The seconds of an allocation when *one*, tried first, has one free address, and *other* has only free ones."""
    pools = Pools.of([pool("bench", one), pool("wide", other, priority=200)])
    ledger = Ledger(pools)
    *holders, last = enter(services(pools.in_force[0].ranges[0].size), ledger)
    serve(holders, pools, ledger)
    times = []
    with frozen():
        for _ in range(500):
            times.append(timed(lambda: allocate(last, pools, ledger)))
            ledger.abandon(last.key)
    return min(times)


def churn() -> None:
    """Free the address of a random Service and allocate again, many times: neither time nor memory may grow."""
    pools = Pools.of([pool("bench", SMALL)])
    ledger, random = Ledger(pools), Random(1)
    found = services(HELD)
    requests = enter(found, ledger)
    serve(requests, pools, ledger)

    def rounds(count: int) -> None:
        for _ in range(count):
            at = random.randrange(HELD)
            ledger.observe(found[at].key, None)
            ledger.observe(found[at].key, found[at])
            allocate(requests[at], pools, ledger)

    times: list[list[float]] = []
    with frozen():
        until, memory, blocks = perf_counter() + PATIENCE, 0.0, 0
        while len(times) < SLICES and perf_counter() < until:
            times.append([timed(lambda: rounds(CHUNK)) / CHUNK for _ in range(ROUNDS // SLICES // CHUNK)])
            memory, blocks = memory or resident(), blocks or allocated_blocks()
        gained, growth = resident() - memory, allocated_blocks() / blocks
    first, last = median(times[0]), median(times[-1])
    plain(f"free and allocate again, at {HELD:,} held", f"{last * MICRO:.1f} us")
    flat(f"  growth over {len(times) * ROUNDS // SLICES:,} rounds, last tenth / first", first, last, most=1.15)
    what = "  objects in memory, at the end / after the first tenth"
    goal.row(what, f"{growth:.4f} x", goal=f"constant, under {CONSTANT:g} x", met=growth < CONSTANT)
    plain("  growth of resident memory, with fragmentation", f"{gained:.1f} MiB")


def allocated_blocks() -> int:
    """The number of objects in memory, without garbage."""
    gc.collect()
    return sys.getallocatedblocks()


def cooled(chunks: int) -> tuple[float, float]:
    """The seconds of a round of :func:`churn` in a pool with a cool-down: in the first half and in the second."""
    pools, now = Pools.of([pool("bench", SMALL, cooldown=3600)]), datetime(2026, 1, 1, tzinfo=UTC)
    ledger, random = Ledger(pools), Random(1)
    found = services(HELD)
    requests = enter(found, ledger)
    serve(requests, pools, ledger)
    ledger.cooldown.lead(now)

    def rounds() -> None:
        for _ in range(CHUNK):
            at = random.randrange(HELD)
            ledger.observe(found[at].key, None)
            ledger.cooldown.start(now)
            ledger.observe(found[at].key, found[at])
            allocate(requests[at], pools, ledger)

    with frozen():
        times = [timed(rounds) / CHUNK for _ in range(chunks)]
    return median(times[: chunks // 2]), median(times[chunks // 2 :])


def restarted(count: int) -> float:
    """The seconds in which a new ledger observes *count* Services with addresses."""
    holders = services(count, held=first_of(SMALL, count))
    ledger = Ledger(Pools.of([pool("bench", SMALL)]))
    with frozen():
        return timed(lambda: enter(holders, ledger))


def overlap(count: int) -> float:
    """The seconds in which one more pool is checked for overlaps with *count* pools."""
    stored = Pools.of(pool(f"p{index}", f"10.{index >> 8}.{index & 255}.0/24") for index in range(count))
    new = pool("new", "11.0.0.0/24")
    assert not stored.check(*parse_pool(new))
    return best(100, lambda: stored.check(*parse_pool(new)))


if __name__ == "__main__":
    main()
