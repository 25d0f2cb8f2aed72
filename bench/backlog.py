"""
A backlog: Services without addresses exist on a real API server when kavip starts.

For comparison, a bare client PATCHes as many statuses, with bodies of the same size, over 32 connections. It runs once
before and once after kavip, because the load of the machine may change. The audit log gives both times: from the first
status write received to the last one answered.
"""

import time
from statistics import median

from bench.bare import CONNECTIONS
from bench.goal import row
from bench.site import BARE, NAMESPACE, STRATEGIC, Site, clear, path, running, status, versions
from bench.writes import Write, duration, size

GOAL = 0.8  # of the bare client's rate
ROUNDS = 3
AGENT = "kavip"
BARE_AGENT = "Python/"  # the beginning of aiohttp's User-Agent


async def measure(site: Site, count: int) -> None:
    """Print the rows; afterwards the Services of kavip's namespace have addresses."""
    ratios, starts, sizes, rates = [], [], (0, 0), []
    for number in range(ROUNDS):
        before = await bare(site, count, seed=2 * number)
        await clear(site.bare, NAMESPACE, (f"s{each}" for each in range(count)))
        first, mine = await kavip(site, count)
        after = await bare(site, count, seed=2 * number + 1)
        limit = (duration(before) + duration(after)) / 2
        ratios.append(limit / duration(mine))
        starts.append(first)
        rates.append((count / limit, count / duration(mine)))
        sizes = size(before), size(mine)
    print(f"{count:,} Services in Shared groups; {ROUNDS} rounds, each bare client, kavip, bare client")
    for theirs, ours in rates:
        print(f"  status writes: bare client, {CONNECTIONS} connections {theirs:.0f}/s; kavip {ours:.0f}/s")
    print(f"  bodies: bare client {sizes[0]} bytes, kavip {sizes[1]} bytes")
    ratio = median(ratios)
    row("backlog: rate of kavip to that of the bare client", f"{ratio:.2f}", goal=f"at least {GOAL}", met=ratio >= GOAL)
    print(f"  backlog: process start to first status write, median {median(starts):.2f} s")


async def bare(site: Site, count: int, *, seed: int) -> list[Write]:
    """PATCH every status as the bare client, and return the writes; each *seed* makes different addresses."""
    known, writes = await versions(site.bare, BARE), site.writes
    await site.bare.all(
        ("PATCH", path(BARE, f"s{each}", "status"), status(each + count * seed, known[f"s{each}"]), STRATEGIC)
        for each in range(count)
    )
    return writes.by(BARE_AGENT)


async def kavip(site: Site, count: int) -> tuple[float, list[Write]]:
    """Run the controller until it has written *count* statuses; the seconds to its first write, and all its writes."""
    writes, began = site.writes, time.time()
    with running(site.plane, "controller"):
        await writes.until(AGENT, count)
    found = writes.by(AGENT)
    return min(each.began for each in found) - began, found
