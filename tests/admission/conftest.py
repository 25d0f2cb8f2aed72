"""One stage for all tests of admission."""

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
from tests.admission.stage import NAME, Stage, opened
from tests.files import CRDS
from tests.loop import Loop

PROBE = next(case for case in refusals.cases() if case.rule == "group_is_a_reference")


@pytest.fixture(scope="session")
def dual(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane of its own; its Services may have both families."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield started


@pytest.fixture(scope="package")  # what is patched below must not reach other tests
def stage(dual: ControlPlane) -> Iterator[Stage]:
    """kavip at the API server, which asks it; namespaces and kinds of the cases are there."""
    manifests = [argument for path in CRDS for argument in ("-f", str(path))]
    dual.kubectl("apply", "--server-side", *manifests)
    dual.wait_established()
    spaces = {each.asked["metadata"].get("namespace", NAME) for each in refusals.cases()}
    for name in sorted({NAME, *spaces}):
        dual.kubectl("create", "namespace", name, check=False)
    loop = Loop()
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


def _is_asked(stage: Stage) -> bool:
    """Whether it asks both kinds of webhook; it hears of each by a watch of its own."""
    plain = {**PROBE.asked, "metadata": {"name": "plain", "namespace": PROBE.asked["metadata"]["namespace"]}}
    with stage.playing(PROBE):
        refused = stage.kubectl("apply", "--dry-run=server", "-f", "-", given=PROBE.asked)
        filled = stage.kubectl("create", "--dry-run=server", "--output=yaml", "-f", "-", given=plain)
        return refused.returncode != 0 and names.GROUP_ANNOTATION in filled.stdout
