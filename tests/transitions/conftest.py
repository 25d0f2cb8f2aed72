"""Fixtures: one segment for a module, and a new group on it for each test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.testbed import runs
from hack.testbed.segment import Segment
from kavip.reconcile.rollout import switchover
from tests.transitions.livegroup import LiveGroup

MakeLiveGroup = Callable[..., LiveGroup]


@pytest.fixture(scope="module")
def lan() -> Iterator[Segment]:
    """Four hosts on one bridge."""
    with runs.in_memory() as state, Segment(state, nodes=4) as started:
        yield started


@pytest.fixture
def make_live_group(lan: Segment, tmp_path: Path) -> Iterator[MakeLiveGroup]:
    """Makes groups with the given number of nodes. They are stopped after the test."""
    with ExitStack() as stack:

        def make(nodes: int = 3) -> LiveGroup:
            made = LiveGroup(lan, tmp_path, nodes=nodes)
            stack.callback(made.stop)
            return made

        yield make


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the times of a switchover: the mounts of these tests need no minute."""
    for name, seconds in {"LEAD": 3.0, "FROZEN": 2.0, "LAST_LOOK": 1.6, "TOO_LATE": 0.8, "ELECTION": 1}.items():
        monkeypatch.setattr(switchover, name, seconds)
