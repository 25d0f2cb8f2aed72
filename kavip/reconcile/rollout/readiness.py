"""
Which nodes must switch together, and which of them are not ready.

Every node with a pod of the group counts, also one that is not ready or has left the group: its keepalived may still be
on the segment, and would be a second master.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from kavip.api.cluster import Node
from kavip.api.instant import read_instant
from kavip.reconcile.observed.agentstates import NO_CONTACT, AgentStates, Contact, NodeState
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.rollout.configmap import Revision

RENEWED_AFTER: Final = 120.0
"""
Seconds after which every node has a Secret that was changed. Agents do not report their passwords, so a node that sees
nothing new may have seen the new one already. kubelet refreshes a mounted Secret within two minutes.
"""


@dataclass(frozen=True, slots=True)
class NodeReadiness:
    """
    A node that runs the group: the *problem* that keeps it from switching, or "", and the instant it reports.

    *recheck*: the seconds after which the problem may be gone without any event; None: only an event ends it.
    """

    node: str
    problem: str = ""
    switch_at: str = ""
    recheck: float | None = None


def new_password_since(group: str, agents: AgentStates) -> datetime | None:
    """
    When the first node of *group* saw another password than the one that runs; None if no node sees one.

    Nodes that are silent now do not count: they may have answered before the last switch.
    """
    contacts = agents.contacts_of(group)
    states = [state for node, state in agents.states_of(group).items() if not contacts.get(node, NO_CONTACT).is_silent]
    return min((found for state in states if (found := read_instant(state.new_password))), default=None)


def readiness_of(
    following: Revision,
    *,
    running: Revision,
    group: str,
    nodes: Collection[Node],
    observed: Observed,
    now: datetime,
) -> tuple[NodeReadiness, ...]:
    """The readiness of each node with a pod for *following*; *nodes* are those of the group, which runs *running*."""
    agents, pods = observed.agents, observed.objects.pods_of(group)
    members = {node.metadata.name: node for node in nodes}
    found = []
    for name in sorted({pod.spec.node_name for pod in pods} - {""}):
        state = agents.states_of(group).get(name)
        recheck = None
        problem = _unreachable(members.get(name), agents.contacts_of(group).get(name), state)
        if not problem and state is not None:
            problem = _unprepared(state, running.hash, following)
        if not problem and state is not None and following.renewed and not state.new_password:
            since = new_password_since(group, agents) or now.astimezone(UTC)
            if (left := RENEWED_AFTER - (now - since).total_seconds()) > 0:
                problem, recheck = "the new password is not mounted there yet", left
        found.append(NodeReadiness(name, problem, state.switch_at if state else "", recheck))
    if absent := _absent_interface(running, following, [agents.states_of(group).get(each.node) for each in found]):
        problem = f"interface {absent} exists on no node: create it, or change spec.interface of the VIPPool"
        found = [replace(each, problem=each.problem or problem) for each in found]
    return tuple(found)


def _absent_interface(running: Revision, following: Revision, states: Sequence[NodeState | None]) -> str:
    """An interface that *following* needs for VIPs, *running* does not, and all nodes lack; "" if there is none."""
    missing = [each.missing if each else frozenset[str]() for each in states]
    absent = frozenset(following.links.interfaces).difference(running.links.interfaces).intersection(*missing)
    return min(absent, default="")


def _unreachable(node: Node | None, contact: Contact | None, state: NodeState | None) -> str:
    if node is None:
        return "it has left the group, and its pod still runs"
    if not node.is_ready:
        return "it is not ready: repair it, or remove it from the cluster"
    if state is None:
        return "its agent has not answered yet"
    return "its agent does not answer" if contact and contact.is_silent else ""


def _unprepared(state: NodeState, running_hash: str, following: Revision) -> str:
    if state.drift:
        return f"its clock differs by {state.drift:g} s from the controller's: synchronise it"
    if state.next_refused:
        return state.next_refused
    if state.config_hash != running_hash and not _runs_nothing(state):
        return state.refused or "it does not run the current configuration yet"
    if state.prepared != following.digest:
        older = "it has not prepared the change yet; if that stays so, its agent is of an older kavip: replace its pod"
        return state.refused or older
    return ""


def _runs_nothing(state: NodeState) -> bool:
    """Whether the node refuses the current configuration and runs none: the next one may be the correction."""
    return bool(state.refused) and not state.config_hash and not state.instances
