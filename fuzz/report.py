"""The results of a run: answers, findings, and whether latency or memory grew."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SLOWER: Final = 3.0  # times the p99 of the first tenth
NOISE: Final = 0.02  # seconds that a busy machine may add
GROWTH: Final = 48  # MiB, allocators and caches included

_SHOWN: Final = 10


@dataclass(slots=True)
class Report:
    """The results of one kind of input: latencies in order, and MiB after the first tenth and at the end."""

    name: str
    answers: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    resident: tuple[int, int] = (0, 0)

    @property
    def p99(self) -> tuple[float, float]:
        """The p99 latency of the first tenth, and of the last."""
        tenth = max(len(self.seconds) // 10, 1)
        return percentile(self.seconds[:tenth]), percentile(self.seconds[-tenth:])

    @property
    def creep(self) -> list[str]:
        """One line for each growth beyond its limit."""
        first, last = self.p99
        found = []
        if last > SLOWER * first + NOISE:
            found.append(f"p99 grew from {first * 1e3:.2f} to {last * 1e3:.2f} ms")
        if self.resident[1] > self.resident[0] + GROWTH:
            found.append(f"memory grew from {self.resident[0]} to {self.resident[1]} MiB")
        return found

    def lines(self) -> Iterator[str]:
        """The report as text."""
        first, last = self.p99
        counts = ", ".join(f"{count:,} x {what}" for what, count in sorted(self.answers.items()))
        yield f"{self.name}: {sum(self.answers.values()):,} reviews: {counts}"
        yield f"  p99 of the first tenth {first * 1e3:.2f} ms, of the last {last * 1e3:.2f} ms"
        yield f"  resident after the first tenth {self.resident[0]} MiB, at the end {self.resident[1]} MiB"
        yield from (f"  FOUND {finding}" for finding in self.findings[:_SHOWN])
        yield from (f"  CREEPS {what}" for what in self.creep)


def percentile(seconds: Sequence[float]) -> float:
    """The p99."""
    return sorted(seconds)[len(seconds) * 99 // 100] if seconds else 0.0


def resident(pid: int | str = "self") -> int:
    """The resident memory of a process in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024
