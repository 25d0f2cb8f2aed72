"""
Which notations the text of a group may be in (:mod:`kavip.vrrp.compact`, :mod:`kavip.vrrp.packed`).

An agent of an earlier version refuses a text that it cannot read, and runs on with what it has. Agents report what they
read. A text enters a notation when all have reported it, and stays there while none reports otherwise: neither a silent
agent nor a new controller, which has no reports yet, changes the notation. Pods that are not there yet get an agent of
this version, unless ``agentImage`` names another one.
"""

from collections.abc import Set as AbstractSet

from kavip.api.group import KeepalivedGroup
from kavip.reconcile.group.existing import Existing
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.plan import ReconcileOptions
from kavip.reconcile.rollout.peers import PATIENCE
from kavip.snapshot import Snapshot
from kavip.vrrp.compact import is_compact
from kavip.vrrp.config import IN_FULL, Notations, Use


def notations_of(
    snapshot: Snapshot, group: KeepalivedGroup, agents: AgentStates, *, existing: Existing, options: ReconcileOptions
) -> Notations:
    """When the text of *group* is compact, and when it is packed."""
    if existing.takeover.is_active or not options.compact_text:
        return IN_FULL
    states, running = agents.states_of(group.key), existing.running
    if states:
        are_known = not _awaits_agents(snapshot, agents, existing, known=states.keys())
    else:
        are_known = not existing.pods and not group.spec.agent_image

    def use(*, every: bool, is_used: bool) -> Use:
        if is_used:
            return Use.UNLESS_SMALL if every else Use.IF_NEEDED
        return Use.IF_LARGE if every and are_known else Use.NEVER

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


def _awaits_agents(snapshot: Snapshot, agents: AgentStates, existing: Existing, *, known: AbstractSet[str]) -> bool:
    """Whether an agent of another node than those *known* may answer soon: the controller has only begun to ask."""
    if agents.at - agents.since > PATIENCE:
        return False
    nodes = (snapshot.nodes.get(name) for name in {pod.spec.node_name for pod in existing.pods} - known)
    return any(node is not None and node.is_ready for node in nodes)
