"""
The units of a group that are placed already, so that no change to other units moves them.

The published text names the units that run, and their homes (:mod:`kavip.vrrp.homes`). If it is lost, the nodes that
are master become the homes: those that agents report, and for the other units those in the group's status.

Moves that are made one after the other (:mod:`kavip.vrrp.moves`): the next one begins when every node runs the text,
and each instance is on the node that ranks first. A group with the annotation ``kavip.io/rebalance: "true"`` asks for
those that balance it.
"""

from collections.abc import Iterable, Mapping

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.reconcile.observed.agentstates import MASTER, Contact, NodeState, masters_by_instance
from kavip.reconcile.rollout.configmap import PublishedRevisions
from kavip.vrrp import keys
from kavip.vrrp.homes import PlacedUnits
from kavip.vrrp.running import RunningInstance, first_nodes, instances_without_preemption, running_nodes


def placed_units(
    group: KeepalivedGroup,
    published: PublishedRevisions | None,
    running: Iterable[RunningInstance],
    states: Mapping[str, NodeState],
    *,
    contacts: Mapping[str, Contact],
    is_settled: bool,
) -> PlacedUnits:
    """
    What is placed of *group*, by what is *published*; None: there is no ConfigMap.

    *running* are the instances of the published text, *states* the answers of the agents with these *contacts*.
    *is_settled*: every node runs the published text.
    """
    if published is None:
        silent = {node for node, contact in contacts.items() if contact.is_silent}
        answers = {node: state for node, state in states.items() if node not in silent}
        return PlacedUnits(holders={**_recorded(group), **_reported(answers)})
    current = published.current
    wants_balance = group.metadata.annotation(names.REBALANCE_ANNOTATION) == "true" and not group.spec.no_preempt
    units = frozenset(keys.unit_name(each.name, each.identity.anchor.address.family) for each in running)
    nodes = running_nodes(current.content)
    is_unspread = any(map(keys.is_address_key, units - nodes.spread))
    may_move = (
        (wants_balance or is_unspread) and is_settled and published.next is None and _is_in_place(current.text, states)
    )
    return PlacedUnits(units, nodes.homes, nodes.spread, wants_balance=wants_balance, may_move=may_move)


def _recorded(group: KeepalivedGroup) -> Mapping[str, str]:
    """The nodes that are master by the group's status, by unit."""
    masters = (each for each in group.status.instances or () if each.state == MASTER and each.node)
    return {keys.unit_name(each.name, each.family): each.node for each in masters}


def _reported(states: Mapping[str, NodeState]) -> Mapping[str, str]:
    """The nodes that report that they are master, by unit."""
    return {keys.unit_name(name, 6): min(nodes) for name, nodes in masters_by_instance(states).items()}


def _is_in_place(text: str, states: Mapping[str, NodeState]) -> bool:
    """Whether the node that ranks first for each instance of *text* is its only master, if it can become it."""
    masters, lasting = masters_by_instance(states), instances_without_preemption(text)
    return all(masters.get(name) == {node} for name, node in first_nodes(text).items() if name not in lasting)
