"""
Time the allocator in process: ``python -m bench.allocate``.

An allocation begins with a parsed request and ends with addresses in the ledger; there is no JSON and no API server.
Objects made before a measurement are frozen in the garbage collector, as kavip does with its caches.

A goal is a ratio to the decoding of one Service (:mod:`.reference`), or the growth from few addresses to many; both
times are measured in turns. Measured one after the other, equal times differ by up to 1.9 x on a busy machine, which
is no growth: tests/ipam/ledger/test_cost.py counts the operations, and they are the same.

The goals were 25 us for an allocation, 20 us for a refusal and for the next allocation, and 100 us for a check of
overlaps, when a decoding took 2.4 us: the code that they were set for (a8c8c00d) needs 9.9 decodings for an allocation,
6.0 for a refusal and 7.6 for the next allocation. The goals are the same times in decodings.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from random import Random
from statistics import mean, median
from time import perf_counter
from typing import NamedTuple

from bench import goal
from bench.objects import LABELS, LARGE, SMALL, allocate, enter, first_of, pool, services
from bench.reference import AT_ONCE, NAME, decoding
from bench.timing import MICRO, TURNS, Clock, clock, flat, frozen, in_turns, plain, resident, timed, within
from kavip.ipam.allocate import decide
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import parse_pool
from kavip.ipam.pools import Pools
from kavip.ipam.request import Request

COUNT = 20_000
CHUNK = 1_000
HELD = 50_000
ROUNDS = 1_000_000
PATIENCE = 60.0  # seconds for those rounds, of which a slow machine does fewer
SLICE = 20  # chunks
COOL = 40  # chunks
CONSTANT = 1.01
ALLOCATION, DECISION, OVERLAP = 10.5, 8.4, 42  # goals, in decodings


def main() -> None:
    """Print the table."""
    print(f"allocator in process, Python {sys.version.split()[0]}")
    decoded = decoding()
    plain(f"reference: {NAME}", f"{in_turns(decoded)[0] * MICRO:.2f} us")
    seconds, beside, ledger = min((allocated(COUNT, SMALL) for _ in range(3)), key=lambda run: run[0] / run[1])
    what = f"allocate {COUNT:,} Services from a /16, all rules on"
    plain(what, f"{seconds:.3f} s")
    within("  an allocation", seconds / COUNT, beside, most=ALLOCATION, of=NAME)
    for family, usage in ledger.usage("bench").items():
        plain(f"  usage, IPv{family}", f"{usage.assigned:,} of {usage.total:,} assigned")
    few, many = grown(100)
    plain(f"per allocation at {CHUNK:,} in a /16", f"{few * MICRO:.1f} us")
    plain(f"per allocation at {100 * CHUNK:,} in a /14", f"{many * MICRO:.1f} us")
    flat(f"  growth, {100 * CHUNK:,} / {CHUNK:,}", few, many, most=1.1)
    plain("dual stack, per Service", f"{allocated(COUNT, SMALL, 'fd00::/64')[0] / COUNT * MICRO:.1f} us")
    small, full = failing(24), failing(16)
    compared("fail on a full /16", small, full, "full /16 / full /24")
    small, last = last_of_two("10.64.0.0/24", "11.0.0.0/24"), last_of_two(SMALL, "11.0.0.0/8")
    compared("next allocation, last address of a /16 beside an empty /8", small, last, "/16 and /8 / /24 and /24")
    churn()
    cool()
    seconds = restarted(COUNT)
    plain(f"restart: observe {COUNT:,} holders", f"{seconds:.3f} s")
    with frozen():
        checked, beside = in_turns(overlap(3_000), decoded)
    plain("overlap check of one pool against 3,000 CIDRs", f"{checked * MICRO:.1f} us")
    within("  a check", checked, beside, most=OVERLAP, of=NAME)


def compared(what: str, small: Clock, large: Clock, sizes: str) -> None:
    """Print what an operation costs in a *large* ledger, compared with decoding and with the same in a *small* one."""
    with frozen():
        few, many, beside = in_turns(small, large, decoding(), turns=2 * TURNS)
    plain(what, f"{many * MICRO:.1f} us")
    within("  one", many, beside, most=DECISION, of=NAME)
    flat(f"  growth, {sizes}", few, many, most=1.2)


def allocated(count: int, *addresses: str) -> tuple[float, float, Ledger]:
    """
    Allocate addresses for *count* Services, chunk by chunk, and decode a Service in between.

    Returns the seconds of the first and, for each decoding, of the second; and the ledger afterwards.
    """
    pools = Pools.of([pool("bench", *addresses)])
    ledger = Ledger(pools)
    requests = enter(services(count, dual=len(addresses) > 1), ledger)
    decoded, spent, beside = decoding(), 0.0, []
    with frozen():
        for at in range(0, count, CHUNK):
            spent += timed(partial(serve, requests[at : at + CHUNK], pools, ledger))
            beside += [decoded() for _ in range(CHUNK // AT_ONCE)]
    return spent, mean(beside), ledger


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


def failing(length: int) -> Clock:
    """The refusal of one more Service by a full pool with the prefix *length*."""
    pools = Pools.of([pool("bench", f"10.64.0.0/{length}")])
    ledger = Ledger(pools)
    *holders, last = enter(services((1 << (32 - length)) + 1), ledger)
    serve(holders, pools, ledger)
    return clock(lambda: decide(last, pools, ledger, namespace_labels=LABELS))


def last_of_two(one: str, other: str) -> Clock:
    """An allocation when *one*, tried first, has one free address, and *other* has only free ones."""
    pools = Pools.of([pool("bench", one), pool("wide", other, priority=200)])
    ledger = Ledger(pools)
    *holders, last = enter(services(pools.in_force[0].ranges[0].size), ledger)
    serve(holders, pools, ledger)

    def again() -> float:
        seconds = timed(lambda: allocate(last, pools, ledger))
        ledger.abandon(last.key)
        return seconds

    return again


def churn() -> None:
    """Free the address of a random Service and allocate again, many times: neither time nor memory may grow."""
    again, until = turnover(), perf_counter() + PATIENCE
    with frozen():
        first = [again() for _ in range(SLICE)]
        memory, blocks, last, count = resident(), allocated_blocks(), first, SLICE
        while count < ROUNDS // CHUNK and perf_counter() < until:
            last = [again() for _ in range(SLICE)]
            count += SLICE
        gained, growth = resident() - memory, allocated_blocks() / blocks
    plain(f"free and allocate again, at {HELD:,} held", f"{median(each.seconds for each in last) * MICRO:.1f} us")
    plain(f"  as a ratio to the {NAME}", f"{typical(last):.1f} x")
    flat(f"  growth of that over {count * CHUNK:,} rounds, last / first", typical(first), typical(last), most=1.15)
    what = "  objects in memory, at the end / after the first rounds"
    goal.row(what, f"{growth:.4f} x", goal=f"constant, under {CONSTANT:g} x", met=growth < CONSTANT)
    plain("  growth of resident memory, with fragmentation", f"{gained:.1f} MiB")


def cool() -> None:
    """The same in a pool with a cool-down."""
    again = turnover(cooldown=3600)
    with frozen():
        found = [again() for _ in range(COOL)]
    first, last = found[: COOL // 2], found[COOL // 2 :]
    plain("  the same with a cool-down", f"{median(each.seconds for each in last) * MICRO:.1f} us")
    flat(f"  growth over {COOL * CHUNK:,} rounds, last half / first", typical(first), typical(last), most=1.15)


class Spent(NamedTuple):
    """The *seconds* of an operation, and those of the reference operation *beside* it."""

    seconds: float
    beside: float


def typical(found: Sequence[Spent]) -> float:
    """The median ratio to the reference operation."""
    return median(each.seconds / each.beside for each in found)


def turnover(*, cooldown: int = 0) -> Callable[[], Spent]:
    """Each call :data:`CHUNK` times frees the address of a random Service and allocates again; the mean of a round."""
    pools, now = Pools.of([pool("bench", SMALL, cooldown=cooldown)]), datetime(2026, 1, 1, tzinfo=UTC)
    ledger, random, decoded = Ledger(pools), Random(1), decoding()
    found = services(HELD)
    requests = enter(found, ledger)
    serve(requests, pools, ledger)
    ledger.cooldown.lead(now)

    def rounds() -> None:
        for _ in range(CHUNK):
            at = random.randrange(HELD)
            ledger.observe(found[at].key, None)
            ledger.cooldown.start(now)
            ledger.drain_undone()
            ledger.observe(found[at].key, found[at])
            allocate(requests[at], pools, ledger)

    return lambda: Spent(timed(rounds) / CHUNK, mean(decoded() for _ in range(CHUNK // AT_ONCE)))


def allocated_blocks() -> int:
    """The number of objects in memory, without garbage."""
    gc.collect()
    return sys.getallocatedblocks()


def restarted(count: int) -> float:
    """The seconds in which a new ledger observes *count* Services with addresses."""
    holders = services(count, held=first_of(SMALL, count))
    ledger = Ledger(Pools.of([pool("bench", SMALL)]))
    with frozen():
        return timed(lambda: enter(holders, ledger))


def overlap(count: int) -> Clock:
    """The check of one more pool for overlaps with *count* pools."""
    stored = Pools.of(pool(f"p{index}", f"10.{index >> 8}.{index & 255}.0/24") for index in range(count))
    new = pool("new", "11.0.0.0/24")
    assert not stored.check(*parse_pool(new))
    return clock(lambda: stored.check(*parse_pool(new)))


if __name__ == "__main__":
    main()
