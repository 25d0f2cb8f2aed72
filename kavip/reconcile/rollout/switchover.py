"""
Changes that all nodes make at one instant: what is published while they prepare, and when they switch.

The current text stays published and is maintained; the next one is published in the same ConfigMap, compressed. Agents
test the next text and report that they are prepared. When all are, the instant is announced, and each node switches by
its own clock. If a node is not prepared, or has not seen the announcement shortly before the instant, the switch is
called off for all. The published ConfigMap says how far the switch is, so a new controller continues where the last one
stopped.

An announcement that comes too early would only be called off. So each further one lies twice as far ahead, until also a
node whose kubelet refreshes its mounts once a minute sees it in time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from kavip.api.instant import instant_text
from kavip.reconcile.rollout.configmap import LARGEST, MARGIN, PublishedRevisions, Revision
from kavip.reconcile.rollout.difference import describe, may_roll
from kavip.reconcile.rollout.readiness import NodeReadiness
from kavip.reconcile.text import few

LEAD: Final = 10.0
"""Seconds between the last annotation and the instant: kubelet brings the announcement to that pod within one."""
LONGEST_LEAD: Final = 300.0
FROZEN: Final = 5.0
"""
Seconds before the instant in which nothing that is published changes, except that the switch is called off.

All nodes would have to prepare any other change than a revert of the switch. Such a change already waits when there is
no time left to annotate all pods for it.
"""
LAST_LOOK: Final = 4.0
"""Seconds before the instant at which every node must have it."""
TOO_LATE: Final = 2.0
"""Seconds before the instant at which it can no longer be called off: not all nodes might see that in time."""
ELECTION: Final = 5
"""Advert intervals after which instances that have just started have their masters."""
_RESERVED_BYTES: Final = 8_000  # of a ConfigMap, for everything in it except the two texts

Ask = Callable[[Revision], Sequence[NodeReadiness]]
"""The readiness of the nodes for a revision."""


@dataclass(frozen=True, slots=True)
class Switchover:
    """The revisions to publish, the *message* about a switch that is not done, and when to reconcile again."""

    published: PublishedRevisions
    message: str = ""
    requeue_after: float | None = None


def plan_switchover(
    published: PublishedRevisions | None,
    *,
    current: Revision,
    following: Revision | None,
    ask: Ask,
    annotating: float,
    now: datetime,
) -> Switchover:
    """
    Decide what to publish next.

    *published*: what is published now. *current* may roll from node to node; *following* may not, None: there is none.
    *annotating*: the seconds until the last pod is annotated for an announcement.
    """
    published = published.at(now) if published else None
    if published and published.next and published.switch_at:
        left = _seconds_to(published.switch_at, now)
        if -MARGIN < left <= FROZEN + (annotating if following is not None else 0.0):
            return _last_seconds(published, published.next, published.switch_at, nodes=ask(published.next), now=now)
    if published is None:
        return Switchover(PublishedRevisions(current))  # if the ConfigMap is lost, nodes may run an older one
    if following is None or not published.current.has_instances or not (nodes := ask(following)):
        return Switchover(PublishedRevisions(following or current))  # no two nodes can disagree
    if problem := _oversized(current, following):
        return Switchover(PublishedRevisions(current), problem)
    if published.switch_at and published.next and may_roll(published.next, following):
        kept = replace(published, current=current, next=following)
        return Switchover(kept, _announced(kept, following), _seconds_to(published.switch_at, now) - LAST_LOOK)
    aborts, cause = (published.aborts, published.abort_cause) if published.next else (0, "")
    pending = PublishedRevisions(current, following, aborts=aborts, abort_cause=cause)
    if waiting := [each for each in nodes if each.problem]:
        recheck = min((each.recheck for each in waiting if each.recheck is not None), default=None)
        return Switchover(pending, _waits(current, following, waiting), recheck)
    lead = min(max(LEAD * 2**aborts, ELECTION * _longest_interval(current, following)) + annotating, LONGEST_LEAD)
    announced = replace(pending, switch_at=now + timedelta(seconds=lead))
    return Switchover(announced, _announced(announced, following), lead - LAST_LOOK)


def _last_seconds(
    published: PublishedRevisions,
    following: Revision,
    instant: datetime,
    *,
    nodes: Sequence[NodeReadiness],
    now: datetime,
) -> Switchover:
    """Shortly before the switch: call it off while that can be done, or let it happen."""
    left = _seconds_to(instant, now)
    unaware = [
        replace(each, problem=each.problem or "it has not seen the announcement")
        for each in nodes
        if each.problem or each.switch_at != instant_text(instant)
    ]
    if unaware and TOO_LATE < left <= LAST_LOOK:
        cause = f"node {unaware[0].node}: {unaware[0].problem}"
        called_off = replace(published, switch_at=None, aborts=published.aborts + 1, abort_cause=cause)
        return Switchover(called_off, _waits(published.current, following, unaware), 1.0)
    requeue_after = left - LAST_LOOK if left > LAST_LOOK else left + MARGIN
    return Switchover(published, _announced(published, following), max(requeue_after, 0.1))


def _seconds_to(instant: datetime, now: datetime) -> float:
    return (instant - now).total_seconds()


def _announced(published: PublishedRevisions, following: Revision) -> str:
    fields = describe(published.current, following)
    text = f"every node is prepared: all change at {instant_text(published.switch_at)} ({fields})"
    if published.aborts:
        text += f"; called off {published.aborts} times, last because of {published.abort_cause}"
    return text


def _waits(current: Revision, following: Revision, waiting: Sequence[NodeReadiness]) -> str:
    first, fields = waiting[0], describe(current, following)
    others = f"; also waits for {few([each.node for each in waiting[1:]])}" if waiting[1:] else ""
    return (
        f"a change that all nodes make at one instant ({fields}) waits for node {first.node}: {first.problem}{others}"
    )


def _oversized(current: Revision, following: Revision) -> str:
    size = len(current.written) + len(following.compressed) + _RESERVED_BYTES
    if size <= LARGEST:
        return ""
    return (
        f"a change that all nodes make at one instant ({describe(current, following)}) cannot be prepared: both "
        f"configurations need {size:,} bytes, and a ConfigMap holds {LARGEST:,}; use fewer Services or nodes"
    )


def _longest_interval(*revisions: Revision) -> float:
    """The longest advert interval, in seconds."""
    intervals = (float(run.identity.interval) for each in revisions for run in each.running.values())
    return max(intervals, default=0.0)
