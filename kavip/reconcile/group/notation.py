"""
Whether the text of a group may be in the compact notation (:mod:`kavip.vrrp.compact`): its agents must read it.

An agent of an earlier version refuses such a text, and runs on with what it has. Agents report that they read it. A
group becomes compact when all have, and stays so while none reports otherwise: neither a silent agent nor a new
controller, which has no reports yet, changes the notation. Pods that are not there yet get an agent of this version,
unless ``agentImage`` names another one.
"""

from collections.abc import Set as AbstractSet

from kavip.api.group import KeepalivedGroup
from kavip.reconcile.group.existing import Existing
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.plan import ReconcileOptions
from kavip.reconcile.rollout.peers import PATIENCE
from kavip.snapshot import Snapshot
from kavip.vrrp.compact import is_compact
from kavip.vrrp.config import Notation


def notation_of(
    snapshot: Snapshot, group: KeepalivedGroup, agents: AgentStates, *, existing: Existing, options: ReconcileOptions
) -> Notation:
    """When the text of *group* is in the compact notation."""
    if existing.takeover.is_active or not options.compact_text:
        return Notation.FULL
    states = agents.states_of(group.key)
    every = all(state.reads_compact for state in states.values())
    if existing.running is not None and is_compact(existing.running.content):
        return Notation.COMPACT_UNLESS_SMALL if every else Notation.COMPACT_IF_NEEDED
    if states:
        is_known = every and not _awaits_agents(snapshot, agents, existing, known=states.keys())
    else:
        is_known = not existing.pods and not group.spec.agent_image
    return Notation.COMPACT_IF_LARGE if is_known else Notation.FULL


def _awaits_agents(snapshot: Snapshot, agents: AgentStates, existing: Existing, *, known: AbstractSet[str]) -> bool:
    """Whether an agent of another node than those *known* may answer soon: the controller has only begun to ask."""
    if agents.at - agents.since > PATIENCE:
        return False
    nodes = (snapshot.nodes.get(name) for name in {pod.spec.node_name for pod in existing.pods} - known)
    return any(node is not None and node.is_ready for node in nodes)
