"""
How soon a VIP with ``externalTrafficPolicy: Local`` follows its endpoints, with real daemons. It needs root.

The time is that from a change of kube-proxy's health ports (simulated) to the first answer of the new node, as a ratio
to the interval between advertisements. A second table has the CPU time of an agent that polls 1, 30 and 255 ports, as a
ratio to a bare asyncio client that sends a GET to the same ports as often, in turns.

The goals of the second table are 1.3 x the ratios seen (0.50, 0.17, 0.08), but not more than the earlier goal, 0.5 % of
a core, was on that day.
"""

import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.timing import plain, within
from hack.testbed import runs
from hack.testbed.segment import Segment
from kavip.agent.health.endpoints import INTERVAL, MAX_RATE, LocalEndpoints
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.api.agentconfig import LocalTrack
from tests.transitions.healthports import HealthPorts
from tests.transitions.livegroup import LiveGroup, group
from tests.transitions.recording import record
from tests.transitions.test_local import VIP, WEB

MOVES: Final = 12
PROFILES: Final = ((3, 200, 5), (2, 1000, 4))
"""VRRP version, milliseconds between advertisements, and the longest time in such intervals."""
IDLE: Final = 5.0
ROUNDS: Final = 2
PORTS: Final = {1: 0.65, 30: 0.19, 255: 0.11}
"""How many are polled, and the most CPU time for that, as a ratio to the bare client."""
HOST: Final = "127.0.0.1"


def follow(live: LiveGroup, health_ports: HealthPorts, *, version: int, milliseconds: int) -> list[float]:
    """For each move of the endpoint, the seconds until its node answers a client."""
    health_ports.set_ready("n1")
    live.apply(group(vrrp_version=version, advert_interval_milliseconds=milliseconds), WEB)
    marks: list[tuple[str, float]] = []
    with record(live, [VIP]) as recorded:
        for node in ["n1", *("n2", "n3", "n1") * (MOVES // 3)]:
            marks.append((node, time.monotonic()))
            health_ports.set_ready(node)
            live.wait_for_master("shop/web", node)
            time.sleep(0.37)  # so that each move comes at a different moment of the agents' polling interval
    found = []
    for node, since in marks[1:]:
        answers = (sent + took for sent, took, owner in recorded.rows[VIP] if took is not None and owner == node)
        found.append(min(moment for moment in answers if moment >= since) - since)
    return found


async def polling(ports: list[int]) -> float:
    """The share of a core, in percent, that the agent's polling of *ports* takes."""
    with tempfile.TemporaryDirectory() as folder:
        asking = LocalEndpoints("n1", TrackFiles(Path(folder) / "track"), hosts=(HOST,))
        asking.configure(tuple(LocalTrack(track=f"local-{port}", port=port) for port in ports))
        found = await share(asking.run())
        assert all(ready for _, ready in asking.states), "a port does not answer"
        return found


async def asking(ports: list[int]) -> float:
    """The share of a core, in percent, that a bare client takes which sends a GET to *ports* as often."""

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()

    async def run() -> None:
        while True:
            await asyncio.gather(*map(ask, ports))
            await asyncio.sleep(max(INTERVAL, len(ports) / MAX_RATE))

    return await share(run())


async def share(work: Coroutine[Any, Any, None]) -> float:
    """The share of a core, in percent, that *work* takes after it has begun."""
    task = asyncio.create_task(work)
    await asyncio.sleep(2)
    before = time.process_time()
    await asyncio.sleep(IDLE)
    found = (time.process_time() - before) / IDLE * 100
    task.cancel()
    return found


@contextmanager
def served(count: int) -> Iterator[list[int]]:
    """*count* health ports that answer 200."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in probes:
            each.bind((HOST, 0))
        ports = [int(each.getsockname()[1]) for each in probes]
        stack.close()
        for port in ports:
            (Path(folder) / str(port)).write_text("200")
        with subprocess.Popen([sys.executable, "-m", "tests.transitions.healthports", folder]) as serving:
            try:
                yield ports
            finally:
                serving.kill()


def main() -> None:
    """Print the rows."""
    for version, milliseconds, most in PROFILES:
        with runs.temporary() as state, Segment(state, nodes=3) as lan:
            live = LiveGroup(lan, state / "group", nodes=3)
            health_ports = HealthPorts(live.lan.nodes, state / "proxies")
            health_ports.start()
            try:
                found = follow(live, health_ports, version=version, milliseconds=milliseconds)
            finally:
                health_ports.stop()
                live.stop()
        what = f"version {version}, {milliseconds} ms: VIP follows, longest of {len(found)}"
        within(what, max(found) * 1000, milliseconds, most=most, of="the interval")
        plain("  median", f"{statistics.median(found):.2f} s")
    with served(max(PORTS)) as ports:
        for count, limit in PORTS.items():
            rounds = [(asyncio.run(polling(ports[:count])), asyncio.run(asking(ports[:count]))) for _ in range(ROUNDS)]
            ours, bare = (min(found) for found in zip(*rounds, strict=True))
            plain(f"polling {count} ports, of a core; a bare client", f"{ours:.2f} %; {bare:.2f} %")
            within("  to the bare client", ours, bare, most=limit, of="bare")


if __name__ == "__main__":
    main()
