"""
Helpers to time the benchmarks in process, by CPU time, so that other programs on the machine do not count.

They do count a little, because a CPU's clock, caches and second thread are shared. So times that are compared are
measured in turns, and a goal is always a ratio of two times.
"""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from cProfile import Profile
from time import clock_gettime, process_time

from bench import goal
from hack.testbed.process import children

MICRO = 1e6
TURNS, TIMES = 12, 25

Clock = Callable[[], float]
"""Runs something once, and returns the seconds that it takes."""
Measure = Callable[[Callable[[], object]], float]
"""Runs something once, and returns what it takes: :func:`timed` or :func:`called`."""


@contextmanager
def frozen() -> Iterator[None]:
    """Freeze all existing objects in the garbage collector, as kavip does once its caches are filled (kavip.app)."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.collect()


def timed(operation: Callable[[], object]) -> float:
    """The seconds that *operation* takes."""
    start = process_time()
    operation()
    return process_time() - start


def called(operation: Callable[[], object]) -> float:
    """The functions that *operation* calls; those in C count too, and each is one call, however long it takes."""
    profile = Profile()
    profile.runcall(operation)
    return sum(each.callcount for each in profile.getstats())


def best(times: int, operation: Callable[[], object]) -> float:
    """The shortest of several times, because a disturbance only makes a measurement longer."""
    return min(timed(operation) for _ in range(times))


def clock(operation: Callable[[], object]) -> Clock:
    """A clock of *operation*."""
    return lambda: timed(operation)


def in_turns(*clocks: Clock, turns: int = TURNS, times: int = TIMES) -> list[float]:
    """The shortest time of each of *clocks*, which take turns, so that other load on the machine affects them all."""
    rounds = [[min(each() for _ in range(times)) for each in clocks] for _ in range(turns)]
    return [min(found) for found in zip(*rounds, strict=True)]


def resident() -> float:
    """The resident memory of this process in MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def spent(pid: int) -> float:
    """The seconds of CPU time of the process *pid* and of its children, to the nanosecond (clock_getcpuclockid(3))."""
    return sum(clock_gettime((~each << 3) | 2) for each in children([pid]))


def within(what: str, seconds: float, reference: float, *, most: float, of: str) -> None:
    """Print the ratio of a time to that of the *reference* operation *of*, and whether it is under *most*."""
    found = seconds / reference
    goal.row(what, f"{found:.2f} x", goal=f"under {most:g} x {of}", met=found < most)


def flat(what: str, few: float, many: float, *, most: float) -> None:
    """Print the ratio of the time with many objects to the time with few, and whether it is under *most*."""
    goal.row(what, f"{many / few:.2f} x", goal=f"flat, under {most:g} x", met=many / few < most)


def plain(what: str, figure: str) -> None:
    """Print a row of the table that has no goal."""
    print(f"  {what:<62} {figure:>10}")
