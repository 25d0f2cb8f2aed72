"""The results of a run: answers, findings, and whether cost or memory grew."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEARER: Final = 3.0  # times the CPU of a review in the first tenth
NOISE: Final = 0.002  # seconds of CPU that a busy machine may add to a review
GROWTH: Final = 48  # MiB, allocators and caches included

_SHOWN: Final = 10
_MEASUREMENTS: Final = 4


@dataclass(slots=True)
class Report:
    """
    The results of one kind of input: latencies in order, and MiB after the first tenth and at the end.

    *spent*: seconds of CPU of the evaluating process at the start, after the first tenth, before the last, and at the
    end. Latencies are only shown: on a busy machine they grow by themselves.
    """

    name: str
    answers: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    resident: tuple[int, int] = (0, 0)
    spent: list[float] = field(default_factory=list)

    @property
    def p99(self) -> tuple[float, float]:
        """The p99 latency of the first tenth, and of the last."""
        tenth = max(len(self.seconds) // 10, 1)
        return percentile(self.seconds[:tenth]), percentile(self.seconds[-tenth:])

    @property
    def cost(self) -> tuple[float, float]:
        """The seconds of CPU of a review in the first tenth, and in the last; 0 if not all four were measured."""
        if len(self.spent) < _MEASUREMENTS:
            return 0.0, 0.0
        start, early, late, end = self.spent
        tenth = max(len(self.seconds) // 10, 1)
        return (early - start) / tenth, (end - late) / tenth

    def measure(self, count: int, cpu: Callable[[], float]) -> None:
        """Record *cpu* at the start, after the first tenth of *count* reviews, before the last, and at the end."""
        tenth = max(count // 10, 1)
        if len(self.spent) < _MEASUREMENTS and len(self.seconds) >= (0, tenth, count - tenth, count)[len(self.spent)]:
            self.spent.append(cpu())

    @property
    def growth(self) -> list[str]:
        """One line for each growth beyond its limit."""
        first, last = self.cost
        found = []
        if last > DEARER * first + NOISE:
            found.append(f"CPU of a review grew from {first * 1e3:.2f} to {last * 1e3:.2f} ms")
        if self.resident[1] > self.resident[0] + GROWTH:
            found.append(f"memory grew from {self.resident[0]} to {self.resident[1]} MiB")
        return found

    def lines(self) -> Iterator[str]:
        """The report as text."""
        (first, last), (early, late) = self.p99, self.cost
        counts = ", ".join(f"{count:,} x {what}" for what, count in sorted(self.answers.items()))
        yield f"{self.name}: {sum(self.answers.values()):,} reviews: {counts}"
        yield f"  p99 of the first tenth {first * 1e3:.2f} ms, of the last {last * 1e3:.2f} ms"
        yield f"  CPU of a review in the first tenth {early * 1e3:.2f} ms, in the last {late * 1e3:.2f} ms"
        yield f"  resident after the first tenth {self.resident[0]} MiB, at the end {self.resident[1]} MiB"
        yield from (f"  FOUND {finding}" for finding in self.findings[:_SHOWN])
        yield from (f"  CREEPS {what}" for what in self.growth)


def percentile(seconds: Sequence[float]) -> float:
    """The p99."""
    return sorted(seconds)[len(seconds) * 99 // 100] if seconds else 0.0


def resident(pid: int | str = "self") -> int:
    """The resident memory of a process in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


def cpu_time(pid: int) -> float:
    """The seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime
