"""
Which nodes have to switch together, and which of them are not ready to.

Every node with a pod of the group counts, also one that is not ready, or has left the group: its keepalived may be on
the segment all the same, and would be a second master.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kavip.api.cluster import Node, Pod
from kavip.api.instant import read_instant
from kavip.reconcile.observed.nodes import Contact, NodeState
from kavip.reconcile.rollout.configmap import Revision
from kavip.reconcile.rollout.switchover import Voter

RENEWED_AFTER: Final = 120.0
"""
Seconds after which every node has a Secret that was changed. Nodes do not tell their passwords, so of one that sees
nothing new it cannot be known whether it has seen it already; kubelet looks at Secrets within two minutes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The *nodes* and *pods* of a group, what their agents said, and the configuration (a hash) that each *runs*."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    states: Mapping[str, NodeState]
    hearings: Mapping[str, Contact]
    runs: str


def since(states: Mapping[str, NodeState], hearings: Mapping[str, Contact]) -> datetime | None:
    """
    When the first node saw another password than the one that runs; None: all run what is mounted.

    What a node said that is silent now may have been before a switch; others see a new password as well.
    """
    heard = [each for name, each in states.items() if not hearings.get(name, Contact()).is_silent]
    return min((found for each in heard if (found := read_instant(each.new_password))), default=None)


def voters_of(assembly: Assembly, following: Revision, *, now: datetime) -> tuple[Voter, ...]:
    """The nodes on which the group runs, and why they are not ready for *following*."""
    found = []
    for name in sorted({pod.spec.node_name for pod in assembly.pods} - {""}):
        state = assembly.states.get(name)
        why = _absent(assembly, name) or (_unready(state, assembly.runs, following) if state else "")
        if not why and following.renewed and state is not None and not state.new_password:
            began = since(assembly.states, assembly.hearings) or now.astimezone(UTC)
            if (now - began).total_seconds() < RENEWED_AFTER:
                why = "the new password is not mounted there yet"
        found.append(Voter(name, why, state.switch_at if state else ""))
    return tuple(found)


def _absent(assembly: Assembly, name: str) -> str:
    node = next((each for each in assembly.nodes if each.metadata.name == name), None)
    if node is None:
        return "it is in the group no longer, and its pod still runs"
    if not node.is_ready:
        return "it is not ready: repair it, or remove it from the cluster"
    if name not in assembly.states:
        return "its agent has not answered yet"
    hearing = assembly.hearings.get(name)
    return "its agent does not answer" if hearing and hearing.is_silent else ""


def _unready(state: NodeState, runs: str, following: Revision) -> str:
    if state.drift:
        return f"its clock differs by {state.drift:g} s from the controller's: synchronise it"
    if state.next_refused:
        return state.next_refused
    if state.config_hash != runs and not _is_bare(state):
        return state.refused or "it does not run the present configuration yet"
    if state.prepared != following.digest:
        return "it has not prepared it yet; if that stays so its agent is of an older kavip: let its pod be replaced"
    return ""


def _is_bare(state: NodeState) -> bool:
    """Whether nothing runs there, for the present configuration is refused: the next one may be what mends it."""
    return bool(state.refused) and not state.config_hash and not state.instances
