"""Rise and fall."""

from dataclasses import replace

import pytest

from kavip.agent.health.threshold import UNASKED, Asked, Health, after, complaint
from kavip.api.group import Check


def course(answers: str, *, fail_after: int = 3, succeed_after: int = 2, start: Health | None = None) -> str:
    """What a check is held to be after each of *answers*: ``+`` well, ``-`` not; *start* is what was known before."""
    seen = [start or Health()]
    for answer in answers:
        seen.append(after(seen[-1], answer=answer == "+", fail_after=fail_after, succeed_after=succeed_after))
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
    """Three that fail in a row, or two that pass, and any other begins the count anew."""
    assert course(answers) == held


def test_the_first_answer_is_believed() -> None:
    """A pod that has just started takes no VIP to a service that fails, and loses no time with one that is well."""
    assert course("-") == "-"
    assert course("+") == "+"
    assert course("-+++") == "--++"


def test_what_was_known_before_is_kept() -> None:
    """After a restart of the agent neither one bad answer nor one good one changes anything."""
    assert course("-", start=Health(True)) == "+"
    assert course("+", start=Health(False)) == "-"


def test_a_note_names_what_fails() -> None:
    """Nothing where all is well or unknown; why a check fails is no part of it, why it cannot be asked is."""
    well, router, api = (Asked(Check(name, "kubelet")) for name in ("well", "router", "api"))
    router, api = (replace(each, health=Health(False), message="status 503") for each in (router, api))
    assert complaint((well,)) == ""
    assert complaint((well, router)) == "health check router fails"
    assert complaint((api, router)) == "health check api, router fails"
    stuck = Asked(Check("vault", "https://x"), message=f"{UNASKED}no CA", stuck=True)
    both = "health check router fails; health check vault cannot be asked: no CA"
    assert complaint((well, stuck, router)) == both


@pytest.mark.parametrize(("fail_after", "succeed_after"), [(1, 1), (1, 5), (4, 1)])
def test_the_numbers_are_those_of_the_check(fail_after: int, succeed_after: int) -> None:
    """As many as the group says, each way."""
    answers = "+" + "-" * fail_after + "+" * succeed_after
    found = course(answers, fail_after=fail_after, succeed_after=succeed_after)
    assert found == "+" * fail_after + "-" * succeed_after + "+"
