"""The table of refusals: each rule has its cases, each case exactly its words, and the nearest right thing passes."""

import json
from typing import Any

import jsonpatch
import pytest

from hack import refusals
from hack.refusals import Case, Manifest
from kavip.admission import mutation, policy, verdict
from kavip.admission.verdict import Subject, Verdict, message_of
from kavip.api import patch, review
from kavip.api.review import Operation, Review

RULES = {(kind, check.find.__name__) for kind, chain in refusals.CHAINS.items() for check in chain}
OURS = [case for case in refusals.cases() if case.by != "crd"]

every_case = pytest.mark.parametrize("case", OURS, ids=str)


def judged(case: Case, asked: Manifest) -> Verdict:
    """What the webhooks say: the mutating one first, as the API server asks them."""
    snapshot = refusals.snapshot(case)
    if case.operation is Operation.DELETE:
        return policy.review(Review(case.operation, refusals.read(asked)), snapshot)
    status = (case.old or {}).get("status", {})  # which an update of the object itself does not change
    mutated = refusals.read(_mutated(case, {**asked, "status": status}))
    old = refusals.read(case.old) if case.old else None
    found = policy.review(Review(case.operation, mutated, old), snapshot, options=case.options)
    return found.pardoned() if case.exempt else found


def _mutated(case: Case, asked: Manifest) -> Any:
    question = {"uid": "u1", "operation": case.operation, "object": asked, "oldObject": case.old}
    request = review.read(
        json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": question}).encode()
    )
    steps: tuple[patch.Step, ...] = ()
    if case.kind == "Service":
        steps = mutation.service(request, refusals.snapshot(case)).patch
    if case.kind == "KeepalivedGroup":
        steps = mutation.group(request).patch
    return jsonpatch.apply_patch(asked, json.loads(patch.encode(steps)))


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    """No check without words that a user has been shown, and no case of a rule that is gone."""
    assert {(case.kind, case.rule) for case in OURS} == RULES


def test_no_two_cases_are_one() -> None:
    """A rule's cases are told apart by their words."""
    names = [str(case) for case in refusals.cases()]
    assert sorted(names) == sorted(set(names))


@every_case
def test_a_case_has_exactly_its_causes_and_warnings(case: Case) -> None:
    """All findings at once, each with field and words; the code tells a quota from a mistake."""
    found = judged(case, case.asked)
    assert [(refusal.field, message_of(refusal)) for refusal in found.refusals] == list(case.causes)
    assert found.warnings == case.warnings
    answer = verdict.response("u1", found, Subject(case.kind, "name"))
    if case.causes:
        assert answer.status is not None
        assert answer.status.code == case.code
        assert "\n" not in answer.status.message
        assert all(f"{field}: {message}" in answer.status.message for field, message in case.causes)


@every_case
def test_the_nearest_right_thing_passes(case: Case) -> None:
    """With what the case says changed, nothing is refused and nothing warned of."""
    assert judged(case, case.passes) == policy.PASSED


@every_case
def test_an_update_that_changes_nothing_passes(case: Case) -> None:
    """Whatever is wrong with an object, writing it again as it is is not refused."""
    asked: Any = refusals.read(case.asked)
    review_ = Review(Operation.UPDATE, asked, asked)
    assert policy.review(review_, refusals.snapshot(case), options=case.options).allowed
