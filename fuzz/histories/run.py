"""
Runs many histories on all cores, for a bounded time. A finding has the events of its history and its seed.

Each batch has its own process and its own seed, so the same seed gives the same histories on every machine.
"""

import logging
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from time import monotonic
from typing import Final, NamedTuple

import structlog
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from fuzz.histories.machine import COUNTS, Histories
from fuzz.histories.mutants import MUTANTS

BATCH: Final = 100
LIMIT: Final = 420.0  # seconds after which no further batch begins
STEPS: Final = 40
MAX_HISTORIES: Final = 2_000  # the most histories for one mutant


class Batch(NamedTuple):
    """The result of one process."""

    counts: Counter[str]
    finding: str


class Outcome(NamedTuple):
    """The sum of all batches."""

    counts: Counter[str]
    findings: list[str]
    seconds: float
    wanted: int

    def lines(self) -> Iterator[str]:
        """The outcome as text."""
        counts = self.counts
        yield (
            f"histories of IPAM: {counts['histories']:,} histories, {counts['steps']:,} steps, "
            f"{counts['idle checks']:,} idle checks, {counts['writes']:,} status writes of Services, "
            f"{len(self.findings)} findings, in {self.seconds:.0f} s"
        )
        if counts["histories"] < self.wanted:
            yield f"  {self.wanted:,} were requested; the time limit was reached"
        yield f"  {counts['stale']:,} waiting Services had an outdated message at an idle check"
        yield from (f"  FOUND {finding}" for finding in self.findings)


def surviving_mutants(seed: int) -> list[str]:
    """The mutants that the histories do not find."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        searches = {name: pool.submit(find_mutant, name, seed=seed) for name in sorted(MUTANTS)}
        return [name for name, search in searches.items() if not search.result()]


def find_mutant(name: str, *, seed: int) -> int:
    """The number of histories until the mutant *name* is found; 0 if it is not found."""
    with MUTANTS[name]():
        found = batch(MAX_HISTORIES, number=seed)
    return found.counts["histories"] if found.finding else 0


def run(count: int, *, seed: int, limit: float = LIMIT) -> Outcome:
    """Run *count* histories, or as many as begin within *limit* seconds."""
    started = monotonic()
    todo = [(min(BATCH, count - begun), seed + number) for number, begun in enumerate(range(0, count, BATCH))]
    total: Counter[str] = Counter()
    findings: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        running: set[Future[Batch]] = set()
        while todo or running:
            while todo and len(running) < (os.cpu_count() or 1):
                size, number = todo.pop(0)
                running.add(pool.submit(batch, size, number=number))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                total += each.result().counts
                findings += filter(None, [each.result().finding])
            if monotonic() - started > limit:
                todo.clear()
    return Outcome(total, sorted(findings), monotonic() - started, count)


def batch(size: int, *, number: int) -> Batch:
    """Run *size* histories of the seed *number* in this process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    COUNTS.clear()
    last: list[Histories] = []

    class Recorded(Histories):
        def __init__(self) -> None:
            super().__init__()
            last[:] = [self]

    chosen = settings(
        max_examples=size,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    finding = ""
    try:
        run_state_machine_as_test(seed(number)(Recorded), settings=chosen)
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        story = "\n    ".join(last[0].events) if last else ""
        finding = f"{type(error).__name__}: {error}\n    seed {number}, {size} histories:\n    {story}"
    return Batch(Counter(COUNTS), finding)
