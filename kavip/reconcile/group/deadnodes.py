"""
Which nodes of a group are dead, so that the VIPs of spread Services are placed on the others.

Without a proof every node counts as alive. An agent that does not answer proves nothing: a controller that is cut off
hears no agent at all. A node is dead if its agent does not answer, or reports that keepalived cannot be master there or
that health checks lower all its instances, and if agents that answer report that other nodes are master of the
instances for which it ranks first.

The published text names the nodes that it treats as dead, so the next controller continues from there. Such a node is
alive again when its keepalived runs the published text.
"""

from collections.abc import Mapping

from kavip.api.group import KeepalivedGroup
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, AgentStates, Contact, NodeState, masters_by_instance
from kavip.reconcile.rollout.configmap import Revision
from kavip.snapshot import Snapshot
from kavip.vrrp.priorities import BOTTOM
from kavip.vrrp.running import first_of, node_orders, running_nodes
from kavip.vrrp.tracking import LOWEST


def dead_nodes(
    snapshot: Snapshot, group: KeepalivedGroup, agents: AgentStates, running: Revision | None
) -> frozenset[str]:
    """
    The dead nodes of *group*, by what its agents report about the revision that is *running*.

    With ``noPreempt`` there are none: other first nodes would move no VIP.
    """
    if running is None or group.spec.no_preempt:
        return frozenset()
    nodes = running_nodes(running.content)
    states, contacts = agents.states_of(group.key), agents.contacts_of(group.key)
    up = {node for node in nodes.listed if _is_up(states.get(node), contacts.get(node))}
    well = {node for node in up if not _is_lowered(states[node])}
    kept = nodes.dead & nodes.listed
    kept -= {node for node in kept & well if states[node].config_hash == running.hash}
    suspects = {node for node in nodes.listed - well - kept if node in states or _is_unready(snapshot, node)}
    masters = masters_by_instance({node: states[node] for node in up}) if suspects else {}
    return kept | _proven(suspects, node_orders(running.text), nodes.dead, masters) if suspects else kept


def _is_unready(snapshot: Snapshot, node: str) -> bool:
    """Whether Kubernetes reports *node* as not ready; only then may an agent that never answered mean a dead node."""
    found = snapshot.nodes.get(node)
    return found is not None and not found.is_ready


def _is_up(state: NodeState | None, contact: Contact | None) -> bool:
    """Whether a node answers, and can be master of any instance."""
    if state is None or not state.running or (contact is not None and contact.is_silent):
        return False
    return any(each.state in (MASTER, BACKUP) for each in state.instances)


def _is_lowered(state: NodeState) -> bool:
    """Whether health checks rank a node behind all healthy ones: not while it hands over, which lasts for seconds."""
    return all(LOWEST < each.priority < BOTTOM for each in state.instances)


def _proven(
    suspects: set[str], orders: Mapping[str, tuple[str, ...]], dead: frozenset[str], masters: Mapping[str, set[str]]
) -> frozenset[str]:
    """
    Those of *suspects* that rank first for an instance, and of all these instances other nodes are master.

    Without a node that is dead by this, another one may rank first, so this is repeated.
    """
    proven = frozenset[str]()
    while True:
        led: dict[str, list[str]] = {}
        for name, node in first_of(orders, dead | proven).items():
            led.setdefault(node, []).append(name)
        more = {node for node in suspects if node in led and all(name in masters for name in led[node])}
        if not more:
            return proven
        proven |= more
