"""How many answers in a row change the result of a health check."""

from dataclasses import replace

import pytest

from kavip.agent.report.health import CheckHealth, CheckStatus, check_problems, next_health
from kavip.api.group import Check


def results_of(answers: str, *, fail_after: int = 3, succeed_after: int = 2, start: CheckHealth | None = None) -> str:
    """The result after each of *answers*: ``+`` passes, ``-`` fails; *start* is the result before."""
    seen = [start or CheckHealth()]
    for answer in answers:
        seen.append(next_health(seen[-1], answer=answer == "+", fail_after=fail_after, succeed_after=succeed_after))
    return "".join("-" if each.fails else "+" for each in seen[1:])


@pytest.mark.parametrize(
    ("answers", "held"),
    [
        ("++--+---++", "+++++++--+"),
        ("+--+--+--+", "+" * 10),
        ("+----+-++-", "+++-----++"),
    ],
)
def test_answers_in_a_row_count(answers: str, held: str) -> None:
    """Three failures or two successes in a row; any other answer starts the count again."""
    assert results_of(answers) == held


def test_the_first_answer_is_the_result() -> None:
    """A pod that starts takes no VIP to a failing service, and loses no time with a healthy one."""
    assert results_of("-") == "-"
    assert results_of("+") == "+"
    assert results_of("-+++") == "--++"


def test_an_earlier_result_is_kept() -> None:
    """After a restart of the agent a single answer changes nothing."""
    assert results_of("-", start=CheckHealth(True)) == "+"
    assert results_of("+", start=CheckHealth(False)) == "-"


def test_a_note_names_checks_that_fail_or_cannot_run() -> None:
    """With the reason why one cannot run, without the reason of a failure."""
    well, router, api = (CheckStatus(Check(name, "kubelet")) for name in ("well", "router", "api"))
    router, api = (replace(each, health=CheckHealth(False), message="status 503") for each in (router, api))
    assert messages(well) == []
    assert messages(well, router) == ["health check router fails"]
    assert messages(api, router) == ["health check api, router fails"]
    blocked = CheckStatus(Check("vault", "https://x"), message="not asked: no CA", blocked="no CA")
    both = ["health check router fails", "health check vault cannot run: no CA"]
    assert messages(well, blocked, router) == both


def messages(*checks: CheckStatus) -> list[str]:
    """The messages of the problems of *checks*."""
    return [each.message for each in check_problems(checks)]


@pytest.mark.parametrize(("fail_after", "succeed_after"), [(1, 1), (1, 5), (4, 1)])
def test_the_numbers_are_those_of_the_check(fail_after: int, succeed_after: int) -> None:
    """failAfter and succeedAfter."""
    answers = "+" + "-" * fail_after + "+" * succeed_after
    found = results_of(answers, fail_after=fail_after, succeed_after=succeed_after)
    assert found == "+" * fail_after + "-" * succeed_after + "+"
