"""
What one node costs the leader whose ``/state`` is as large as may be and never the same, beside an honest node.

A child process answers on loopback. *stalled* is the share of the time in which the event loop of the prober did not
come round within 5 ms, *CPU* the share of one core that the process took.
"""

import asyncio
import json
import multiprocessing
import socket
import time
from contextlib import suppress
from typing import Final

import aiohttp

from bench.timing import plain
from kavip.api.address import parse_address
from kavip.controller.prober import AgentProber
from kavip.reconcile.plan import ProbeTarget

SECONDS: Final = 20.0
VIPS: Final = 60_000
TICK: Final = 0.005
GROUP: Final = "lb/edge"
WANTED: Final = "192.0.2.130"


def body(number: int, vips: int) -> bytes:
    """The answer *number*, with so many VIPs that the group does not have."""
    more = [f"10.{number % 250}.{n >> 8}.{n & 255}".rjust(22) for n in range(vips)]
    instance = {"name": "shop/web", "routerID": 7, "state": "MASTER", "virtualIPs": [WANTED, *more]}
    return json.dumps({"group": GROUP, "configHash": str(number), "instances": [instance]}).encode()


def serve(listener: socket.socket, vips: int) -> None:
    """Answer each request with another body, until the process is ended."""
    bodies = [body(number, vips) for number in range(16)]
    number = 0
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while connection.recv(4096):
                number += 1
                found = bodies[number % len(bodies)].replace(b'"configHash": "', b'"configHash": "%d-' % number)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(found) + found)


async def measured(port: int) -> tuple[float, float]:
    """The shares *stalled* and *CPU* while the agent at *port* is probed."""
    vips = ({WANTED: parse_address(WANTED)},)
    async with aiohttp.ClientSession() as session:
        probe = AgentProber(session, changed=lambda _: None)
        probe.set_target(GROUP, ProbeTarget({"n1": "127.0.0.1"}, port, "wanted", vips=vips))
        task = asyncio.create_task(probe.run())
        began, spent, stalled = time.monotonic(), time.process_time(), 0.0
        while (at := time.monotonic()) - began < SECONDS:
            await asyncio.sleep(TICK)
            stalled += max(0.0, time.monotonic() - at - 2 * TICK)
        spent, took = time.process_time() - spent, time.monotonic() - began
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return stalled / took, spent / took


def main() -> None:
    """Print both shares for an honest node and for a lying one."""
    for name, vips in (("an honest node", 1), (f"a node with {VIPS:,} VIPs that change", VIPS)):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            child = multiprocessing.get_context("fork").Process(target=serve, args=(listener, vips), daemon=True)
            child.start()
            try:
                stalled, spent = asyncio.run(measured(listener.getsockname()[1]))
            finally:
                child.kill()
                child.join()
        plain(name, f"stalled {stalled:.1%}, CPU {spent:.1%}")


if __name__ == "__main__":
    main()
