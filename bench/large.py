"""
One large group on a real API server: ``python -m bench.large [SERVICES [NODES [SECONDS]]]``.

All Services are in one Shared group on all nodes, which are simulated (:mod:`.simulatednodes`). In turn: a backlog of
all Services, SECONDS of steady changes, a restart, and a kill of the leader while a second replica stands by. A watch
sees each address: none may be missing, taken twice, or changed.
"""

import asyncio
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final

from bench.backlog import AGENT
from bench.bare import connected
from bench.filled import GROUP, NOTES, REFERENCE, filled
from bench.goal import row
from bench.onemore import NO_CLASS, Watch, by_hand, served, watching
from bench.restart import GOAL as RESTART
from bench.restart import LEASE, listed
from bench.site import BARE, MERGE, NAMESPACE, STRATEGIC, Site, path, resident, running, service, status
from bench.timing import plain, spent, within
from hack.testbed import process, programs, runs
from hack.testbed.audit import POLICY, AuditLog
from hack.testbed.controlplane import ControlPlane
from kavip import names

SERVICES: Final = 20_000
NODES: Final = 200
SECONDS: Final = 300
RATE: Final = 50  # changes a second: two Services are created and two deleted, the others get a label
CREATED: Final = 2
KEPT_SECONDS: Final = 10  # until a Service that was created in churn is deleted
SAMPLES: Final = 5  # of the leader's memory
QUIET: Final = 10.0
LAST_LINES: Final = 40
PATIENCE: Final = 900.0
BACKLOG, CHURN, GROWTH = 0.8, 1.5, 1.15
_METADATA_ONLY: Final = {"level": "Metadata", "resources": [{"group": "", "resources": ["configmaps", "pods"]}]}
AUDIT: Final = {**POLICY, "rules": [_METADATA_ONLY, *POLICY["rules"]]}


@dataclass
class Addresses:
    """What a watch has seen: the address of each Service, those *moved*, and the Services that are *programmed*."""

    held: dict[str, str] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    programmed: set[str] = field(default_factory=set)

    def take(self, event: Any) -> None:
        """Take an event of the watch."""
        found = event["object"]
        name = found["metadata"]["name"]
        if found["metadata"]["namespace"] != NAMESPACE:
            return
        if event["type"] == "DELETED":
            self.held.pop(name, None)
            self.programmed.discard(name)
            return
        address = "".join(each["ip"] for each in found["status"]["loadBalancer"].get("ingress", ()))
        before = self.held.get(name, "")
        if before and address != before:
            self.moved.append(f"{name}: {before}, then {address or 'none'}")
        if address:
            self.held[name] = address
        reported = {each["type"]: each["status"] for each in found["status"].get("conditions") or ()}
        if reported.get(names.ConditionType.SERVICE_PROGRAMMED) == "True":
            self.programmed.add(name)

    def faults(self, existing: set[str]) -> list[str]:
        """What is wrong when each of *existing* should have an address of its own."""
        missing = sorted(existing - self.held.keys())
        twice = [each for each, times in Counter(self.held.values()).items() if times > 1]
        return [*(f"{each}: no address" for each in missing), *(f"{each}: twice" for each in twice), *self.moved]


@dataclass(frozen=True, slots=True)
class Scene:
    """The control plane with *services* Services, and what a *watch* of it has *seen*."""

    site: Site
    watch: Watch
    seen: Addresses
    services: int

    def report(self, when: str) -> None:
        """Print whether each Service has kept an address of its own."""
        faults = self.seen.faults({f"s{number}" for number in range(self.services)})
        row(f"{when}: addresses lost, moved or held twice", str(len(faults)), goal="0", met=not faults)
        for each in faults[:5]:
            print(f"    {each}")


@contextmanager
def nodes(plane: ControlPlane, count: int) -> Iterator[None]:
    """Run the simulated nodes during the block."""
    command, log = (sys.executable, "-m", "bench.simulatednodes"), plane.state / "nodes.log"
    started = process.spawn((*command, str(plane.kubeconfig), GROUP, str(count)), log=log)
    try:
        yield
    finally:
        if not started.alive:
            print(process.tail(log), file=sys.stderr)
        process.stop([started])


async def by_hand_rate(site: Site, seed: int) -> float:
    """Status writes a second of the bare client, to compare the backlog with."""
    calls = ((f"s{each}", status(each + seed * REFERENCE)) for each in range(REFERENCE))
    patches = (("PATCH", path(BARE, name, "status"), body, STRATEGIC) for name, body in calls)
    return REFERENCE / await site.bare.all(patches)


async def backlog(scene: Scene, pid: int, began: float) -> None:
    """Wait until each Service has an address, and then until each is programmed on the nodes."""
    await _until(lambda: len(scene.seen.held) == scene.services)
    rate = scene.services / (time.perf_counter() - began)
    bare = median([await by_hand_rate(scene.site, each) for each in range(3)])
    what = f"backlog of {scene.services:,}, addresses a second, to the bare client"
    row(what, f"{rate / bare:.2f} x", goal=f"at least {BACKLOG:g} x", met=rate >= BACKLOG * bare)
    await _until(lambda: len(scene.seen.programmed) == scene.services)
    took = time.perf_counter() - began
    plain("programmed on all nodes, to the time for all addresses", f"{took * rate / scene.services:.2f} x")
    cpu = spent(pid) / scene.services
    plain("CPU of a Service of the backlog, with the start and all texts", f"{cpu * 1e3:.2f} ms")
    plain("resident memory", f"{resident(pid)} MiB")
    scene.report("backlog")


# --- steady changes ---------------------------------------------------------------------------------------------------
@dataclass
class Churn:
    """
    :data:`RATE` changes a second; *ours* and *theirs*: seconds until an address, of kavip and by hand.

    *served*: the numbers of the new Services that have one; the others are not deleted.
    """

    scene: Scene
    served: set[int] = field(default_factory=set)
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    async def run(self, seconds: int) -> float:
        """The seconds that the changes of *seconds* took."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(RATE * seconds):
                await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
                tasks.create_task(self._change(number))
                if number % RATE == 0:  # beside one of kavip, for the load of the machine changes
                    tasks.create_task(self._by_hand(number))
        return time.perf_counter() - began

    async def _change(self, number: int) -> None:
        bare, old = self.scene.site.bare, number - RATE * KEPT_SECONDS
        match number % RATE:
            case turn if turn < CREATED:
                body = service(NAMESPACE, f"new{number}", annotations=NOTES)
                self.ours.append(await served(bare, self.scene.watch, body))
                self.served.add(number)
            case turn if turn < 2 * CREATED:
                if old - CREATED in self.served:
                    await bare.send("DELETE", path(NAMESPACE, f"new{old - CREATED}"))
            case _:
                label = {"metadata": {"labels": {"turn": f"t{number}"}}}
                name = f"s{number * 7919 % self.scene.services}"
                await bare.send("PATCH", path(NAMESPACE, name), label, MERGE)

    async def _by_hand(self, number: int) -> None:
        body = service(BARE, f"hand{number}", **NO_CLASS)
        self.theirs.append(await by_hand(self.scene.site.bare, self.scene.watch, body, number))


async def churn(scene: Scene, pid: int, seconds: int) -> None:
    """Make steady changes, and print what they cost."""
    audit = AuditLog(scene.site.plane.audit.path)
    before, memory, changes = spent(pid), [resident(pid)], Churn(scene)
    audit.mark()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_sample(pid, memory, seconds))
        took = await changes.run(seconds)
    cpu = (spent(pid) - before) / took
    await asyncio.sleep(QUIET)
    print(f"{RATE} changes a second for {seconds} s, {CREATED} of them new Services")
    plain("time that the changes took, to the time planned", f"{took / seconds:.2f} x")
    plain("CPU time of the leader, of one core", f"{cpu:.0%}")
    ours, theirs = median(changes.ours), median(changes.theirs)
    within("a new Service until its address, median, to the bare client", ours, theirs, most=CHURN, of="bare")
    plain("the slowest 1 %, to the bare client's median", f"{quantiles(changes.ours, n=100)[-1] / theirs:.1f} x")
    for what, count in sorted(writes_of(audit).items()):
        plain(f"writes for each change: {what}", f"{count / (RATE * seconds):.3f}")
    plain("resident memory before it, and after each fifth", ", ".join(map(str, memory)) + " MiB")
    grown = memory[-1] / memory[1]
    row("resident memory after it", f"{grown:.2f} x", goal=f"under {GROWTH:g} x after a fifth", met=grown < GROWTH)
    scene.report("changes")
    await _until(lambda: scene.seen.held.keys() <= scene.seen.programmed)


async def _sample(pid: int, memory: list[int], seconds: int) -> None:
    """Append the resident memory of *pid* to *memory* after each fifth of *seconds*."""
    for _ in range(SAMPLES):
        await asyncio.sleep(seconds / SAMPLES)
        memory.append(resident(pid))


def writes_of(audit: AuditLog) -> Counter[str]:
    """The writes of kavip by resource."""
    reads = {"get", "list", "watch"}
    found = (each for each in audit if each.agent.startswith(AGENT) and each.verb not in reads)
    return Counter("/".join(filter(None, (each.resource, each.subresource))) for each in found)


# --- leaders ----------------------------------------------------------------------------------------------------------
async def restart(scene: Scene) -> None:
    """Start again, and then kill the leader while another replica stands by; print the times to the next address."""
    site = scene.site
    bare = median([await listed(site) for _ in range(3)])
    print(f"leaders; a LIST of the bare client, from its start: {bare:.2f} s")
    writes, began = site.writes, time.perf_counter()
    with ExitStack() as stack:
        leader, _ = stack.enter_context(running(site.plane, "controller"))
        seconds = await _next(scene, "restarted", began)
        within("restart, next address, to a LIST of the bare client", seconds, bare, most=RESTART, of="bare")
        await asyncio.sleep(QUIET)
        needless = sum(each.name != "restarted" for each in writes.by(AGENT))
        row("restart, status writes to other Services", str(needless), goal="0", met=not needless)
        scene.report("restart")
        standby, _ = stack.enter_context(running(site.plane, "controller"))
        await asyncio.sleep(QUIET)
        plain("resident memory of the leader; of a standby", f"{resident(leader.pid)}; {resident(standby.pid)} MiB")
        writes, began = site.writes, time.perf_counter()
        leader.kill()
        leader.wait()
        seconds = await _next(scene, "failed-over", began)
        plain("leader killed, next address, beyond the lease, to the LIST", f"{(seconds - LEASE) / bare:.2f} x")
        await asyncio.sleep(QUIET)
        needless = sum(each.name not in {"restarted", "failed-over"} for each in writes.by(AGENT))
        row("fail-over, status writes to other Services", str(needless), goal="0", met=not needless)
    scene.report("fail-over")


async def _next(scene: Scene, name: str, began: float) -> float:
    """Create a Service; the seconds since *began* until it has an address."""
    await served(scene.site.bare, scene.watch, service(NAMESPACE, name, annotations=NOTES))
    return time.perf_counter() - began


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not done():
            await asyncio.sleep(0.05)


async def measure(plane: ControlPlane, count: int, node_count: int, seconds: int) -> None:
    """Print the table."""
    async with connected(plane.kubeconfig) as bare:
        site, seen = Site(plane, bare), Addresses()
        async with watching(bare, seen.take) as watch:
            print(f"{count:,} Services in one Shared group on {node_count} nodes", flush=True)
            scene = Scene(site, watch, seen, count)
            with nodes(plane, node_count):
                began = time.perf_counter()
                with running(plane, "controller") as (started, _):
                    await backlog(scene, started.pid, began)
                    await churn(scene, started.pid, seconds)
                await restart(scene)


def main(count: int = SERVICES, node_count: int = NODES, seconds: int = SECONDS) -> None:
    """Start a control plane with the Services, and measure on it."""
    data = filled(count)
    with runs.temporary() as state:
        shutil.copytree(data, state / "etcd")
        with ControlPlane(programs.ensure(), state, policy=AUDIT) as plane:
            try:
                asyncio.run(measure(plane, count, node_count, seconds))
            except BaseException:
                log = plane.state / "kavip.log"
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                print("the last lines of the controllers' log:", *lines[-LAST_LINES:], sep="\n", file=sys.stderr)
                raise


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
