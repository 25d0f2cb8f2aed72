"""
The AdmissionReview response that carries a verdict.

kubectl prints the causes of a 422 as ``field: message``. For a 403, and if several objects are refused at once,
it prints only the message of the status; Helm always does. So this message names the object and sums up all causes.
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import accumulate, islice
from typing import Final, NamedTuple

from kavip.admission.text import counted, shortened
from kavip.admission.verdict import Verdict, describe, message_of
from kavip.api.patch import encode
from kavip.api.refusal import LONGEST_FIELD, Refusal
from kavip.api.review import AdmissionResponse, Status, StatusCause, StatusDetails
from kavip.api.text import clipped_line
from kavip.names import Reason

MAX_CAUSES: Final = 32
MAX_WARNINGS: Final = 32
MAX_TEXT: Final = 32_768
"""Characters of all causes together: an answer costs memory until its reader has read it."""
FORBIDDEN: Final = frozenset({Reason.NAMESPACE_NOT_ALLOWED, Reason.PERMISSION_MISSING, Reason.QUOTA_EXCEEDED})
"""Reasons of a 403; all others are a 422."""


class ReviewedObject(NamedTuple):
    """The object of a review, as ``status.details`` names it."""

    kind: str
    name: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """``Kind namespace/name``; only the kind if the API server has not generated the name yet."""
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {key}" if self.name else self.kind

    def bounded(self) -> "ReviewedObject":
        """The same, printable, no part longer than any that the API server accepts."""
        return ReviewedObject(*(clipped_line(part, LONGEST_FIELD) for part in self))


def response(uid: str, verdict: Verdict, reviewed: ReviewedObject) -> AdmissionResponse:
    """The response that carries *verdict*."""
    return AdmissionResponse(
        uid=uid,
        allowed=verdict.allowed,
        status=None if verdict.allowed else _status(verdict.refusals, reviewed),
        patch=encode(verdict.patch) if verdict.patch else None,
        patch_type="JSONPatch" if verdict.patch else None,
        warnings=_bounded_warnings(verdict.warnings) if verdict.warnings else None,
    )


def failure(uid: str, code: int, reason: str, message: str) -> AdmissionResponse:
    """A refusal whose cause is not in the object."""
    return AdmissionResponse(
        uid=uid, allowed=False, status=Status(code=code, reason=reason, message=message, status="Failure")
    )


def _status(refusals: Collection[Refusal], reviewed: ReviewedObject) -> Status:
    forbidden = all(refusal.reason in FORBIDDEN for refusal in refusals)
    shown, reviewed = _bounded_refusals(refusals), reviewed.bounded()
    causes = [StatusCause(reason=each.reason, message=message_of(each), field=each.field) for each in shown]
    return Status(
        code=403 if forbidden else 422,
        reason="Forbidden" if forbidden else "Invalid",
        message=f"{reviewed}: {_summary([describe(each) for each in shown], len(refusals))}",
        status="Failure",
        details=StatusDetails(name=reviewed.name, group=reviewed.group, kind=reviewed.kind, causes=causes),
    )


def _bounded_refusals(refusals: Collection[Refusal]) -> list[Refusal]:
    """
    At most :data:`MAX_CAUSES`, with at most :data:`MAX_TEXT` characters.

    If there are more, the last one gives the number of the others, at the field of the first of them.
    """
    lengths = accumulate(len(each.field) + len(message_of(each)) for each in islice(refusals, MAX_CAUSES + 1))
    fitting = max(1, sum(length <= MAX_TEXT for length in lengths))
    if len(refusals) <= min(fitting, MAX_CAUSES):
        return list(refusals)
    *shown, last = islice(refusals, min(fitting + 1, MAX_CAUSES))
    rest = counted(len(refusals) - len(shown), "more problem")
    return [*shown, replace(last, message=f"and {rest}; fix these first")]


def _bounded_warnings(warnings: Collection[str]) -> list[str]:
    """At most :data:`MAX_WARNINGS` different ones, shortened; the last one gives the number of the others."""
    found = list(dict.fromkeys(warnings))
    if len(found) <= MAX_WARNINGS:
        return list(map(shortened, found))
    shown = found[: MAX_WARNINGS - 1]
    return [*map(shortened, shown), f"and {len(found) - len(shown)} more warnings"]


def _summary(lines: Collection[str], count: int) -> str:
    found = list(dict.fromkeys(lines))
    return found[0] if len(found) == 1 else f"{count} problems: {'; '.join(found)}"
