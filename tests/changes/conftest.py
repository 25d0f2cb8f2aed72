"""Rigs: one segment for a module, and a group that starts anew for each test that asks for one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.testbed import runs
from hack.testbed.segment import Segment
from kavip.reconcile.rollout import switchover
from tests.changes.rig import Rig

MakeRig = Callable[..., Rig]


@pytest.fixture(scope="module")
def lan() -> Iterator[Segment]:
    """Four machines on one bridge."""
    with runs.in_memory() as state, Segment(state, nodes=4) as started:
        yield started


@pytest.fixture
def make_rig(lan: Segment, tmp_path: Path) -> Iterator[MakeRig]:
    """Makes rigs, by the number of nodes that the group has at first; they end with the test."""
    with ExitStack() as stack:

        def make(nodes: int = 3) -> Rig:
            made = Rig(lan, tmp_path, nodes=nodes)
            stack.callback(made.stop)
            return made

        yield make


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announce switches for the near future: here kubelet is as fast as a test wants it."""
    for name, seconds in {"LEAD": 3.0, "FROZEN": 2.0, "LAST_LOOK": 1.6, "TOO_LATE": 0.8, "ELECTION": 1}.items():
        monkeypatch.setattr(switchover, name, seconds)
