"""A real helm, and control planes for these tests alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed import runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import Result, run
from hack.testbed.process import tail
from hack.testbed.programs import Programs
from tests.chart.release import Helm


@pytest.fixture(scope="module")
def helm(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Run helm with its own files."""
    home = tmp_path_factory.mktemp("helm")
    own = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}

    def call(*args: str, check: bool = True, kubeconfig: Path | None = None) -> Result:
        return run([programs["helm"], *args], check=check, env={**own, "KUBECONFIG": str(kubeconfig or home / "none")})

    return call


@pytest.fixture
def server(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane for these tests alone: webhooks without a server refuse the objects of other tests."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield started
        print("--- API server", tail(state / "kube-apiserver.log", 30), sep="\n")  # noqa: T201 - shown when the test fails
