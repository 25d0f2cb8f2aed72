"""
What the answers to a health check come to: rise and fall, and nothing of time.

Before keepalived starts a check believes its first answer: a node that comes up with a service that fails must not take
a VIP for the seconds that ``failAfter`` lasts. Beside a daemon that runs a new check is held to be well until it has
failed as often as it must: all nodes have it at once. What an earlier agent knew is taken over, so that a restart
neither forgets a failure nor makes one of a single bad answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kavip.api.group import Check


@dataclass(frozen=True, slots=True)
class Health:
    """*ok* is None as long as nothing is known; *streak* counts the answers in a row that say otherwise."""

    ok: bool | None = None
    streak: int = 0

    @property
    def fails(self) -> bool:
        """Whether keepalived is to be told; not before anything is known."""
        return self.ok is False


UNKNOWN: Final = Health()


@dataclass(frozen=True, slots=True)
class Asked:
    """
    One check: what it has come to since when (RFC 3339), what was answered last, and how long that took.

    *stuck* says that it could not be asked: it stays what it was.
    """

    check: Check
    health: Health = UNKNOWN
    since: str = ""
    message: str = "not asked yet"
    seconds: float = 0.0
    stuck: bool = False


def complaint(checks: Iterable[Asked]) -> str:
    """Which of *checks* fail, as a note for people; why is told elsewhere, for a note that changes is written down."""
    found = tuple(checks)
    failing = [each.check.name for each in found if each.health.fails]
    stuck = [each.check.name for each in found if each.stuck]
    told = (("fails", failing), ("cannot be asked", stuck))
    return "; ".join(f"health check {', '.join(names)} {what}" for what, names in told if names)


def after(health: Health, *, answer: bool, fail_after: int, succeed_after: int) -> Health:
    """What *health* becomes with one more *answer*."""
    if health.ok is None:
        return Health(answer)
    if answer == health.ok:
        return Health(health.ok)
    streak = health.streak + 1
    return Health(answer) if streak >= (succeed_after if answer else fail_after) else Health(health.ok, streak)
