"""
The units of a group that are placed already, so that no change to other units moves them.

The published text names the units that run, and their homes (:mod:`kavip.vrrp.balance`). If it is lost, the nodes that
are master become the homes: those that agents report, and for the other units those in the group's status.
"""

from kavip.api.group import KeepalivedGroup
from kavip.reconcile.observed.agentstates import MASTER, AgentStates
from kavip.reconcile.rollout.configmap import Revision
from kavip.vrrp import keys
from kavip.vrrp.balance import PlacedUnits
from kavip.vrrp.running import running_nodes


def placed_units(group: KeepalivedGroup, agents: AgentStates, running: Revision | None) -> PlacedUnits:
    """What is placed of *group*, with the revision that is *running*; None: there is no ConfigMap."""
    if running is not None:
        names = (keys.unit_name(each.name, each.identity.anchor.address.family) for each in running.running.values())
        return PlacedUnits(frozenset(names), running_nodes(running.text).homes)
    holders = {
        keys.unit_name(each.name, each.family): each.node
        for each in group.status.instances or ()
        if each.state == MASTER and each.node
    }
    for node, state in sorted(agents.states_of(group.key).items()):
        holders |= {keys.unit_name(each.name, 6): node for each in state.instances if each.state == MASTER}
    return PlacedUnits(holders=holders)
