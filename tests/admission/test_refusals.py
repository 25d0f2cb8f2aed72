"""The table of refusals: each case has exactly its causes and warnings, and its correction is accepted."""

import json
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from hack import refusals
from hack.refusals import Case, Manifest
from kavip.admission import mutation, policy
from kavip.admission.chain import ALLOWED
from kavip.admission.response import ReviewedObject, response
from kavip.admission.verdict import Verdict, message_of
from kavip.api import patch, review
from kavip.api.review import Operation, Review

RULES = {(kind, rule.evaluate.__name__) for kind, chain in refusals.CHAINS.items() for rule in chain}
OURS = [case for case in refusals.cases() if case.by != "crd"]

every_case = pytest.mark.parametrize("case", OURS, ids=str)


def evaluate(case: Case, submitted: Manifest) -> Verdict:
    """The verdict after both webhooks, the mutating one first."""
    snapshot = refusals.snapshot(case)
    if case.operation is Operation.DELETE:
        request = _request(case.operation, None, submitted)  # of the deleted object only metadata is read
        return policy.review(review.decode_objects(request, type(refusals.read(submitted))), snapshot)
    status = (case.old or {}).get("status", {})  # an update of the object itself does not change it
    mutated = refusals.read(_mutated(case, {**submitted, "status": status}))
    old = refusals.read(case.old) if case.old else None
    found = policy.review(Review(case.operation, mutated, old), snapshot, options=case.options)
    return replace(found.exempted(), conditional=()) if case.exempt else found.restricted()


def _mutated(case: Case, submitted: Manifest) -> Any:
    request = _request(case.operation, submitted, case.old)
    steps: tuple[patch.Step, ...] = ()
    if case.kind == "Service":
        steps = mutation.mutate_service(request, refusals.snapshot(case)).patch
    if case.kind == "KeepalivedGroup":
        steps = mutation.mutate_group(request).patch
    return jsonpatch.apply_patch(submitted, json.loads(patch.encode(steps)))


def _request(operation: Operation, new: Manifest | None, old: Manifest | None) -> review.AdmissionRequest:
    question = {"uid": "u1", "operation": operation, "object": new, "oldObject": old}
    return review.decode_request(
        json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": question}).encode()
    )


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    """There is no rule without a case, and no case of an unknown rule."""
    assert {(case.kind, case.rule) for case in OURS} == RULES


def test_case_names_are_unique() -> None:
    """A rule and a title identify one case."""
    names = [str(case) for case in refusals.cases()]
    assert sorted(names) == sorted(set(names))


@every_case
def test_a_case_has_exactly_its_causes_and_warnings(case: Case) -> None:
    """The response has all findings with field and message, and the code of the case."""
    found = evaluate(case, case.object)
    assert [(refusal.field, message_of(refusal)) for refusal in found.refusals] == list(case.causes)
    assert found.warnings == case.warning_texts
    answer = response("u1", found, ReviewedObject(case.kind, "name"))
    if case.causes:
        assert answer.status is not None
        assert answer.status.code == case.code
        assert "\n" not in answer.status.message
        assert all(f"{field}: {message}" in answer.status.message for field, message in case.causes)


@every_case
def test_the_correction_is_accepted(case: Case) -> None:
    """The corrected object is accepted without a warning."""
    assert evaluate(case, case.passes) == ALLOWED


@every_case
def test_an_update_without_a_change_is_accepted(case: Case) -> None:
    """An invalid object may be written again as it is."""
    submitted: Any = refusals.read(case.object)
    review_ = Review(Operation.UPDATE, submitted, submitted)
    assert policy.review(review_, refusals.snapshot(case), options=case.options).allowed
