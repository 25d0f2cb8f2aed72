"""
Whose object is it: kavip's own, the predecessor's, or somebody else's.

Only an object that the group controls and that kavip made is written over. Server-side apply alone would not tell: it
merges into whatever has the name.
"""

from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api.workload import ConfigMap, DaemonSet, PodMonitor, Role, RoleBinding, controller_of


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object that kavip leaves alone: *whose* it is, in words; *predecessor*: keepalived-operator's."""

    whose: str
    predecessor: bool = False


PREDECESSOR: Final = Foreign("made by keepalived-operator for this group", predecessor=True)

Made = ConfigMap | DaemonSet | PodMonitor | Role | RoleBinding
"""What kavip makes for a group."""


def foreign(obj: Made, *, group_uid: str) -> Foreign | None:
    """Why *obj* is not kavip's for the group with *group_uid*; None: it is."""
    owner = controller_of(obj.metadata)
    if owner is None:
        return Foreign("nobody's: it has no controlling owner")
    if owner.uid != group_uid:
        return Foreign(f"controlled by {owner.kind} {owner.name} (uid {owner.uid})")
    if not _made_by_kavip(obj):
        return PREDECESSOR
    return None


def _made_by_kavip(obj: Made) -> bool:
    match obj:
        case ConfigMap():
            return names.AGENT_KEY in (obj.data or {})
        case DaemonSet():
            return any(container.name == names.AGENT_CONTAINER for container in obj.spec.template.spec.containers or ())
    return True  # what the predecessor made for Prometheus says the same
