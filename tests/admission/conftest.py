"""The fixture with the case runner."""

from collections.abc import Iterator

import pytest

from hack import refusals
from hack.testbed import runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from tests.admission.caserunner import NAME, CaseRunner, case_runner
from tests.app.longtimeouts import lengthen
from tests.support import crds
from tests.support.loopthread import LoopThread
from tests.support.manifests import CRDS

PROBE = next(case for case in refusals.cases() if case.rule == "group_reference_is_valid")


@pytest.fixture(scope="session")
def dual(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane for these tests alone; its Services may have both families."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield started


@pytest.fixture(scope="module")  # the patches below must not reach tests of other files
def runner(dual: ControlPlane) -> Iterator[CaseRunner]:
    """kavip as webhook of an API server that has the namespaces and kinds of the cases."""
    manifests = [argument for path in CRDS for argument in ("-f", str(path))]
    dual.kubectl("apply", "--server-side", *manifests)
    dual.wait_established()
    spaces = {each.object["metadata"].get("namespace", NAME) for each in refusals.cases()}
    for name in sorted({NAME, *spaces}):
        dual.kubectl("create", "namespace", name, check=False)
    loop = LoopThread()
    with pytest.MonkeyPatch.context() as patched:
        lengthen(patched.setattr)
        try:
            with case_runner(dual, loop) as started:
                wait_for("the API server asks", lambda: _is_registered(started), timeout=150, interval=0.2)
                yield started
        finally:
            loop.close()


def _is_registered(runner: CaseRunner) -> bool:
    """Whether the API server calls both kinds of webhook; it learns of each by a separate watch."""
    group = crds.new(nodeSelector={})
    with runner.running(PROBE):
        refused = runner.kubectl("apply", "--dry-run=server", "-f", "-", given=PROBE.object)
        filled = runner.kubectl("create", "--dry-run=server", "--output=yaml", "-f", "-", given=group)
        return refused.returncode != 0 and "unicastEnabled: true" in filled.stdout
