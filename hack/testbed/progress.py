"""Progress of long steps: what is done and why, what is left, and how long it took.

A step prints a line when it begins, at least every 15 seconds, and when it ends. Lines are only ever added, so that the
output also reads well in a log file. Steps may run side by side: every line names its step.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

HEARTBEAT = 15.0
_ENOUGH = 0.1  # the share that must be done before the rest can be estimated


@dataclass(slots=True)
class Step:
    """A step that runs. Its work may report how far it is."""

    title: str
    begun: float = field(default_factory=time.monotonic)
    done: int = 0
    of: int = 0
    unit: str = ""

    def advance(self, done: int, of: int, unit: str) -> None:
        """Report that *done* of that many units are finished."""
        self.done, self.of, self.unit = done, of, unit

    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.begun

    def state(self) -> str:
        """How far it is; with an estimate of what is left, on the assumption that every unit takes equally long."""
        text = f"{_spoken(self.elapsed())} so far"
        if not self.of:
            return text
        text += f", {self.done} of {self.of} {self.unit}"
        if not _ENOUGH * self.of <= self.done < self.of:  # all compiled: the linker's time is unknown
            return text
        left = self.elapsed() * (self.of - self.done) / self.done
        return f"{text}, about {_spoken(left)} left"


@contextmanager
def step(title: str, why: str = "", *, done: int = 0, of: int = 0) -> Iterator[Step]:
    """Announce a step, report that it runs, and report how it ended."""
    counter = f"[{done}/{of}] " if of else ""
    running = Step(f"{counter}{title}")
    say(running.title + (f": {why}" if why else ""))
    finished = threading.Event()
    beat = threading.Thread(target=_beat, args=(running, finished), daemon=True)
    beat.start()
    try:
        yield running
    except BaseException:
        say(f"{running.title}: FAILED after {_spoken(running.elapsed())}")
        raise
    finally:
        finished.set()
        beat.join()
    say(f"{running.title}: done in {_spoken(running.elapsed())}")


def say(line: str) -> None:
    """Print one line on standard error: standard output is for results."""
    print(line, file=sys.stderr, flush=True)


def _beat(running: Step, finished: threading.Event) -> None:
    while not finished.wait(HEARTBEAT):
        say(f"  ... {running.title}: {running.state()}")


def _spoken(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
