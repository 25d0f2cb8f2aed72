"""Without root or packages the message says exactly what is missing."""

import os
from pathlib import Path

import pytest

from hack.testbed import debian, need
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from hack.testbed.programs import Programs


def test_a_user_hears_that_a_cluster_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message, before anything has been started."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedError, match=r"a cluster needs what is missing here: root\b"):
        Cluster(Programs({}), tmp_path).start()
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has all of them, by the names of their Debian packages."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(need, "_rights", list)
    monkeypatch.setattr(debian, "_present", lambda program: program == "ip")
    with pytest.raises(TestbedError, match="missing here: package containerd, package runc"):
        need.namespaces("a cluster", need.CLUSTER)
