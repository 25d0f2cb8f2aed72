"""A short deterministic run of `make fuzz`, and proof that it finds faults."""

import pytest

from fuzz import dearest, endpoint, large, policy
from fuzz.report import Report
from kavip.webhook.server import ROUTES, Route

pytestmark = pytest.mark.slow

SEED = 4


def test_any_bytes_get_a_response() -> None:
    """A real server process answers each request with a review or a 4xx, and its memory does not grow."""
    report = endpoint.run(300, seed=SEED)
    assert report.findings == []
    assert report.resident[1] <= report.resident[0] + 48
    assert {"allowed", "refused", "400", "404", "405"} <= set(report.answers)


def test_any_object_gets_a_verdict() -> None:
    """Objects of the right shape are allowed or refused with a message on every path."""
    report = policy.run(200, seed=SEED)
    assert report.findings == []
    assert {"allowed", "refused", "unreadable"} == set(report.answers)


def test_a_rule_that_breaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding has the seed, the path and the object."""

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(policy, "ROUTES", {path: Route(broken) for path in ROUTES})  # type: ignore[arg-type]  # it never decides
    (finding,) = policy.run(10, seed=SEED).findings
    assert finding.startswith(f"seed {SEED}, {min(ROUTES)}: ")
    assert "RuntimeError: broken" in finding


def test_growth_is_reported() -> None:
    """Memory and latency of the first tenth are compared with the last."""
    report = Report("x", seconds=[0.001] * 90 + [0.1] * 10, resident=(50, 150))
    assert [line.split()[0] for line in report.creep] == ["p99", "memory"]
    assert Report("x", seconds=[0.001] * 100, resident=(50, 60)).creep == []


def test_evaluation_time_is_bounded() -> None:
    """For a field of any size, evaluating it takes a bounded multiple of the time to read it."""
    assert large.slow(1 << 19) == []


def test_the_dearest_body_is_searched_and_printed() -> None:
    """The report has the path, the size, the cost and the large parts of the body."""
    found = dearest.search(10, seed=SEED, size=1 << 16)
    assert (found.tried, found.broken) == (10, "")
    assert 0 < len(found.body) <= 1 << 16
    first, second, third = found.lines()[:3]
    assert first.startswith("the dearest of 10 bodies")
    assert "ms CPU" in second
    assert '"AdmissionReview"' in third


def test_a_body_that_breaks_a_rule_is_too_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has the traceback."""

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(policy, "ROUTES", {path: Route(broken) for path in ROUTES})  # type: ignore[arg-type]  # it never decides
    found = dearest.search(5, seed=SEED, size=1 << 14)
    assert found.is_too_dear
    assert "RuntimeError: broken" in found.lines()[-1]
