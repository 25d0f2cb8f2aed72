"""
A restart with thousands of Services: the time until the next Service has its address, and the number of status writes.

SIGTERM releases the lease, so the time is that of a new process to list and decode everything. It is compared with that
of a bare client (:mod:`.bare`) from its start to the end of one LIST, in turns. After kill -9 the new leader also waits
until the lease expires; that time is printed separately.

The goal is about what the earlier one was, 2 s beyond a LIST, when the bare client took 1.1 s (with 2,000 Services).
"""

import asyncio
import sys
import time
from statistics import median

from bench.backlog import AGENT
from bench.goal import row
from bench.onemore import Watch, served, watching
from bench.site import MERGE, NAMESPACE, Site, notes, path, running, service
from bench.timing import within

GOAL = 2.0  # of the bare client's time
ROUNDS = 3
QUIET = 5.0  # seconds in which a needless write would come
LEASE = 15.0  # kavip's default
PATIENCE = 60.0
LABELLED = 20


async def measure(site: Site) -> None:
    """Print the rows."""
    lists, terms = [], []
    async with watching(site.bare) as watch:
        for number in range(ROUNDS):
            lists.append(await listed(site))
            terms.append(await _start(site, watch, f"again{number}"))
        killed = await _killed(site, watch)
        quiet = await _quiet(site)
    starts, needless = [seconds for seconds, _ in terms], sum(writes for _, writes in terms)
    bare, ours = median(lists), median(starts)
    print(f"  process start to the end of a LIST, bare client {bare:.2f} s; to the next address, kavip {ours:.2f} s")
    within("restart, next address, to the bare client", ours, bare, most=GOAL, of="bare")
    row("restart, status writes of Services that have an address", str(needless), goal="0", met=not needless)
    print(f"  after kill -9, with a lease of {LEASE:g} s: {killed:.2f} s from process start to the next address")
    row("labels and a second LIST, status writes", str(quiet), goal="0", met=not quiet)


async def listed(site: Site) -> float:
    """The seconds of a bare client from its start until it has LISTed the Services."""
    began = time.perf_counter()
    command = (sys.executable, "-m", "bench.bare", str(site.plane.kubeconfig), path(NAMESPACE))
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
    return time.perf_counter() - began


async def _start(site: Site, watch: Watch, name: str) -> tuple[float, int]:
    """The seconds from process start until a Service created at the same time has its address; needless writes."""
    writes, began = site.writes, time.perf_counter()
    with running(site.plane, "controller"):
        seconds = await _next(site, watch, name) - began
        await asyncio.sleep(QUIET)
    return seconds, sum(each.name != name for each in writes.by(AGENT))


async def _killed(site: Site, watch: Watch) -> float:
    """The same seconds after a leader was killed and could not release the lease."""
    with running(site.plane, "controller") as (process, _):
        await _next(site, watch, "before")
        process.kill()
        process.wait()
    began = time.perf_counter()
    with running(site.plane, "controller"):
        return await _next(site, watch, "after") - began


async def _quiet(site: Site) -> int:
    """
    The number of kavip's status writes while Services get labels, and while kavip LISTs everything again.

    The watch cache of an API server begins with its start. A client whose last resourceVersion of a kind is older gets
    410 and must LIST again. The last writes before the restart are to Namespaces, so the Services' version is older.
    """
    with running(site.plane, "controller"):
        await asyncio.sleep(QUIET + LEASE / 3)
        writes = site.writes
        label = {"metadata": {"labels": {"bench": "labelled"}}}
        await site.bare.all(("PATCH", path(NAMESPACE, f"s{each}"), label, MERGE) for each in range(LABELLED))
        await site.bare.all(("PATCH", f"/api/v1/namespaces/{each}", label, MERGE) for each in (NAMESPACE, "default"))
        site.plane.audit.mark()
        await asyncio.to_thread(site.plane.restart)
        async with asyncio.timeout(PATIENCE):
            while not site.plane.audit.events(verb="list", resource="services"):
                await asyncio.sleep(0.5)
        await asyncio.sleep(QUIET)
    return len(writes.by(AGENT))


async def _next(site: Site, watch: Watch, name: str) -> float:
    """Create a Service; the time at which it has an address in the watch."""
    await served(site.bare, watch, service(NAMESPACE, name, annotations=notes(1), port=2000))
    return time.perf_counter()
