"""An invalid object at a real API server: its status may be written, and it may be deleted."""

from typing import Any

import pytest

from hack import refusals
from hack.refusals import Case
from kavip.api.review import Operation
from tests.admission.apiclient import MERGE, object_path
from tests.admission.caserunner import CaseRunner

pytestmark = pytest.mark.apiserver

FIRST = {case.kind: case for case in reversed(refusals.cases()) if case.by == "kavip" and case.causes}
"""One refused object of each kind."""
WRONG = [case for case in FIRST.values() if case.operation is not Operation.DELETE and case.kind != "VIPPool"]


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_an_invalid_object_may_be_deleted(runner: CaseRunner, case: Case) -> None:
    """An object from a time without kavip: status, finalizers and deletion are accepted."""
    path = object_path(case.object)
    held = {**case.object, "metadata": {**case.object["metadata"], "finalizers": ["example.com/held"]}}
    runner.put(held)
    with runner.running(case):
        status: dict[str, Any] = {"status": {"conditions": []}}
        assert runner.api.request("PATCH", f"{path}/status", status, kind=MERGE).code == 200
        off = {"metadata": {"finalizers": None}}
        on = {"metadata": {"finalizers": ["example.com/held"]}}
        for patch in (off, on):
            assert runner.api.request("PATCH", path, patch, kind=MERGE).code == 200
        assert runner.api.request("DELETE", path).code == 200
        assert runner.get(case.object).body["metadata"]["deletionTimestamp"]
        assert runner.api.request("PATCH", path, off, kind=MERGE).code == 200
        assert runner.get(case.object).code == 404
