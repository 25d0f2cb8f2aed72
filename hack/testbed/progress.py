"""Progress of long steps: what is being done and why, how far it is, how long it has taken.

A step says so when it begins, at least every 15 seconds, and when it ends: a newcomer who waits ten minutes must see
why, also in a log file, so lines are only ever added.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HEARTBEAT = 15.0


@contextmanager
def step(title: str, why: str = "", *, done: int = 0, of: int = 0) -> Iterator[None]:
    """Announce a step, keep saying that it is under way, and say how it ended."""
    counter = f"[{done}/{of}] " if of else ""
    begun = time.monotonic()
    say(f"{counter}{title}" + (f": {why}" if why else ""))
    finished = threading.Event()
    beat = threading.Thread(target=_beat, args=(f"{counter}{title}", begun, finished), daemon=True)
    beat.start()
    try:
        yield
    except BaseException:
        say(f"{counter}{title}: FAILED after {_elapsed(begun)}")
        raise
    finally:
        finished.set()
        beat.join()
    say(f"{counter}{title}: done in {_elapsed(begun)}")


def say(line: str) -> None:
    """One line on standard error: standard output is for results."""
    print(line, file=sys.stderr, flush=True)


def _beat(title: str, begun: float, finished: threading.Event) -> None:
    while not finished.wait(HEARTBEAT):
        say(f"  ... {title}: {_elapsed(begun)} so far")


def _elapsed(begun: float) -> str:
    seconds = time.monotonic() - begun
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
