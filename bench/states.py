"""
What a change in a large group costs the leader, which reads ``/state`` of all its nodes: bytes, and CPU time.

A child process serves the agents of all nodes; their server is that of real agents. One VIP changes at a time, until
all nodes report it. The reference is the same with agents that send every list each time, as those of 0.1.0 do.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Final
from unittest.mock import patch

import aiohttp

from bench.goal import row
from bench.timing import plain
from kavip import names
from kavip.agent.http.server import JSON, AgentServer, PageContent, PageRequest
from kavip.agent.report.state import encode
from kavip.api.address import Address
from kavip.api.agent import VIPS_BY_HASH, AgentState, InstanceReport, KeepalivedReport
from kavip.controller import agentclient
from kavip.controller.agentclient import Page
from kavip.controller.prober import AgentProber
from kavip.ipam.ranges import parse_range
from kavip.reconcile.plan import ProbeTarget

VIPS: Final = 20_000
NODES: Final = 40
INSTANCES: Final = 16
CHANGES: Final = 6
PATIENCE: Final = 120.0
MOST_BYTES, MOST_CPU = 0.15, 0.25
GROUP: Final = "lb/edge"
POOL: Final = "10.64.0.0/14"
HOSTS: Final = {f"n{number:03}": f"127.0.1.{number + 1}" for number in range(NODES)}

Cost = tuple[float, float]
"""The bytes and the CPU seconds of one change."""


def state(number: int) -> AgentState:
    """What each agent reports after *number* changes."""
    vips = [*vip_texts(number)]
    instances = (
        InstanceReport(name=f"group/{at}", router_id=at + 1, state="BACKUP", virtual_ips=tuple(vips[at::INSTANCES]))
        for at in range(INSTANCES)
    )
    running = KeepalivedReport(running=True)
    return AgentState(group=GROUP, config_hash=f"h{number}", keepalived=running, instances=tuple(instances))


def vip_texts(number: int) -> Mapping[str, Address]:
    """The VIPs after *number* changes, each of which replaces the last one."""
    span = parse_range(POOL)
    found = [Address(span.family, span.first + at) for at in (*range(VIPS - 1), VIPS + number)]
    return {str(each): each for each in found}


async def serve(changes: Connection, *, by_hash: bool) -> None:
    """Serve the agents; each message in *changes* is the number of the state that they report from then on."""
    current = [state(0)]

    async def page(request: PageRequest) -> PageContent:
        return PageContent(encode(current[0], by_hash=by_hash and VIPS_BY_HASH in request.preferences), JSON)

    async with AsyncExitStack() as stack:
        port = 0
        for host in HOSTS.values():
            agent = AgentServer({names.STATE_PATH: page}, seconds=PATIENCE)  # all of them are in one process
            port = await stack.enter_async_context(agent.listening(host, port))
        changes.send(port)
        while True:
            current[0] = state(await asyncio.to_thread(changes.recv))
            changes.send(port)


@contextmanager
def agents(*, by_hash: bool) -> Iterator[Connection]:
    """The agents in a process of their own, and the way to change what they report."""
    ours, theirs = multiprocessing.Pipe()
    work = partial(serve, theirs, by_hash=by_hash)
    child = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(work()), daemon=True)
    child.start()
    try:
        yield ours
    finally:
        child.kill()
        child.join()


async def costs(changes: Connection) -> list[Cost]:
    """The cost of each change."""
    read, found, port = [0], list[Cost](), await asyncio.to_thread(changes.recv)
    ask = agentclient.get

    async def counted(session: aiohttp.ClientSession, url: str, *, tag: str = "", by_hash: bool = False) -> Page:
        page = await ask(session, url, tag=tag, by_hash=by_hash)
        read[0] += len(page.body or b"")
        return page

    with patch.object(agentclient, "get", counted):
        async with aiohttp.ClientSession() as session:
            prober = AgentProber(session, changed=lambda _: None)
            task = asyncio.create_task(prober.run())
            for number in range(CHANGES):
                if number:
                    await asyncio.to_thread(changes.send, number)
                    await asyncio.to_thread(changes.recv)
                target = ProbeTarget(HOSTS, port, f"h{number}", vips=(vip_texts(number),))
                before = read[0], time.process_time()
                prober.set_target(GROUP, target)
                await until_all_report(prober, f"h{number}")
                if number:
                    found.append((read[0] - before[0], time.process_time() - before[1]))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return found


async def until_all_report(prober: AgentProber, config_hash: str) -> None:
    """Wait until all nodes run *config_hash* with all VIPs."""
    async with asyncio.timeout(PATIENCE):
        while True:
            states = prober.agents.states_of(GROUP)
            if len(states) == NODES and all(
                (each.config_hash, len(each.runs)) == (config_hash, VIPS) for each in states.values()
            ):
                return
            await asyncio.sleep(0.01)


def main() -> None:
    """Print the table."""
    sizes, seconds = [], []
    for by_hash, what in ((False, "every list from each node"), (True, "lists by hash")):
        with agents(by_hash=by_hash) as changes:
            found = asyncio.run(costs(changes))
        sizes.append(median(size for size, _ in found))
        seconds.append(median(spent for _, spent in found))
        plain(f"{what}, one change", f"{sizes[-1] / 2**20:.1f} MiB, {seconds[-1] * 1e3:.0f} ms CPU")
    for what, (whole, short), most in (("bytes", sizes, MOST_BYTES), ("CPU time of the leader", seconds, MOST_CPU)):
        ratio = short / whole
        row(f"{what}, {NODES} nodes", f"{ratio:.2f} x", goal=f"under {most:g} x every list", met=ratio < most)


if __name__ == "__main__":
    main()
