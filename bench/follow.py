"""
How soon a VIP with ``externalTrafficPolicy: Local`` follows its endpoints, with real daemons. It needs root.

The time is that from a change of kube-proxy's health ports (simulated) to the first answer of the new node. A second
table has the CPU time of an agent that polls 1, 30 and 255 ports.
"""

import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.goal import row
from bench.timing import plain
from hack.testbed import runs
from hack.testbed.segment import Segment
from kavip.agent.health.endpoints import LocalEndpoints
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.api.agentconfig import LocalTrack
from tests.transitions.healthports import HealthPorts
from tests.transitions.livegroup import LiveGroup, group
from tests.transitions.recording import record
from tests.transitions.test_local import VIP, WEB

MOVES: Final = 12
PROFILES: Final = ((3, 200, 1.0, "within 1 s"), (2, 1000, 4.0, "four intervals"))
IDLE: Final = 10.0
MOST: Final = 255


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


async def idle(ports: list[int]) -> float:
    """The share of a core that polling *ports* takes."""
    with tempfile.TemporaryDirectory() as folder:
        asking = LocalEndpoints("n1", TrackFiles(Path(folder) / "track"), hosts=("127.0.0.1",))
        asking.configure(tuple(LocalTrack(track=f"local-{port}", port=port) for port in ports))
        task = asyncio.create_task(asking.run())
        await asyncio.sleep(2)
        assert all(ready for _, ready in asking.states), "a port does not answer"
        before = time.process_time()
        await asyncio.sleep(IDLE)
        share = (time.process_time() - before) / IDLE * 100
        task.cancel()
        return share


@contextmanager
def served(count: int) -> Iterator[list[int]]:
    """*count* health ports that answer 200."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in probes:
            each.bind(("127.0.0.1", 0))
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
    for version, milliseconds, longest, goal in PROFILES:
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
        row(what, f"{max(found):.2f} s", goal=goal, met=max(found) <= longest)
        plain("  median", f"{statistics.median(found):.2f} s")
    with served(MOST) as ports:
        for count in (1, 30, MOST):
            share = asyncio.run(idle(ports[:count]))
            row(
                f"polling {count} ports, of a core, over {IDLE:.0f} s",
                f"{share:.2f} %",
                goal="under 0.5 %",
                met=share < 0.5,
            )


if __name__ == "__main__":
    main()
