"""A short deterministic run of `make fuzz`, and proof that it finds faults."""

import os

import pytest

from fuzz import costliest, endpoint, large, policy
from fuzz.report import Report, cpu_time
from kavip.snapshot import Snapshot
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
    """Memory and CPU of the first tenth are compared with the last; latency grows whenever a machine is busy."""
    report = Report("x", seconds=[0.001] * 100, resident=(50, 150), spent=[1.0, 1.01, 1.1, 1.2])
    assert [line.split()[0] for line in report.growth] == ["CPU", "memory"]
    slow = Report("x", seconds=[0.001] * 90 + [0.1] * 10, resident=(50, 60), spent=[1.0, 1.01, 1.1, 1.12])
    assert slow.growth == []


def test_cpu_is_measured_at_both_ends() -> None:
    """Four measurements delimit the first and the last tenth, whatever happens between."""
    report = Report("x")
    for number in range(50):
        report.measure(50, lambda now=float(number): now)  # type: ignore[misc]  # bound at once
        report.seconds.append(0.0)
    report.measure(50, lambda: 50.0)
    assert report.spent == [0.0, 5.0, 45.0, 50.0]
    assert report.cost == (1.0, 1.0)
    assert cpu_time(os.getpid()) > 0


def test_evaluation_time_is_bounded() -> None:
    """For a field of any size, evaluating it takes a bounded multiple of the time to read it."""
    assert large.slow(1 << 19) == []


def test_the_costliest_body_is_searched_and_printed() -> None:
    """The report has the path, the size, the cost and the large parts of the body."""
    found = costliest.search(10, seed=SEED, size=1 << 16)
    assert (found.tried, found.broken) == (10, "")
    assert 0 < len(found.body) <= 1 << 16
    first, second, third = found.lines()[:3]
    assert first.startswith("the costliest of 10 bodies")
    assert "ms CPU" in second
    assert '"AdmissionReview"' in third


def test_a_body_that_breaks_a_rule_is_too_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has the traceback."""

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(policy, "ROUTES", {path: Route(broken) for path in ROUTES})  # type: ignore[arg-type]  # it never decides
    found = costliest.search(5, seed=SEED, size=1 << 14)
    assert found.is_too_costly
    assert "RuntimeError: broken" in found.lines()[-1]


def test_a_cost_is_the_least_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine one measurement is far too high; a body becomes the costliest by the lowest."""
    measured = iter([("allowed", 0.3), ("allowed", 0.04), ("allowed", 0.2)])
    monkeypatch.setattr(costliest, "cost", lambda *_: next(measured))
    assert costliest.least_cost("/", b"", Snapshot(), times=3) == ("allowed", 0.04)


def test_the_cluster_of_the_costliest_body_is_large() -> None:
    """What a rule does for each Service of a pool or each Node shows."""
    snapshot = costliest.large_cluster(300, 20)
    assert len(list(snapshot.ledger.claims_in(snapshot.parsed_pools.in_force[0]))) == 300
    assert len(snapshot.group_nodes(snapshot.groups["lb/g0"])) == 20
