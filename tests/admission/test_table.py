"""Every case of the table, asked of the real API server: the words that a user reads, and nothing is changed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hack import refusals
from hack.refusals import Case
from hack.testbed.place import Result
from kavip.admission.verdict import shortened
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


def is_told(case: Case, done: Result) -> bool:
    """Whether kubectl printed what *case* says, and ended as it says."""
    lines = done.stderr.splitlines(keepends=True)
    warnings = [line for line in lines if line.startswith("Warning: ")]
    rest = "".join(line for line in lines if line not in warnings)
    expected = [f"Warning: {shortened(each)}\n" for each in case.warnings]
    if [each for each in warnings if each in expected] != expected or (warnings != expected and not case.causes):
        return False  # of what is refused the API server has opinions of its own
    return rest.endswith(case.words) and done.returncode != 0 if case.causes else not (rest or done.returncode)


@pytest.mark.parametrize("case", [case for case in OURS if case.operation is not Operation.DELETE], ids=str)
def test_kubectl_apply_prints_what_the_table_says(runner: CaseRunner, case: Case) -> None:
    """Every field, value and remedy, each warning, and no more; in a dry run, and each rule once server-side."""
    ways = [DRY, *([(*DRY, "--server-side")] if str(case) in FIRST else ()), ("apply", "-f", "-")]
    with runner.running(case):
        before = runner.found(case.asked)
        for way in ways:
            done = runner.kubectl(*way, given=case.asked)
            assert is_told(case, done), done
        if case.causes:
            assert runner.found(case.asked) == before


@pytest.mark.parametrize("case", [case for case in REFUSED if case.operation is Operation.DELETE], ids=str)
def test_kubectl_delete_prints_what_the_table_says(runner: CaseRunner, case: Case) -> None:
    """A deletion that is refused says why, and the object stays."""
    with runner.running(case):
        before = runner.found(case.asked)
        for flags in ((), ("--dry-run=server",)):
            done = runner.kubectl("delete", "-f", "-", *flags, given=case.asked)
            assert is_told(case, done), done
        assert runner.found(case.asked) == before


@pytest.mark.parametrize("case", [case for case in REFUSED if case.operation is not Operation.DELETE], ids=str)
def test_every_verb_is_refused_alike(runner: CaseRunner, case: Case) -> None:
    """create, replace, patch of each type, server-side apply: the same causes, and the object stays as it was."""
    edited = case if case.old else replace(case, operation=Operation.UPDATE, old=case.passes)
    if not case.old:
        with runner.running(case):
            assert causes(runner.api.request("POST", collection_path(case.asked), case.asked)) == case.causes
            assert (
                causes(runner.api.request("PATCH", object_path(case.asked), case.asked, kind=APPLY, **OWNER))
                == case.causes
            )
            assert runner.found(case.asked).code == 404
    if object_path(case.passes) != object_path(case.asked):
        return  # what is right is another object, and no edit makes this one of it
    with runner.running(edited):
        before = runner.found(case.asked)
        assert before.code == 200
        for answer in changes(runner, edited, before):
            assert causes(answer) == case.causes
        assert runner.found(case.asked) == before


def changes(runner: CaseRunner, case: Case, before: Answer) -> Iterator[Answer]:
    """What the API server says to each way of making what is asked of the object that was *before*."""
    path, asked, ask = object_path(case.asked), case.asked, runner.api.request
    version = before.body["metadata"]["resourceVersion"]
    difference = merge_patch(case.old, asked)
    yield ask("PUT", path, {**asked, "metadata": {**asked["metadata"], "resourceVersion": version}})
    yield ask("PATCH", path, asked, kind=APPLY, **OWNER)
    yield ask("PATCH", path, difference, kind=MERGE)
    if asked["kind"] == "Service":
        ports = [{"$patch": "replace"}, *asked["spec"].get("ports", ())]  # else those of before stay beside them
        yield ask(
            "PATCH", path, merge_patch({}, {**difference, "spec": {**asked["spec"], "ports": ports}}), kind=STRATEGIC
        )
    parts = {f"/metadata/{part}": asked["metadata"].get(part, {}) for part in ("labels", "annotations")}
    parts["/spec"] = {**before.body["spec"], **asked["spec"]} if asked["kind"] == "Service" else asked["spec"]
    yield ask("PATCH", path, [{"op": "add", "path": at, "value": value} for at, value in parts.items()], kind=STEPS)


def merge_patch(old: Any, new: Any) -> Any:
    """What makes *new* of *old* (RFC 7386)."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    gone: dict[str, Any] = dict.fromkeys(set(old) - set(new) - {"status", "creationTimestamp"})
    return {**gone, **{key: merge_patch(old.get(key), each) for key, each in new.items() if old.get(key) != each}}


def causes(answer: Answer) -> tuple[tuple[str, str], ...]:
    """Fields and messages, or what came instead."""
    return tuple(answer.causes) or ((str(answer.code), str(answer.body)),)


@pytest.mark.parametrize("case", [case for case in refusals.cases() if case.by == "check"], ids=str)
def test_what_only_offline_reaches_kavip_is_refused_before(runner: CaseRunner, case: Case) -> None:
    """The schema says it in words of its own, of the same field."""
    with runner.running(case):
        done = runner.kubectl("apply", "-f", "-", given=case.asked)
        assert done.returncode != 0
        assert case.causes[0][0].partition("[")[0] in done.stderr


@pytest.mark.parametrize("case", [case for case in refusals.cases() if case.by == "crd"], ids=str)
def test_a_wrong_shape_never_reaches_kavip(runner: CaseRunner, case: Case) -> None:
    """The schema refuses in the words of the table, and what is right by it is right by kavip."""
    with runner.running(case):
        refused = runner.api.request("POST", collection_path(case.asked), case.asked)
        said = [f"{field}: {message}" for field, message in refused.causes]
        assert [each for each in case.causes if f"{each[0]}: {each[1]}" not in said] == [], said
        assert runner.api.request("POST", collection_path(case.passes), case.passes, dryRun="All").code == 201
