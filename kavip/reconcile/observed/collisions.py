"""
VRIDs that another router uses on the same network, found with keepalived's counters.

keepalived counts adverts with its VRID that do not come from its peers: with other addresses, or another password. One
such advert is no sign, because nodes that load a configuration one after the other may disagree for a moment. A counter
that keeps growing is one. Counters start again with the daemon, and a counter that no longer grows is forgotten.
keepalived 2.2.7 does not count adverts of another VRRP version, or of another interval in version 2; these are
harmless. As master it puts off its next advert with each one that it refuses: one with a longer interval than the group
falls silent, and is not found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.reconcile.observed.agentstates import Collision, NodeState

LASTING: Final = 10.0
"""Seconds for which a counter has to grow."""
FADE: Final = 60.0
"""Seconds without growth after which a collision is over; adverts may be 40 s apart."""
_TIMES: Final = 3  # answers in which it grew


class Sign(StrEnum):
    """What is wrong with the adverts of another router, as messages say it."""

    ADDRESSES = "other addresses"
    PASSWORD = "another password"  # noqa: S105 - a message
    INTERVAL = "another interval"


class Trace(NamedTuple):
    """One counter of one instance."""

    instance: str
    router_id: int
    interface: str
    sign: Sign


@dataclass(frozen=True, slots=True)
class _Streak:
    first: float
    last: float
    times: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The counters of one node, and those that have been growing."""

    counts: Mapping[Trace, int] = field(default_factory=lambda: MappingProxyType({}))
    streaks: Mapping[Trace, _Streak] = field(default_factory=lambda: MappingProxyType({}))


def follow(before: Tally, counts: Mapping[Trace, int], *, at: float) -> Tally:
    """*before* after another answer; a new or restarted counter has not grown."""
    streaks = {}
    for trace, count in counts.items():
        streak = before.streaks.get(trace)
        if streak is not None and at - streak.last > FADE:
            streak = None
        if count > before.counts.get(trace, count):
            first, times = (streak.first, streak.times) if streak else (at, 0)
            streak = _Streak(first, at, times + 1)
        if streak is not None:
            streaks[trace] = streak
    return Tally(counts, streaks)


def active(tally: Tally, *, at: float) -> tuple[Collision, ...]:
    """The collisions that are going on, sorted."""
    return tuple(
        Collision(trace.instance, trace.router_id, trace.interface, trace.sign.value)
        for trace, streak in sorted(tally.streaks.items())
        if streak.times >= _TIMES and streak.last - streak.first >= LASTING and at - streak.last <= FADE
    )


def noted(state: NodeState | None, tally: Tally, *, at: float) -> NodeState | None:
    """*state* with the collisions that are going on."""
    if state is None or (not tally.streaks and not state.collisions):
        return state
    found = active(tally, at=at)
    return state if state.collisions == found else replace(state, collisions=found)
