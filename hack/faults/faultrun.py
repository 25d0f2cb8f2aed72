"""Runs one history, and checks it."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.endurance.writer import Access
from hack.faults import facts
from hack.faults.checker import Checker, Double, Findings
from hack.faults.demand import Demand
from hack.faults.history import History
from hack.faults.replicas import LEASE, Pair
from hack.testbed import audit
from hack.testbed.controlplane import ControlPlane
from hack.testbed.flags import Address
from hack.testbed.programs import Programs

_CRDS: Final = Path(__file__).parents[2] / "config" / "crd" / "bases"
_SERVICES: Final = "10.96.0.0/16,fd00:96::/108"
_QUIET: Final = 4.0  # seconds without a write of kavip, after which it counts as idle
_PATIENCE: Final = 180.0
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results of a history."""

    findings: Findings
    users: Counter[str]
    injected: Counter[str]
    withheld: int
    seconds: float
    idle_after: float

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings; after SIGSTOP, doubles that were repaired are no finding."""
        found = self.findings
        doubles = found.unrepaired if self.injected["stop"] else [*found.doubles, *found.unrepaired]
        late = [each for each in found.doubles if each.passes]
        return not (doubles or late or found.moves or found.needless or found.waiting or found.kept or found.counters)

    def table(self) -> str:
        """The report, as a table."""
        found, counts = self.findings, self.findings.counts
        given = counts["addresses given"]
        writes = counts["kavip service patch/status"]
        rows = [
            f"users: {_listed(self.users)}",
            f"faults: {_listed(self.injected)}; {self.withheld} writes withheld without the lease",
            f"kavip: {given} addresses given, {counts['addresses taken back']} taken back",
            f"  {writes} status writes of Services, {counts['kavip pool patch/status']} of pools",
            f"at the end: {counts['services at the end']} Services, {counts['of them waiting']} of them wait",
            f"  at most {counts['addresses held at once']} addresses were held at once",
            f"  {counts['writes after a lost response']} followed one that succeeded without a response",
            f"took {self.seconds:.0f} s; kavip was idle {self.idle_after:.1f} s after the last edit",
            f"addresses with two holders after a write of kavip: {len(found.doubles)}{_span(found.doubles)}",
            f"  after an edit that ended a sharing, repaired: {len(found.clashes)}{_span(found.clashes)}",
            f"  not repaired at the end: {len(found.unrepaired)}",
            f"moves without cause: {len(found.moves)}",
            f"needless writes: {len(found.needless)}",
            f"waiting while an address is free: {len(found.waiting)}",
            f"addresses not freed: {len(found.kept)}; pools that miscount: {len(found.counters)}",
        ]
        for what in (found.moves, found.needless, found.waiting, found.kept, found.counters):
            rows += [f"  FOUND {text}" for text in what[:_SHOWN]]
        rows += [f"  FOUND {double}" for double in found.doubles[:_SHOWN]]
        return "\n".join(rows)


@contextmanager
def start_control_plane(programs: Programs, state: Path) -> Iterator[ControlPlane]:
    """A control plane with both families and kavip's kinds; its audit log has the result of each write."""
    policy = audit.with_response_bodies(("", "services"), ("kavip.io", "vippools"))
    with ControlPlane(programs, state, address=Address(services=_SERVICES), policy=policy) as plane:
        plane.kubectl("apply", "--server-side", "-f", str(_CRDS))
        plane.wait_established()
        yield plane


async def run(
    plane: ControlPlane,
    *,
    services: int,
    seconds: float,
    seed: int,
    faults: tuple[str, ...],
    lease: int = LEASE,
    quiet: float = _QUIET,
) -> Verdict:
    """Create, edit for *seconds* under *faults*, wait until kavip is idle for *quiet* seconds, and check."""
    rng = random.Random(seed)
    began = time.monotonic()
    pair = Pair(plane, lease)
    async with History(users(plane), Demand(services, rng)) as history:
        with pair.running(*pair.replicas):
            injection = (
                asyncio.create_task(pair.inject_faults(random.Random(seed + 1), faults=faults)) if faults else None
            )
            await history.run(seconds=seconds)
            if injection is not None:
                injection.cancel()
                await asyncio.wait({injection})
            over = time.monotonic()
            await wait_until_idle(pair, quiet=quiet)
            calm = time.monotonic() - over
    return Verdict(
        findings=Checker().replay(facts.read(plane.audit.path, existing_objects=existing_objects(plane))),
        users=history.counts,
        injected=Counter(name for name, _ in pair.injected),
        withheld=sum(each.logged("write withheld") for each in pair.replicas),
        seconds=time.monotonic() - began,
        idle_after=max(0.0, calm - quiet),
    )


def existing_objects(plane: ControlPlane) -> list[dict[str, Any]]:
    """The Services and pools that exist now."""
    found = plane.kubectl("get", ",".join(facts.KINDS), "--all-namespaces", "--output", "json")
    items: list[dict[str, Any]] = json.loads(found.stdout)["items"]
    return items


def users(plane: ControlPlane) -> Access:
    """The connection of the users."""
    return Access.read(plane.user("users", "system:masters"))


async def wait_until_idle(pair: Pair, *, quiet: float = _QUIET) -> None:
    """Wait until the leader has been idle, and has written no Service and no pool, for *quiet* seconds."""
    deadline = time.monotonic() + _PATIENCE
    since, log = time.monotonic(), pair.plane.audit
    works: float | None = None
    log.mark()
    while time.monotonic() - since < quiet and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        before, works = works, await asyncio.to_thread(pair.reconciles)
        seen = log.take()
        written = any(each.agent.startswith("kavip/") and each.resource in facts.KINDS and each.body for each in seen)
        if written or works is None or works != before:
            since = time.monotonic()


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _span(doubles: list[Double]) -> str:
    spans = [each.seconds for each in doubles if each.seconds is not None]
    return f" (the longest for {max(spans):.2f} s)" if spans else ""
