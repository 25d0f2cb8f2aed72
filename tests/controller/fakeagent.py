"""Agents of a test: HTTP servers on loopback, and a prober that polls them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from kavip.controller.prober import AgentProber

PATIENCE = 60.0  # seconds, generous for a busy machine


def state(config_hash: str, *vips: str, vrrp: str = "BACKUP", refused: str = "") -> dict[str, Any]:
    """An agent's response to ``/state``."""
    return {
        "group": "lb/edge",
        "configHash": config_hash,
        "wantedHash": config_hash,
        "refused": refused,
        "keepalived": {"version": "2.2.7", "running": True},
        "instances": [
            {
                "name": "shop/web",
                "routerID": 7,
                "family": 4,
                "state": vrrp,
                "virtualIPs": list(vips),
                "priority": 200,
                "lastTransition": "2026-01-01T00:00:00Z",
            }
        ],
    }


class Agent:
    """An agent on a loopback address, which sends *answer* after *delay* seconds."""

    def __init__(self, answer: Callable[[], web.StreamResponse], *, delay: float = 0.0) -> None:
        """Start without requests."""
        self.answer, self.requests, self.delay = answer, 0, delay

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer ``/state``."""
        self.requests += 1
        await asyncio.sleep(self.delay)
        return self.answer()


@asynccontextmanager
async def serving(agent: Agent, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Serve *agent*; yields the port."""
    app = web.Application()
    app.router.add_get("/state", agent.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def watching(
    interval: float = 3600.0, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[AgentProber, "asyncio.Queue[str]"]]:
    """A running prober, and the groups that it reports."""
    changed_groups: asyncio.Queue[str] = asyncio.Queue()
    async with aiohttp.ClientSession() as session:
        probe = AgentProber(session, changed=changed_groups.put_nowait, interval=interval, clock=clock)
        task = asyncio.create_task(probe.run())
        try:
            yield probe, changed_groups
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
