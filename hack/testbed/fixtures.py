"""The testbed for pytest. Load it with `pytest_plugins = ["hack.testbed.fixtures"]`.

programs       the built programs
control_plane  etcd and kube-apiserver on loopback, one for the whole session: use namespaces of your own
segment        a function: segment(nodes=3) starts machines on one bridge, gone when the test ends
cluster        a function: cluster(nodes=3, images=(...)) starts a cluster; one runs at a time, see `Clusters`
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.testbed import programs as building
from hack.testbed import runs
from hack.testbed.cluster import Cluster
from hack.testbed.controlplane import ControlPlane
from hack.testbed.node import Node
from hack.testbed.programs import Programs
from hack.testbed.segment import BOTH, Segment

MakeSegment = Callable[..., Segment]


class Clusters:
    """
    Makes clusters: the same arguments give the same cluster until other arguments come, or until it is ended.

    One runs at a time: an idle cluster still takes CPU time from a test.
    """

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._stack = ExitStack()
        self._requested: tuple[object, ...] | None = None
        self._found: Cluster | None = None

    def __call__(
        self,
        nodes: int = 3,
        images: tuple[Path, ...] = (),
        families: tuple[int, ...] = BOTH,
        kind: type[Node] = Node,
    ) -> Cluster:
        """A cluster; earlier tests may have used it."""
        requested = nodes, images, families, kind
        if self._found is None or self._requested != requested:
            self.end()
            state = self._stack.enter_context(runs.temporary())
            made = Cluster(self._programs, state, nodes=nodes, images=images, families=families, kind=kind)
            self._found, self._requested = self._stack.enter_context(made), requested
        return self._found

    def end(self) -> None:
        """End the running cluster, if any; the next one is new."""
        self._found = None
        self._stack.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the logs of all servers and daemons when a test fails, before its fixtures remove them."""
    report = yield
    if report.failed:
        kept = runs.keep_logs(item.nodeid, report.longreprtext)
        if kept:
            report.sections.append(("logs of servers and daemons", str(kept)))
    return report


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Every program of the testbed; the first run builds them, which takes minutes."""
    return building.ensure(building.TESTS)


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
            state = stack.enter_context(runs.in_memory())
            return stack.enter_context(Segment(state, nodes=nodes))

        yield make


@pytest.fixture(scope="session")
def cluster(programs: Programs) -> Iterator[Clusters]:
    """Makes clusters that last longer than a test."""
    made = Clusters(programs)
    try:
        yield made
    finally:
        made.end()
