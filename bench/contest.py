"""
What one controller needs in one round of :mod:`.peers`.

The bare client does by hand what creation bounds, right beside it. What a controller does after an address, for example
the text of a group, counts in its CPU time and writes, and not in the time until the address.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import mean, median
from typing import Any, Final

from bench import replay
from bench.bare import at_once
from bench.contenders import Contender
from bench.onemore import NO_CLASS, Watch, by_hand, complete, served, until
from bench.replay import Call
from bench.site import BARE, MERGE, Site, clear, path, resident, service, versions
from bench.timing import spent
from hack.testbed.audit import AuditLog

WARMING: Final = 1
TURNS: Final = 5
SETTLED: Final = 2.5  # seconds in which everything that follows a creation is done: pools are written a second later
QUIET: Final = 3.0  # seconds without a write after which a controller has finished
PATIENCE: Final = 300.0
LOCAL: Final[dict[str, Any]] = {"externalTrafficPolicy": "Local"}
CREATED: Final = 4  # one Service for so many that exist; half of them are deleted, and half are changed
OTHER_PORTS: Final = {"spec": {"ports": [{"name": "http", "port": 8080}]}}

Body = dict[str, Any]
Make = Callable[[str, int], Awaitable[object]]
"""Creates a Service with a name and a number."""


@dataclass(frozen=True, slots=True)
class More:
    """One more Service: the seconds until its address, of the controller and by hand; the controller's CPU seconds."""

    seconds: float
    by_hand: float
    cpu: float
    writes: float

    @property
    def times(self) -> tuple[float, float]:
        """Of the controller, and by hand."""
        return self.seconds, self.by_hand


@dataclass(frozen=True, slots=True)
class Figures:
    """
    One round: seconds, and *memory* in MiB; *cpu* and *writes* are those of the backlog, for each Service.

    *alone*: the CPU time to assign an address, with nothing for nodes. *bare_cpu*: that of a bare client for the writes
    of one more Service. *created* and *churn*: of the controller, and by hand.
    """

    backlog: float
    cpu: float
    writes: float
    plain: More
    local: More
    alone: float
    bare_cpu: float
    created: tuple[float, float]
    churn: tuple[float, float]
    churn_cpu: float
    memory: int
    restart: float
    rewritten: int


class Round:
    """Round *number* of a *contender* that holds *count* Services."""

    def __init__(self, site: Site, watch: Watch, contender: Contender, *, count: int, number: int) -> None:
        """Nothing happens before :meth:`run`."""
        self._site, self._watch, self._contender, self._count = site, watch, contender, count
        self._name = f"r{number}{contender.name.lower()}"

    async def run(self) -> Figures:
        """Do everything once."""
        bare, contender, log = self._site.bare, self._contender, self._log()
        held = [f"s{each}" for each in range(self._count)]
        await clear(bare, contender.namespace, held, annotations=contender.records)
        writes, began = self._site.writes, time.time()
        with contender.run() as pid:
            await writes.until(contender.agent, self._count)
            await self._until_quiet()
            first: dict[str, float] = {}
            for each in writes.by(contender.agent):
                first.setdefault(each.name, each.ended)
            cpu, made = spent(pid) / self._count, len(replay.writes(log, contender.agent)) / self._count
            plain, calls = await self._more(pid, "plain", contender.service)
            local, _ = await self._more(pid, "local", partial(contender.service, **LOCAL), **LOCAL)
            alone, _ = await self._more(pid, "alone", contender.unrendered_service)
            bare_cpu = await replay.cost(self._site.plane.kubeconfig, calls)
            ours, theirs = self._makers()
            created = await self._create("c", ours), await self._create("d", theirs)
            before = spent(pid)
            churned = await self._churn("c", ours, contender.namespace)
            await self._until_quiet()
            churn_cpu = spent(pid) - before
            churn = churned, await self._churn("d", theirs, BARE)
            memory = resident(pid)
            await self._remove()
        restart, rewritten = await self._restart()
        return Figures(
            backlog=max(first.values()) - began,
            cpu=cpu,
            writes=made,
            plain=plain,
            local=local,
            alone=alone.cpu,
            bare_cpu=bare_cpu,
            created=created,
            churn=churn,
            churn_cpu=churn_cpu / self._churned,
            memory=memory,
            restart=restart,
            rewritten=rewritten,
        )

    # --- one more -----------------------------------------------------------------------------------------------------
    async def _more(
        self, pid: int, kind: str, ours: Callable[[str, int], Body], **spec: Any
    ) -> tuple[More, list[list[Call]]]:
        """One more Service of *kind*, several times; and the calls of the controller for each."""
        bare, times, calls, log = self._site.bare, [], [], self._log()
        for turn in range(WARMING + TURNS):
            name = f"{self._name}{kind}{turn}"
            theirs = await by_hand(bare, self._watch, _bare_service(f"{name}hand", **spec), turn)
            await asyncio.sleep(SETTLED)
            idle = await _used(pid)
            log.mark()
            before = spent(pid)
            seconds = await served(bare, self._watch, ours(name, turn))
            await asyncio.sleep(SETTLED)
            times.append((seconds, theirs, spent(pid) - before - idle))
            calls.append(replay.calls(replay.writes(log, self._contender.agent)))
        own, by_hands, used = zip(*times[WARMING:], strict=True)
        # a median of the CPU time too: what a controller does once, a while after its start, is no cost of a Service
        found = More(median(own), median(by_hands), median(used), mean(map(len, calls[WARMING:])))
        return found, calls[WARMING:]

    # --- many at once -------------------------------------------------------------------------------------------------
    def _makers(self) -> tuple[Make, Make]:
        """What creates a Service that the controller completes, and one that the bare client completes."""
        bare, contender = self._site.bare, self._contender

        async def ours(name: str, number: int) -> None:
            await bare.send("POST", path(contender.namespace), contender.service(name, number))

        async def theirs(name: str, number: int) -> None:
            await complete(bare, _bare_service(name), number)

        return ours, theirs

    async def _create(self, letter: str, make: Make) -> float:
        """Create Services; the seconds until all of them have addresses."""
        names = self._names(letter)
        seconds = await self._until_seen(names, (make(name, number) for number, name in enumerate(names)))
        await self._until_quiet()
        return seconds

    async def _churn(self, letter: str, make: Make, namespace: str) -> float:
        """Delete, create and change Services in turn; the seconds until all new ones have addresses."""
        bare, names = self._site.bare, self._names(letter)
        made, count = [f"{name}new" for name in names[: self._churned // 3]], self._churned // 3
        deleted = (bare.send("DELETE", path(namespace, name)) for name in names[:count])
        changed = (bare.send("PATCH", path(namespace, name), OTHER_PORTS, MERGE) for name in names[count : 2 * count])
        create = (make(name, number) for number, name in enumerate(made))
        return await self._until_seen(made, chain.from_iterable(zip(deleted, create, changed, strict=True)))

    async def _until_seen(self, names: Sequence[str], actions: Iterable[Awaitable[object]]) -> float:
        """Carry out *actions*; the seconds until the Services with *names* have addresses."""
        began = time.perf_counter()
        seen = [self._watch.expect(name) for name in names]
        await at_once(actions)
        return max([await until(each) for each in seen]) - began

    def _names(self, letter: str) -> list[str]:
        return [f"{self._name}{letter}{each}" for each in range(self._count // CREATED)]

    @property
    def _churned(self) -> int:
        return 3 * (self._count // CREATED // 2)

    async def _remove(self) -> None:
        """Delete what this round has created."""
        bare = self._site.bare
        for namespace in (self._contender.namespace, BARE):
            found = [name for name in await versions(bare, namespace) if name.startswith(self._name)]
            await at_once(bare.send("DELETE", path(namespace, name)) for name in found)
        await asyncio.sleep(SETTLED)

    # --- restart ------------------------------------------------------------------------------------------------------
    async def _restart(self) -> tuple[float, int]:
        """The seconds from process start until a Service created then has its address; writes to other Services."""
        contender, writes, name = self._contender, self._site.writes, f"{self._name}next"
        began = time.perf_counter()
        with contender.run():
            await served(self._site.bare, self._watch, contender.service(name, 0))
            seconds = time.perf_counter() - began
            await self._until_quiet()
            await self._remove()
        return seconds, sum(each.name != name for each in writes.by(contender.agent))

    async def _until_quiet(self) -> None:
        """Return as soon as the controller has written nothing for a while: kavip sends its Events slowly."""
        log, since = self._log(), time.monotonic()
        async with asyncio.timeout(PATIENCE):
            while time.monotonic() - since < QUIET:
                await asyncio.sleep(0.5)
                if replay.writes(log, self._contender.agent):
                    since = time.monotonic()
                log.mark()

    def _log(self) -> AuditLog:
        """The audit log from now on."""
        log = AuditLog(self._site.plane.audit.path)
        log.mark()
        return log


async def _used(pid: int) -> float:
    """The CPU seconds that *pid* uses without work, as long as it is given for one more Service."""
    before = spent(pid)
    await asyncio.sleep(SETTLED)
    return spent(pid) - before


def _bare_service(name: str, **spec: Any) -> Body:
    return service(BARE, name, **NO_CLASS, **spec)
