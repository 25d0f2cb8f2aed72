"""
Which controller made an object of a group: kavip, keepalived-operator, or another one.

Only an object that the group controls and that kavip made is overwritten. Server-side apply alone does not protect
other objects: it merges into whatever object has the name.
"""

from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api.workload import ConfigMap, DaemonSet, PodMonitor, Role, RoleBinding, controller_of


@dataclass(frozen=True, slots=True)
class OwnerConflict:
    """
    Why kavip leaves an object alone.

    *owner*: what made it, in words for messages. *is_old_operator*: keepalived-operator made it.
    """

    owner: str
    is_old_operator: bool = False


OLD_OPERATOR: Final = OwnerConflict("made by keepalived-operator for this group", is_old_operator=True)

GroupObject = ConfigMap | DaemonSet | PodMonitor | Role | RoleBinding
"""The kinds of objects that kavip makes for a group."""


def owner_conflict(obj: GroupObject, *, group_uid: str) -> OwnerConflict | None:
    """Why *obj* is not kavip's object for the group with *group_uid*; None: it is."""
    owner = controller_of(obj.metadata)
    if owner is None:
        return OwnerConflict("without a controlling owner")
    if owner.uid != group_uid:
        return OwnerConflict(f"controlled by {owner.kind} {owner.name} (uid {owner.uid})")
    if not _is_made_by_kavip(obj):
        return OLD_OPERATOR
    return None


def _is_made_by_kavip(obj: GroupObject) -> bool:
    match obj:
        case ConfigMap():
            return names.AGENT_KEY in (obj.data or {})
        case DaemonSet():
            return any(container.name == names.AGENT_CONTAINER for container in obj.spec.template.spec.containers or ())
    return True  # keepalived-operator's objects for Prometheus have the same content
