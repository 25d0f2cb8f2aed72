"""
Which nodes may take an instance from a drained node although the instance has ``nopreempt``.

With ``nopreempt`` no node takes an instance from a live master. So the text leaves this line out on one node, until
that node is master: the one that ranks first of those that are ready for it. All others keep the line, so the instance
moves once, and stays there when the drained node returns.
"""

from collections.abc import Collection, Mapping

from kavip.reconcile.observed.agentstates import BACKUP, NO_CONTACT, Contact, NodeState, masters_by_instance


def candidates_of(
    drained: Collection[str], states: Mapping[str, NodeState], contacts: Mapping[str, Contact]
) -> Mapping[str, frozenset[str]]:
    """
    The nodes that can take over from one of the *drained* nodes, by instance, by the answers *states* and *contacts*.

    Only instances are included whose one master is drained.
    """
    if not drained:
        return {}
    masters = masters_by_instance(states)
    held = {name for name, nodes in masters.items() if len(nodes) == 1 and nodes <= set(drained)}
    found: dict[str, set[str]] = {}
    for node, state in states.items():
        if node in drained or contacts.get(node, NO_CONTACT).is_silent:
            continue
        for each in state.instances:
            if each.name in held and each.state == BACKUP:
                found.setdefault(each.name, set()).add(node)
    return {name: frozenset(nodes) for name, nodes in found.items()}
