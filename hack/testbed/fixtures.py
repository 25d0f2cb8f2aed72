"""The testbed for pytest. Load it with `pytest_plugins = ["hack.testbed.fixtures"]`.

programs       the built programs
control_plane  etcd and kube-apiserver on loopback, one for the whole session: use namespaces of your own
segment        a function: segment(nodes=3) starts machines on one bridge, gone when the test ends
cluster        a function: cluster(nodes=3, images=(...)) starts a cluster once per session and arguments
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.testbed import programs as building
from hack.testbed import runs
from hack.testbed.cluster import Cluster
from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs
from hack.testbed.segment import Segment

MakeSegment = Callable[..., Segment]
MakeCluster = Callable[..., Cluster]


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Every program of the testbed; the first run builds them, which takes minutes."""
    return building.ensure()


@pytest.fixture(scope="session")
def control_plane(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane for the session."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield started


@pytest.fixture
def segment() -> Iterator[MakeSegment]:
    """Makes segments that last as long as the test."""
    with ExitStack() as stack:

        def make(nodes: int = 3) -> Segment:
            state = stack.enter_context(runs.temporary())
            return stack.enter_context(Segment(state, nodes=nodes))

        yield make


@pytest.fixture(scope="session")
def cluster(programs: Programs) -> Iterator[MakeCluster]:
    """Makes clusters that last as long as the session; the same arguments give the same cluster."""
    with ExitStack() as stack:

        @functools.cache
        def make(nodes: int = 3, images: tuple[Path, ...] = ()) -> Cluster:
            state = stack.enter_context(runs.temporary())
            return stack.enter_context(Cluster(programs, state, nodes=nodes, images=images))

        yield make
