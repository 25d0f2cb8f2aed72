"""Evaluates objects by the policy: each is allowed, or refused with a message, and no rule raises an exception."""

import contextlib
import traceback
from time import perf_counter, process_time
from typing import Final

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from bench.review import cluster
from fuzz import shapes
from fuzz.report import Report, resident
from kavip.admission.chain import PolicyOptions
from kavip.admission.response import ReviewedObject, response
from kavip.admission.text import WARNING_BYTES
from kavip.api import review
from kavip.errors import BadInput
from kavip.snapshot import Snapshot
from kavip.webhook.server import ROUTES

BATCH: Final = 500  # examples of one path: hypothesis keeps all of them in memory until the batch ends
SERVICES: Final = 200


def run(count: int, *, seed: int) -> Report:
    """Evaluate *count* objects, with the paths in turn."""
    report = Report("objects at the policy")
    snapshot = cluster(SERVICES)
    paths = sorted(ROUTES)
    batch, early, used = 0, 0, [0.0]
    while len(report.seconds) < count and not report.findings:
        size = min(BATCH, max(count // 10, 1))
        _batch(paths[batch % len(paths)], snapshot, report, used, count=count, size=size, number=seed + batch)
        batch += 1
        early = early or (resident() if len(report.seconds) >= count // 10 else 0)
    report.measure(count, lambda: used[0])
    report.resident = early, resident()
    return report


def _batch(
    path: str, snapshot: Snapshot, report: Report, used: list[float], *, count: int, size: int, number: int
) -> None:
    @seed(number)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(body=shapes.bodies(path))
    def evaluated(body: bytes) -> None:
        report.measure(count, lambda: used[0])
        start, spent = perf_counter(), process_time()
        outcome = evaluate(path, body, snapshot)
        used[0] += process_time() - spent  # without what making the objects costs
        report.seconds.append(perf_counter() - start)
        report.answers[outcome] += 1

    with contextlib.suppress(_Finding):
        try:
            evaluated()
        except Exception:  # noqa: BLE001 - any exception of a rule is a finding
            report.findings.append(f"seed {number}, {path}: {traceback.format_exc(limit=-4)}")
            raise _Finding from None


class _Finding(Exception):
    """A rule has raised an exception."""


def evaluate(path: str, body: bytes, snapshot: Snapshot) -> str:
    """Evaluate *body* as the server does between reading the request and writing the response; the outcome."""
    request = review.decode_request(body)
    try:
        found = ROUTES[path].decide(request, snapshot, PolicyOptions())
    except BadInput as error:
        assert str(error).isprintable(), error
        return "unreadable"
    answer = review.encode_response(response(request.uid, found, ReviewedObject(request.kind.kind, request.name)))
    answered = msgspec.json.decode(answer)["response"]
    assert answered["allowed"] is not bool(found.refusals), answered
    for warning in answered.get("warnings", ()):
        assert len(warning.encode()) <= WARNING_BYTES, warning
        assert warning.isprintable(), warning
    if not answered["allowed"]:
        status = answered["status"]
        assert status["code"] in (403, 422), status
        assert status["message"].strip(), status
        causes = status["details"]["causes"]
        reported = [status["message"], *(text for each in causes for text in (each["field"], each["message"]))]
        assert [text for text in reported if not text.isprintable()] == []
    return "allowed" if answered["allowed"] else "refused"
