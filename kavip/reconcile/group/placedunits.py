"""
The units of a group that are placed already, so that no change to other units moves them.

The published text names the units that run, and their homes (:mod:`kavip.vrrp.balance`). If it is lost, the nodes that
are master become the homes: those that agents report, and for the other units those in the group's status.

A group with the annotation ``kavip.io/rebalance: "true"`` is balanced, one move after the other: the next one begins
when every node runs the text, and each instance is on the node that ranks first.
"""

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.reconcile.group.existing import Existing
from kavip.reconcile.observed.agentstates import MASTER, AgentStates, masters_by_instance
from kavip.vrrp import keys
from kavip.vrrp.balance import PlacedUnits
from kavip.vrrp.running import first_nodes, running_nodes


def placed_units(group: KeepalivedGroup, existing: Existing, agents: AgentStates, *, is_settled: bool) -> PlacedUnits:
    """What is placed of *group*, of which so much is *existing*; *is_settled*: every node runs the published text."""
    masters = masters_by_instance(agents.states_of(group.key))
    if existing.published is None:
        recorded = {
            keys.unit_name(each.name, each.family): each.node
            for each in group.status.instances or ()
            if each.state == MASTER and each.node
        }
        reported = {keys.unit_name(name, 6): min(nodes) for name, nodes in masters.items()}
        return PlacedUnits(holders={**recorded, **reported})
    running = existing.published.current
    units = (keys.unit_name(each.name, each.identity.anchor.address.family) for each in running.running.values())
    is_rebalanced = group.metadata.annotation(names.REBALANCE_ANNOTATION) == "true" and not group.spec.no_preempt
    may_move = is_rebalanced and is_settled and existing.published.next is None
    return PlacedUnits(
        frozenset(units),
        running_nodes(running.text).homes,
        is_rebalanced=is_rebalanced,
        may_move=may_move and all(masters.get(name) == {node} for name, node in first_nodes(running.text).items()),
    )
