"""Which worker runs which test file, and in what order."""

import os
from typing import Any
from unittest.mock import Mock

import pytest

from hack import schedule


def item(nodeid: str, *marks: str) -> Any:
    """A test with these marks."""
    return Mock(nodeid=nodeid, get_closest_marker=lambda mark: mark in marks or None)


def test_what_waits_longest_begins_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has the place of its most demanding test, and keeps its own order."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    items = [
        item("tests/unit.py::a"),
        item("tests/server.py::a"),
        item("tests/server.py::b", "apiserver"),
        item("tests/cluster/x.py::a", "cluster"),
        item("tests/long.py::a", "slow"),
        item("tests/daemon.py::a", "netns", "apiserver"),
    ]
    schedule.pytest_collection_modifyitems(items)
    assert [each.nodeid.removeprefix("tests/").split(".")[0] for each in items] == [
        "cluster/x",
        "daemon",
        "server",
        "server",
        "long",
        "unit",
    ]


def test_one_process_keeps_the_order_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without workers nothing is gained by another one."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    items = [item("tests/a.py::a"), item("tests/cluster/x.py::a", "cluster")]
    schedule.pytest_collection_modifyitems(items)
    assert [each.nodeid for each in items] == ["tests/a.py::a", "tests/cluster/x.py::a"]


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/cluster/test_helm.py::test_x", "clusters"),
        ("tests/testbed/test_cluster.py::test_x", "clusters"),
        ("tests/testbed/test_ports.py::test_x[a::b]", "tests/testbed/test_ports.py"),
    ],
)
def test_whole_clusters_belong_to_one_worker(nodeid: str, unit: str) -> None:
    """Any other file is a unit of its own."""
    assert schedule.Scheduling._split_scope(Mock(spec=schedule.Scheduling), nodeid) == unit


def test_the_marks_are_those_of_the_project(pytestconfig: pytest.Config) -> None:
    """An order by a mark that no test has would do nothing."""
    declared = {line.split(":")[0] for line in pytestconfig.getini("markers")}
    assert set(schedule.ORDER) <= declared


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority again")
def test_tests_that_only_compute_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run at a lower priority, and the next test has the usual one."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    usual, seen = os.getpriority(os.PRIO_PROCESS, 0), []
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        for each in (item("tests/unit.py::a"), item("tests/daemon.py::a", "netns")):
            wrapper = schedule.pytest_runtest_protocol(each)
            next(wrapper)
            seen.append(os.getpriority(os.PRIO_PROCESS, 0))
            with pytest.raises(StopIteration):
                wrapper.send(True)
            assert os.getpriority(os.PRIO_PROCESS, 0) == 0
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)
    assert seen == [10, 0]
