"""One runner for all tests of admission."""

from collections.abc import Iterator

import pytest

from hack import refusals
from hack.testbed import runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from kavip.admission import registration
from kavip.webhook import body
from tests.admission.caserunner import NAME, CaseRunner, opened
from tests.support.loopthread import LoopThread
from tests.support.manifests import CRDS

PROBE = next(case for case in refusals.cases() if case.rule == "group_is_a_reference")


@pytest.fixture(scope="session")
def dual(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane of its own; its Services may have both families."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield started


@pytest.fixture(scope="package")  # what is patched below must not reach other tests
def runner(dual: ControlPlane) -> Iterator[CaseRunner]:
    """kavip at the API server, which asks it; namespaces and kinds of the cases are there."""
    manifests = [argument for path in CRDS for argument in ("-f", str(path))]
    dual.kubectl("apply", "--server-side", *manifests)
    dual.wait_established()
    spaces = {each.asked["metadata"].get("namespace", NAME) for each in refusals.cases()}
    for name in sorted({NAME, *spaces}):
        dual.kubectl("create", "namespace", name, check=False)
    loop = LoopThread()
    with pytest.MonkeyPatch.context() as patched:
        # a machine that stalls for some seconds fails no test
        patched.setattr(body, "DEADLINE", 25.0)
        patched.setattr(registration, "MUTATE_TIMEOUT", 30)
        patched.setattr(registration, "VALIDATE_TIMEOUT", 30)
        try:
            with opened(dual, loop) as started:
                wait_for("the API server asks", lambda: _is_asked(started), timeout=150, interval=0.2)
                yield started
        finally:
            loop.close()


def _is_asked(runner: CaseRunner) -> bool:
    """Whether it asks both kinds of webhook; it hears of each by a watch of its own."""
    plain = {**PROBE.asked, "metadata": {"name": "plain", "namespace": PROBE.asked["metadata"]["namespace"]}}
    with runner.running(PROBE):
        refused = runner.kubectl("apply", "--dry-run=server", "-f", "-", given=PROBE.asked)
        filled = runner.kubectl("create", "--dry-run=server", "--output=yaml", "-f", "-", given=plain)
        return refused.returncode != 0 and names.GROUP_ANNOTATION in filled.stdout
