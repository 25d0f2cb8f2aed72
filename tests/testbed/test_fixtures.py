"""The clusters that tests share; nothing is started here."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from hack.testbed import fixtures, runs
from hack.testbed.node import Node
from hack.testbed.programs import Programs
from hack.testbed.systemdnode import SystemdNode


class Started(AbstractContextManager["Started"]):
    """A fake cluster that records the order of calls."""

    log: list[str]

    def __init__(
        self,
        programs: Programs,
        state: Path,
        *,
        nodes: int,
        images: tuple[Path, ...],
        families: tuple[int, ...],
        kind: type[Node],
    ) -> None:
        """Of so many nodes."""
        what = f"{nodes}" if len(families) == 2 else f"{nodes} of {families}"
        self.nodes = what if kind is Node else f"{what} on systemd"

    def __enter__(self) -> Self:
        """Start."""
        self.log.append(f"start {self.nodes}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.log.append(f"stop {self.nodes}")


def test_one_cluster_runs_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Equal arguments share a cluster; it ends before another one starts; after its end a new one is made."""
    log = Started.log = []
    monkeypatch.setattr(fixtures, "Cluster", Started)
    monkeypatch.setattr(runs, "temporary", lambda: nullcontext(tmp_path))
    clusters = fixtures.Clusters(Programs({}))
    one = clusters(nodes=1)
    assert clusters(nodes=1) is one
    assert clusters(nodes=3) is not one
    assert log == ["start 1", "stop 1", "start 3"]
    clusters.end()
    clusters(nodes=3)
    clusters(nodes=3, families=(6,))
    clusters(nodes=3, kind=SystemdNode)
    clusters.end()
    started = ["start 3", "stop 3", "start 3 of (6,)", "stop 3 of (6,)", "start 3 on systemd", "stop 3 on systemd"]
    assert log[3:] == ["stop 3", *started]
