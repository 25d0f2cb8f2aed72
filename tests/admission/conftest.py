"""One stage for all tests of admission."""

from collections.abc import Iterator

import pytest

from hack import refusals
from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from kavip.webhook import body, registration
from tests.admission.stage import NAME, Stage, opened
from tests.files import CRDS
from tests.loop import Loop

PROBE = next(case for case in refusals.cases() if case.rule == "group_is_a_reference")


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane) -> Iterator[Stage]:
    """kavip at the API server, which asks it; namespaces and kinds of the cases are there."""
    manifests = [argument for path in CRDS for argument in ("-f", str(path))]
    control_plane.kubectl("apply", "--server-side", *manifests)
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *manifests)
    spaces = {each.asked["metadata"].get("namespace", NAME) for each in refusals.cases()}
    for name in sorted({NAME, *spaces}):
        control_plane.kubectl("create", "namespace", name, check=False)
    loop = Loop()
    with pytest.MonkeyPatch.context() as patched:
        # a machine that stalls for some seconds fails no test
        patched.setattr(body, "DEADLINE", 25.0)
        patched.setattr(registration, "MUTATE_TIMEOUT", 30)
        patched.setattr(registration, "VALIDATE_TIMEOUT", 30)
        try:
            with opened(control_plane, loop) as started:
                wait_for("the API server asks", lambda: _is_asked(started), timeout=60, interval=0.2)
                yield started
        finally:
            loop.close()


def _is_asked(stage: Stage) -> bool:
    with stage.playing(PROBE):
        return stage.kubectl("apply", "--dry-run=server", "-f", "-", given=PROBE.asked).returncode != 0
