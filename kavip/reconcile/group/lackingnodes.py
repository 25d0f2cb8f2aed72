"""
Which nodes of a group lack an interface that a pool names: they hold none of its VIPs.

Agents report it. Without a report a node counts as one that has the interface, because the text that names an interface
is what makes agents look. The published text names the nodes that lack one, so the next controller continues from
there, and nothing moves before the agents have answered: a node has the interface again when its keepalived runs the
published text, and its agent refuses nothing and does not miss it.
"""

from collections.abc import Collection, Mapping

from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.rollout.configmap import Revision
from kavip.vrrp.running import running_nodes


def lacking_interfaces(
    interfaces: Collection[str], states: Mapping[str, NodeState], running: Revision | None
) -> Mapping[str, frozenset[str]]:
    """By node, those of *interfaces* that it lacks, by the *states* of the nodes and the revision that is *running*."""
    found = {(node, each) for node, state in states.items() for each in state.missing}
    if running is not None:
        recorded = running_nodes(running.content).lacking
        found |= {(node, each) for node, each in recorded if not _runs(states.get(node), running)}
    nodes = sorted({node for node, each in found if each in interfaces})
    return {name: frozenset(each for node, each in found if node == name and each in interfaces) for name in nodes}


def _runs(state: NodeState | None, running: Revision) -> bool:
    return state is not None and state.config_hash == running.hash and not state.refused
