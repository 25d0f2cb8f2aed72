"""Fixtures: a segment with two machines for each module, new pods for each test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.testbed import runs
from hack.testbed.segment import Segment
from tests.agent.pod import Pod

MakePod = Callable[..., Pod]


@pytest.fixture(scope="module")
def lan() -> Iterator[Segment]:
    """Two machines on one bridge."""
    with runs.in_memory() as state, Segment(state, nodes=2) as started:
        yield started


@pytest.fixture
def pod(lan: Segment, tmp_path: Path) -> Iterator[MakePod]:
    """Makes pods by the name of their node, and stops them after the test."""
    with ExitStack() as stack:

        def make(node: str = "n1", *, group: str = "", keepalived: str = "/usr/sbin/keepalived") -> Pod:
            made = Pod(lan.node(node), tmp_path / node / group, keepalived=keepalived)
            stack.callback(made.stop)
            return made

        yield make
