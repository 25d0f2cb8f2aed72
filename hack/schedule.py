"""A pytest plugin for parallel runs: which worker runs which test file, in what order, and at what priority.

One worker runs a file from its first test to its last, because fixtures of a module start machines. All tests on whole
clusters belong to one worker, because one cluster runs at a time. Files begin in the order of the marks below: what
waits longest begins first, and tests that only compute fill the gaps. The latter run at a lower priority, so that they
take no CPU from a keepalived that sends an advertisement ten times a second.
"""

import os
from collections.abc import Generator, Sequence
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

REAL = ("cluster", "netns", "apiserver", "chart", "image")
"""Marks of tests that start real servers and daemons; those on the left first."""
ORDER = (*REAL, "slow")
CLUSTERS = ("tests/cluster/", "tests/testbed/test_cluster.py")
_NICE = 10


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A file is a unit of work; so are all files that start clusters, together."""

    def _split_scope(self, nodeid: str) -> str:
        return "clusters" if nodeid.startswith(CLUSTERS) else str(super()._split_scope(nodeid))


def ranks(items: Sequence[pytest.Item]) -> dict[str, int]:
    """The rank of each file: the rank of its first mark in :data:`ORDER`."""
    found: dict[str, int] = {}
    for item in items:
        path = file_of(item)
        rank = next((number for number, mark in enumerate(ORDER) if item.get_closest_marker(mark)), len(ORDER))
        found[path] = min(rank, found.get(path, rank))
    return found


def file_of(item: pytest.Item) -> str:
    """The path of an item's file, as node IDs begin."""
    return item.nodeid.split("::", 1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Use this scheduler with ``--dist loadfile``."""
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files of a worker; every worker must have the same order."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        order = ranks(items)
        items.sort(key=lambda item: order[file_of(item)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test that only computes at a lower priority; only root may raise it again afterwards."""
    lower = "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0 and not any(map(item.get_closest_marker, REAL))
    if lower:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    try:
        return (yield)
    finally:
        if lower:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
