"""
The time until ``kavip run`` is ready, and the memory that it then uses.

Each Service already has an address from kavip. The time, with process start and TLS, is compared with that of a bare
client from its start to the end of a LIST of the same Services, in turns. The goal is that of :mod:`.restart`.
"""

import asyncio
import time
from statistics import median

import aiohttp

from bench.goal import row
from bench.restart import GOAL, listed
from bench.site import HOST, Site, resident, running
from bench.timing import within
from kavip import names

ROUNDS = 3
PATIENCE = 600.0
MEMORY = 150  # MiB
SETTLED = 15.0  # seconds in which kavip becomes the leader and reconciles every Service, without a write


async def measure(site: Site) -> None:
    """Print the rows."""
    lists, starts, memory = [], [], 0
    for last in [False] * (ROUNDS - 1) + [True]:
        lists.append(await listed(site))
        with running(site.plane, "run", "--lease-seconds=5") as (process, port):
            starts.append(await until_ready(port))
            if last:
                await asyncio.sleep(SETTLED)
                memory = resident(process.pid)
    bare, ours = median(lists), median(starts)
    print(f"  process start to the end of a LIST, bare client {bare:.2f} s; until kavip run is ready {ours:.2f} s")
    within("ready, to the bare client", ours, bare, most=GOAL, of="bare")
    row("resident memory of kavip run, leading", f"{memory} MiB", goal=f"under {MEMORY} MiB", met=memory < MEMORY)


async def until_ready(port: int) -> float:
    """The seconds until the readiness probe answers 200."""
    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://{HOST}:{port}{names.READY_PATH}") as answer:
                    if answer.status == 200:
                        return time.perf_counter() - began
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)
