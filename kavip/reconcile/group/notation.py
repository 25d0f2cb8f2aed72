"""
Which notations the text of a group may be in (:mod:`kavip.vrrp.compact`, :mod:`kavip.vrrp.packed`).

An agent of an earlier version refuses a text that it cannot read, and runs on with what it has. Agents report what they
read. A text enters a notation when all have reported it, and stays there while none reports otherwise: neither a silent
agent nor a new controller, which has no reports yet, changes the notation. Pods that are not there yet get an agent of
this version, unless ``agentImage`` names another one.

An agent that reports it and then not, again and again, causes a write of the whole text each time. So a text that has
left a notation enters one again only after :data:`AGAIN` seconds, or where it does not fit otherwise.
"""

from math import inf
from typing import Final

from kavip.api.group import KeepalivedGroup
from kavip.reconcile.group.existing import Existing, awaits_agents
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.plan import ReconcileOptions
from kavip.reconcile.rollout.configmap import Revision
from kavip.snapshot import Snapshot
from kavip.vrrp.compact import is_compact
from kavip.vrrp.config import IN_FULL, Config, Notations, Use

AGAIN: Final = 60.0
"""Seconds after which a text that has left a notation may enter one again."""


def notations_of(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    agents: AgentStates,
    *,
    existing: Existing,
    options: ReconcileOptions,
    left: float = -inf,
) -> Notations:
    """When the text of *group*, which has *left* a notation at that time, is compact, and when it is packed."""
    if existing.takeover.is_active or not options.compact_text:
        return IN_FULL
    states, running = agents.states_of(group.key), existing.running
    if states:
        are_known = not awaits_agents(snapshot, group, agents, existing)
    else:
        are_known = not existing.pods and not group.spec.agent_image

    def use(*, every: bool, is_used: bool) -> Use:
        if is_used:
            return Use.UNLESS_SMALL if every else Use.IF_NEEDED
        if not (every and are_known):
            return Use.NEVER
        return Use.IF_LARGE if agents.at - left >= AGAIN else Use.IF_NEEDED

    return Notations(
        compact=use(
            every=all(state.reads_compact for state in states.values()),
            is_used=running is not None and is_compact(running.content),
        ),
        packed=use(
            every=all(state.reads_packed for state in states.values()),
            is_used=running is not None and running.is_packed,
        ),
    )


def last_left(running: Revision | None, current: Config | None, before: float, *, at: float) -> float:
    """When a text has last left a notation; *before*: by the last plan. *current* follows on *running* at *at*."""
    if running is None or current is None:
        return before
    is_left = (running.is_packed and not current.is_packed) or (
        is_compact(running.content) and not is_compact(current.content)
    )
    return at if is_left else before
