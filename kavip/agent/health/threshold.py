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
UNASKED: Final = "not asked: "
"""With this begins why a check could not be asked."""


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
    """
    Which of *checks* fail, as a note for people.

    Why is told elsewhere, for a note that changes is written down; why one cannot be asked does not change by itself.
    """
    told: dict[str, list[str]] = {}
    for each in sorted(checks, key=lambda each: each.stuck):
        if each.health.fails:
            told.setdefault("fails", []).append(each.check.name)
        if each.stuck:
            told.setdefault(f"cannot be asked: {each.message.removeprefix(UNASKED)}", []).append(each.check.name)
    return "; ".join(f"health check {', '.join(names)} {what}" for what, names in told.items())


def after(health: Health, *, answer: bool, fail_after: int, succeed_after: int) -> Health:
    """What *health* becomes with one more *answer*."""
    if health.ok is None:
        return Health(answer)
    if answer == health.ok:
        return Health(health.ok)
    streak = health.streak + 1
    return Health(answer) if streak >= (succeed_after if answer else fail_after) else Health(health.ok, streak)
