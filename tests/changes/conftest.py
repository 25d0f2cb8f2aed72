"""Rigs: one segment for a module, and a group that starts anew for each test that asks for one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.testbed import runs
from hack.testbed.segment import Segment
from tests.changes.rig import Rig

MakeRig = Callable[..., Rig]


@pytest.fixture(scope="module")
def lan() -> Iterator[Segment]:
    """Four machines on one bridge."""
    with runs.temporary() as state, Segment(state, nodes=4) as started:
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
