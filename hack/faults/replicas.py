"""Two ``kavip controller`` processes, and the faults injected into them."""

import asyncio
import random
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hack.testbed import process
from hack.testbed.controlplane import ControlPlane
from hack.testbed.ports import free_ports
from hack.testbed.process import Process
from kavip import names

LEASE: Final = 5
NAMESPACE: Final = "kavip"
_READY: Final = 60.0


@dataclass(slots=True)
class Replica:
    """One process; *name* is its user at the API server and its identity in the Lease."""

    plane: ControlPlane
    name: str
    lease: int
    process: Process | None = None
    metrics: int = 0  # the port

    @property
    def log(self) -> Path:
        """Its log, across restarts."""
        return self.plane.state / f"{self.name}.log"

    def start(self) -> None:
        """Start the process, also after it has ended."""
        probe, self.metrics = free_ports(2)
        command = [
            *(sys.executable, "-m", "kavip", "controller"),
            *(f"--kubeconfig={self.plane.user(self.name, 'system:masters')}", f"--identity={self.name}"),
            *(f"--namespace={NAMESPACE}", f"--lease-seconds={self.lease}"),
            *("--probe-host=127.0.0.1", f"--probe-port={probe}"),
            *("--metrics-host=127.0.0.1", f"--metrics-port={self.metrics}"),
        ]
        self.process = process.spawn(command, log=self.log)

    def signal(self, number: int) -> None:
        """Send it a signal if it runs."""
        if self.process is not None:
            self.process.signal(number)

    def reconciles(self) -> float | None:
        """How many reconciles it has done; None if it does not lead, has keys in its queue, or does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{names.METRICS_PATH}", timeout=2) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        found = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
        if (found.get("kavip_leader"), found.get("kavip_workqueue_depth")) != (1.0, 0.0):
            return None
        return sum(value for name, value in found.items() if name.startswith("kavip_reconcile_total"))

    def logged(self, phrase: str) -> int:
        """How often it has logged *phrase*."""
        return self.log.read_text().count(f'"{phrase}"')


@dataclass(slots=True)
class Pair:
    """Two replicas; *injected* are the faults injected into them, with their times (seconds since the epoch)."""

    plane: ControlPlane
    lease: int = LEASE
    replicas: tuple[Replica, Replica] = field(init=False)
    injected: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replicas = (Replica(self.plane, "kavip-a", self.lease), Replica(self.plane, "kavip-b", self.lease))

    @contextmanager
    def running(self, *replicas: Replica) -> Iterator[None]:
        """Start *replicas*; all replicas are killed when the block ends."""
        for each in replicas:
            each.start()
        try:
            process.wait_for("a leader", lambda: self.leader() is not None, timeout=_READY)
            yield
        finally:
            for each in self.replicas:
                each.signal(signal.SIGCONT)
            process.kill([each.process for each in self.replicas if each.process])

    def other(self, one: Replica) -> Replica:
        """The other replica."""
        return next(each for each in self.replicas if each is not one)

    def leader(self) -> Replica | None:
        """The holder of the Lease; None without a holder."""
        path = "--output=jsonpath={.spec.holderIdentity}"
        found = self.plane.kubectl(
            "get", "lease", names.LEASE_NAME, f"--namespace={NAMESPACE}", "--ignore-not-found", path
        ).stdout.strip()
        return next((each for each in self.replicas if each.name == found), None)

    def reconciles(self) -> float | None:
        """How many reconciles the leader has done; None without a leader, or with keys in its queue."""
        found = [number for each in self.replicas if (number := each.reconciles()) is not None]
        return found[0] if len(found) == 1 else None

    async def inject_faults(self, rng: random.Random, *, faults: tuple[str, ...]) -> None:
        """Inject one fault after the other until cancelled; then both replicas run."""
        try:
            while True:
                for fault in rng.sample(faults, len(faults)):  # a short history has each fault once
                    await asyncio.sleep(rng.uniform(2, 6))
                    await self._inject(fault, rng)
        finally:
            for each in self.replicas:
                each.signal(signal.SIGCONT)
                if each.process is None or not each.process.alive:
                    each.start()

    async def _inject(self, fault: str, rng: random.Random) -> None:
        victim = await asyncio.to_thread(self.leader)
        if victim is None:
            return
        if fault == "kill the other":
            victim = self.other(victim)
        self.injected.append((fault, time.time()))
        if fault == "stop":
            victim.signal(signal.SIGSTOP)
            await asyncio.sleep(self.lease + rng.uniform(1, 3))
            victim.signal(signal.SIGCONT)
            return
        victim.signal(signal.SIGTERM if fault == "end" else signal.SIGKILL)
        if victim.process is not None:
            await asyncio.to_thread(victim.process.wait, 30)
        await asyncio.sleep(rng.uniform(0, 2))
        victim.start()


FAULTS: Final = ("kill", "stop", "end", "kill the other")
"""``kill`` is SIGKILL, ``stop`` is SIGSTOP for longer than the lease, ``end`` is SIGTERM: all three of the leader."""
