"""A real helm, and control planes that nobody else uses."""

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
    """Runs helm with files of its own."""
    home = tmp_path_factory.mktemp("helm")
    own = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}

    def call(*args: str, check: bool = True, kubeconfig: Path | None = None) -> Result:
        return run([programs["helm"], *args], check=check, env={**own, "KUBECONFIG": str(kubeconfig or home / "none")})

    return call


@pytest.fixture
def server(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane that nobody else uses: webhooks without a server would refuse for all."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield started
        print("--- API server", tail(state / "kube-apiserver.log", 30), sep="\n")  # noqa: T201 - shown when the test fails
