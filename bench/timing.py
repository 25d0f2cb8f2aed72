"""Helpers to time the benchmarks in process, by CPU time, so that other programs on the machine do not count."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time

from bench import goal

MICRO = 1e6


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


def best(times: int, operation: Callable[[], object]) -> float:
    """The shortest of several times, because a disturbance only makes a measurement longer."""
    return min(timed(operation) for _ in range(times))


def resident() -> float:
    """The resident memory of this process in MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def within(what: str, seconds: float, *, microseconds: float) -> None:
    """Print the time of an operation, and whether it is under *microseconds*."""
    goal.row(what, f"{seconds * MICRO:.1f} us", goal=f"under {microseconds:g} us", met=seconds * MICRO < microseconds)


def flat(what: str, few: float, many: float, *, most: float) -> None:
    """Print the ratio of the time with many objects to the time with few, and whether it is under *most*."""
    goal.row(what, f"{many / few:.2f} x", goal=f"flat, under {most:g} x", met=many / few < most)


def plain(what: str, figure: str) -> None:
    """Print a row of the table that has no goal."""
    print(f"  {what:<62} {figure:>10}")
