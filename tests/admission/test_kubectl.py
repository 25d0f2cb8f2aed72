"""Every case of the refusal table at a real API server: the exact output of kubectl, and no change."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hack import refusals
from hack.refusals import Case
from hack.testbed.place import Result
from kavip.admission.text import shortened
from kavip.api.review import Operation
from tests.admission.apiclient import APPLY, MERGE, STEPS, STRATEGIC, Answer, collection_path, object_path
from tests.admission.caserunner import CaseRunner

pytestmark = pytest.mark.apiserver

OURS = [case for case in refusals.cases() if case.by == "kavip"]
REFUSED = [case for case in OURS if case.causes]
FIRST = set({(case.kind, case.rule): str(case) for case in reversed(OURS)}.values())
"""One of each rule."""
OWNER = {"fieldManager": "kubectl", "force": "true"}
DRY = ("apply", "--dry-run=server", "-f", "-")


def prints_the_case(case: Case, done: Result) -> bool:
    """Whether kubectl printed the findings of *case* and exited accordingly."""
    lines = done.stderr.splitlines(keepends=True)
    warnings = [line for line in lines if line.startswith("Warning: ")]
    rest = "".join(line for line in lines if line not in warnings)
    expected = [f"Warning: {shortened(each)}\n" for each in case.warning_texts]
    if [each for each in warnings if each in expected] != expected or (warnings != expected and not case.causes):
        return False  # the API server adds its own warnings about refused objects
    return rest.endswith(case.printed) and done.returncode != 0 if case.causes else not (rest or done.returncode)


@pytest.mark.parametrize("case", [case for case in OURS if case.operation is not Operation.DELETE], ids=str)
def test_kubectl_apply_prints_the_case(runner: CaseRunner, case: Case) -> None:
    """Every cause and warning and nothing else, in a dry run, and once per rule with server-side apply."""
    ways = [DRY, *([(*DRY, "--server-side")] if str(case) in FIRST else ()), ("apply", "-f", "-")]
    with runner.running(case):
        before = runner.get(case.object)
        for way in ways:
            done = runner.kubectl(*way, given=case.object)
            assert prints_the_case(case, done), done
        if case.causes:
            assert runner.get(case.object) == before


@pytest.mark.parametrize("case", [case for case in REFUSED if case.operation is Operation.DELETE], ids=str)
def test_kubectl_delete_prints_the_case(runner: CaseRunner, case: Case) -> None:
    """A refused deletion prints the cause, and the object stays."""
    with runner.running(case):
        before = runner.get(case.object)
        for flags in ((), ("--dry-run=server",)):
            done = runner.kubectl("delete", "-f", "-", *flags, given=case.object)
            assert prints_the_case(case, done), done
        assert runner.get(case.object) == before


@pytest.mark.parametrize(
    "case", [case for case in OURS if case.operation is Operation.DELETE and not case.causes], ids=str
)
def test_kubectl_delete_prints_the_warnings_of_the_case(runner: CaseRunner, case: Case) -> None:
    """In a dry run, and when the object goes."""
    with runner.running(case):
        runner.put(case.object)
        for flags in (("--dry-run=server",), ()):
            done = runner.kubectl("delete", "-f", "-", *flags, given=case.object)
            assert prints_the_case(case, done), done
        assert runner.get(case.object).code == 404


@pytest.mark.parametrize("case", [case for case in REFUSED if case.operation is not Operation.DELETE], ids=str)
def test_every_verb_is_refused_alike(runner: CaseRunner, case: Case) -> None:
    """create, replace, each type of patch and server-side apply give the same causes and change nothing."""
    edited = case if case.old else replace(case, operation=Operation.UPDATE, old=case.passes)
    if not case.old:
        with runner.running(case):
            assert causes(runner.api.request("POST", collection_path(case.object), case.object)) == case.causes
            assert (
                causes(runner.api.request("PATCH", object_path(case.object), case.object, kind=APPLY, **OWNER))
                == case.causes
            )
            assert runner.get(case.object).code == 404
    if object_path(case.passes) != object_path(case.object):
        return  # the correction is another object, so it cannot be edited into this one
    with runner.running(edited):
        before = runner.get(case.object)
        assert before.code == 200
        for answer in changes(runner, edited, before):
            assert causes(answer) == case.causes
        assert runner.get(case.object) == before


def changes(runner: CaseRunner, case: Case, before: Answer) -> Iterator[Answer]:
    """The responses to each way of changing the object *before* to the object of *case*."""
    path, submitted, ask = object_path(case.object), case.object, runner.api.request
    version = before.body["metadata"]["resourceVersion"]
    difference = merge_patch(case.old, submitted)
    yield ask("PUT", path, {**submitted, "metadata": {**submitted["metadata"], "resourceVersion": version}})
    yield ask("PATCH", path, submitted, kind=APPLY, **OWNER)
    yield ask("PATCH", path, difference, kind=MERGE)
    if submitted["kind"] == "Service":
        ports = [{"$patch": "replace"}, *submitted["spec"].get("ports", ())]  # otherwise the previous ones stay
        yield ask(
            "PATCH",
            path,
            merge_patch({}, {**difference, "spec": {**submitted["spec"], "ports": ports}}),
            kind=STRATEGIC,
        )
    parts = {f"/metadata/{part}": submitted["metadata"].get(part, {}) for part in ("labels", "annotations")}
    parts["/spec"] = (
        {**before.body["spec"], **submitted["spec"]} if submitted["kind"] == "Service" else submitted["spec"]
    )
    yield ask("PATCH", path, [{"op": "add", "path": at, "value": value} for at, value in parts.items()], kind=STEPS)


def merge_patch(old: Any, new: Any) -> Any:
    """The merge patch from *old* to *new* (RFC 7386)."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    gone: dict[str, Any] = dict.fromkeys(set(old) - set(new) - {"status", "creationTimestamp"})
    return {**gone, **{key: merge_patch(old.get(key), each) for key, each in new.items() if old.get(key) != each}}


def causes(answer: Answer) -> tuple[tuple[str, str], ...]:
    """Fields and messages, or the whole response if it is no refusal."""
    return tuple(answer.causes) or ((str(answer.code), str(answer.body)),)


@pytest.mark.parametrize("case", [case for case in refusals.cases() if case.by == "check"], ids=str)
def test_cases_of_kavip_check_are_refused_by_the_schema(runner: CaseRunner, case: Case) -> None:
    """The API server's schema refuses the same field, with its own message."""
    with runner.running(case):
        done = runner.kubectl("apply", "-f", "-", given=case.object)
        assert done.returncode != 0
        assert case.causes[0][0].partition("[")[0] in done.stderr


@pytest.mark.parametrize("case", [case for case in refusals.cases() if case.by == "crd"], ids=str)
def test_schema_cases_are_refused_by_the_schema(runner: CaseRunner, case: Case) -> None:
    """The schema refuses with the message of the table, and the correction is also accepted by kavip."""
    with runner.running(case):
        refused = runner.api.request("POST", collection_path(case.object), case.object)
        messages = [f"{field}: {message}" for field, message in refused.causes]
        assert [each for each in case.causes if f"{each[0]}: {each[1]}" not in messages] == [], messages
        assert runner.api.request("POST", collection_path(case.passes), case.passes, dryRun="All").code == 201
