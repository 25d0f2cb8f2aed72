"""
kavip and MetalLB's controller on one API server: ``python -m bench.peers [SERVICES [ROUNDS]]``.

They take turns, and only one of them runs at a time. Each has as many Services and as many pools, and the bare client
works beside each of them. Each figure is a ratio of one round, so that other load on the machine affects both sides;
the table prints the median of the rounds. MetalLB's controller renders nothing for nodes: its speakers read the API.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Final

from bench import contenders
from bench.bare import connected
from bench.contenders import Contender
from bench.contest import Figures, Round
from bench.goal import row
from bench.onemore import Watch, watching
from bench.site import BARE, Site
from bench.timing import plain
from hack.testbed import metallb, programs, runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs

CRDS: Final = Path(__file__).parents[1] / "config" / "crd" / "bases"
SERVICES: Final = 2_000
ROUNDS: Final = 3
AHEAD: Final = 3.0
BOUND: Final = 1.15  # times the bare client, where it takes most of the time to create the Services
WHOLE: Final = 2.0

_MODULE: Final = "go.universe.tf/metallb"

Pair = tuple[Figures, Figures]
"""One round of kavip and of MetalLB."""


async def measure(plane: ControlPlane, built: Programs, count: int, rounds: int) -> None:
    """Print the table."""
    async with connected(plane.kubeconfig) as bare:
        await bare.send("POST", "/api/v1/namespaces", {"metadata": {"name": BARE}})
        both = await contenders.kavip(plane, bare, count), await contenders.peer(plane, built, bare, count)
        async with watching(bare) as watch:
            found = [await _round(Site(plane, bare), watch, both, count=count, number=each) for each in range(rounds)]
    print(f"{count:,} Services of each; median of {rounds} rounds; MetalLB {programs.required('metallb', _MODULE)}")
    Table(found).show()


async def _round(site: Site, watch: Watch, both: tuple[Contender, Contender], *, count: int, number: int) -> Pair:
    """One round of both; MetalLB begins each second one."""
    found: dict[str, Figures] = {}
    for each in both if number % 2 == 0 else reversed(both):
        found[each.name] = await Round(site, watch, each, count=count, number=number).run()
        print(f"  round {number + 1}, {each.name}: done", flush=True)
    ours, theirs = (found[each.name] for each in both)
    return ours, theirs


@dataclass(frozen=True, slots=True)
class Table:
    """Prints the rows: medians of the *rounds*."""

    rounds: Sequence[Pair]

    def ratio(self, of: Callable[[Figures, Figures], float]) -> float:
        """The median of a ratio *of* the figures of kavip and of MetalLB."""
        return median(of(*each) for each in self.rounds)

    def ahead(self, what: str, seconds: Callable[[Figures], float]) -> None:
        """How many times as long MetalLB takes."""
        found = self.ratio(lambda ours, theirs: seconds(theirs) / seconds(ours))
        row(f"{what}, MetalLB / kavip", f"{found:.2f} x", goal=f"at least {AHEAD:g} x", met=found >= AHEAD)

    def bound(self, what: str, times: Callable[[Figures], tuple[float, float]]) -> None:
        """How many times as long it takes as by hand, right beside it."""
        found = self.ratio(lambda ours, _: truediv(*times(ours)))
        row(f"{what}, kavip / bare client", f"{found:.2f} x", goal=f"at most {BOUND:g} x", met=found <= BOUND)
        plain(f"{what}, MetalLB / bare client", f"{self.ratio(lambda _, theirs: truediv(*times(theirs))):.2f} x")

    def cpu(self) -> None:
        """The CPU time of one more Service."""
        found = self.ratio(lambda ours, theirs: ours.alone / theirs.plain.cpu)
        row("CPU of one more, address alone, kavip / MetalLB", f"{found:.2f} x", goal="at most 1 x", met=found <= 1)
        found = self.ratio(lambda ours, _: ours.plain.cpu / ours.bare_cpu)
        goal = f"at most {WHOLE:g} x"
        row("CPU of one more, kavip / its writes, bare client", f"{found:.2f} x", goal=goal, met=found <= WHOLE)
        found = self.ratio(lambda _, theirs: theirs.plain.cpu / theirs.bare_cpu)
        plain("CPU of one more, MetalLB / its writes, bare client", f"{found:.2f} x")

    def compared(self, what: str, figure: Callable[[Figures], float]) -> None:
        """How many times as much kavip needs; without a goal."""
        found = self.ratio(lambda ours, theirs: figure(ours) / figure(theirs))
        plain(f"{what}, kavip / MetalLB", f"{found:.2f} x")

    def show(self) -> None:
        """Print all rows."""
        self.ahead("backlog, from process start", lambda each: each.backlog)
        self.ahead("restart, next address", lambda each: each.restart)
        self.bound("one more", lambda each: each.plain.times)
        self.bound("one more, Local", lambda each: each.local.times)
        self.bound("created together", lambda each: each.created)
        self.bound("churn", lambda each: each.churn)
        self.cpu()
        self.compared("CPU of one more", lambda each: each.plain.cpu)
        self.compared("CPU of one more, Local", lambda each: each.local.cpu)
        self.compared("CPU of a change in churn", lambda each: each.churn_cpu)
        self.compared("CPU of a Service of the backlog, with the start", lambda each: each.cpu)
        self.compared("writes of one more", lambda each: each.plain.writes)
        self.compared("writes of one more, Local", lambda each: each.local.writes)
        self.compared("writes of a Service of the backlog", lambda each: each.writes)
        self.compared("resident memory", lambda each: each.memory)
        for name, side in (("kavip", 0), ("MetalLB", 1)):
            writes = median(each[side].rewritten for each in self.rounds)
            plain(f"restart, status writes of {name} to other Services", f"{writes:.0f}")


def main(count: int = SERVICES, rounds: int = ROUNDS) -> None:
    """Start a control plane and measure on it."""
    built = programs.ensure((*programs.CLUSTER, "metallb"))
    with runs.temporary() as state, ControlPlane(built, state) as plane:
        plane.kubectl("apply", "--server-side", f"--filename={CRDS}", f"--filename={metallb.crds()}")
        plane.wait_established()
        asyncio.run(measure(plane, built, count, rounds))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
