"""
The status of health checks: how many answers in a row change a result. Independent of time.

Before keepalived starts, a check takes the result of its first answer: a node that boots with a failing service must
not take a VIP for the seconds that ``failAfter`` lasts. While keepalived runs, a new check counts as passing until it
has failed ``failAfter`` times, because all nodes get it at the same moment. The result that an earlier agent recorded
is taken over, so that a restart of the agent neither forgets a failure nor fails a check for one bad answer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kavip.api.agent import NodeProblem, ProblemCode
from kavip.api.group import Check


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """*ok* is None before the first answer; *streak* counts the latest answers in a row that differ from it."""

    ok: bool | None = None
    streak: int = 0

    @property
    def fails(self) -> bool:
        """Whether keepalived must react; False before the first answer."""
        return self.ok is False


UNKNOWN: Final = CheckHealth()


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """
    One check: its health *since* an instant (RFC 3339), the *message* of its last answer, how many *seconds* it took.

    *blocked*: why the check cannot run; its health stays as it was.
    """

    check: Check
    health: CheckHealth = UNKNOWN
    since: str = ""
    message: str = "not run yet"
    seconds: float = 0.0
    blocked: str = ""


def check_problems(checks: Iterable[CheckStatus]) -> Iterator[NodeProblem]:
    """
    The problems of *checks*, without the reason of a failure.

    A problem becomes part of a condition. The reason of a failure can change with every answer, and every change of a
    condition is a write. So the reason is in ``checks[]`` only.
    """
    found = tuple(checks)
    if failing := [each.check.name for each in found if each.health.fails]:
        yield NodeProblem(ProblemCode.CHECK_FAILING, f"health check {', '.join(failing)} fails")
    for why in dict.fromkeys(each.blocked for each in found if each.blocked):
        named = ", ".join(each.check.name for each in found if each.blocked == why)
        yield NodeProblem(ProblemCode.CHECK_NOT_RUN, f"health check {named} cannot run: {why}")


def next_health(health: CheckHealth, *, answer: bool, fail_after: int, succeed_after: int) -> CheckHealth:
    """*health* after one more *answer*."""
    if health.ok is None:
        return CheckHealth(answer)
    if answer == health.ok:
        return CheckHealth(health.ok)
    streak = health.streak + 1
    return (
        CheckHealth(answer) if streak >= (succeed_after if answer else fail_after) else CheckHealth(health.ok, streak)
    )
