"""
Thousands of Services on one real API server: a backlog of half of them, one more, addresses for all, restarts.

One control plane serves every row, because creating the Services takes longer than all measurements.
"""

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

from bench import backlog, onemore, restart, start
from bench.backlog import AGENT
from bench.bare import connected
from bench.goal import row
from bench.site import BARE, MERGE, Site, clear, notes, path, prepare, running
from hack.testbed import programs, runs
from hack.testbed.controlplane import ControlPlane

ROOT = Path(__file__).parents[1]
SERVICES = 10_000


async def measure(plane: ControlPlane, count: int) -> None:
    """Print the rows."""
    async with connected(plane.kubeconfig) as bare:
        site, began = Site(plane, bare), time.perf_counter()
        await prepare(bare, count // 2)
        print(f"{count:,} Services made in {time.perf_counter() - began:.0f} s", flush=True)
        await backlog.measure(site, count // 2)
        with running(plane, "controller"):
            await asyncio.sleep(5)
            print(f"{count // 2:,} Services held; median of {onemore.PAIRS} pairs", flush=True)
            await onemore.measure(site)
            await _hold_all(site, count // 2)
        print(f"{count:,} Services held; median of {restart.ROUNDS}", flush=True)
        await restart.measure(site)
        await start.measure(site)


async def _hold_all(site: Site, count: int) -> None:
    """Let kavip manage the Services of the bare client too: it must write the status of each once."""
    await clear(site.bare, BARE, (f"s{each}" for each in range(count)))
    writes = site.writes
    annotated = ({"metadata": {"annotations": notes(each)}} for each in range(count))
    calls = (("PATCH", path(BARE, f"s{number}"), body, MERGE) for number, body in enumerate(annotated))
    await site.bare.all(calls)
    await writes.until(AGENT, count)
    await asyncio.sleep(restart.QUIET)
    written = Counter(each.name for each in writes.by(AGENT))
    most = max(written.values())
    ratio = f"{sum(written.values()) / count:.2f}"
    row("status writes per allocation", ratio, goal="1", met=most == 1 and len(written) == count)


def main(count: int = SERVICES) -> None:
    """Start a control plane and measure on it."""
    with runs.temporary() as state, ControlPlane(programs.ensure(), state) as plane:
        plane.kubectl("apply", "-f", str(ROOT / "config" / "crd" / "bases"))
        plane.wait_established()
        asyncio.run(measure(plane, count))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
