"""
The condition ``Accepted`` of a group: the first problem, in the order of what it costs.
"""

from typing import Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.names import Reason
from kavip.reconcile.group.objects import LONGEST_NAME
from kavip.reconcile.plan import ConditionState
from kavip.snapshot import Snapshot
from kavip.vrrp.groupspec import check_group
from kavip.vrrp.preference import unmatched
from kavip.vrrp.verbatim import summary

_MOST_NAMED: Final = 3


def accepted(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    *,
    configuration: Refusal | None,
    objects: Refusal | None,
    monitoring: Refusal | None,
    pods: Refusal | None = None,
) -> ConditionState:
    """The verdict, by the problems of the *configuration*, of the *objects*, of those for Prometheus, and of *pods*."""
    if len(group.metadata.name) > LONGEST_NAME:
        return ConditionState("False", Reason.INVALID, f"metadata.name: want at most {LONGEST_NAME} characters")
    if finding := summary(check_group(group)) or configuration:
        return ConditionState("False", Reason.INVALID, finding.message)
    if objects:
        return ConditionState("False", objects.reason, objects.message)
    default = snapshot.default_group
    if group.is_default and default is not None and default.key != group.key:
        message = f"{default.key} is the default group already: remove the label {names.DEFAULT_GROUP_LABEL}"
        return ConditionState("False", Reason.DUPLICATE_DEFAULT, message)
    if pods is not None:
        message = f"the group is served, but its pods read changes up to two minutes late: {pods.message}"
        return ConditionState("True", Reason.ACCEPTED, message)
    if monitoring is None:
        message = "; ".join(("the group is served", *_unmatched_preferences(snapshot, group)))
        return ConditionState("True", Reason.ACCEPTED, message)
    if monitoring.reason == Reason.INVALID:  # rejected: without the right to create them, for example
        message = f"the group is served, but Prometheus does not discover it: {monitoring.message}"
        return ConditionState("True", Reason.ACCEPTED, message)
    return ConditionState("False", monitoring.reason, monitoring.message)


def _unmatched_preferences(snapshot: Snapshot, group: KeepalivedGroup) -> list[str]:
    """The entries of ``spec.placement.preferred`` without a node, if the group has nodes at all."""
    nodes = [node.metadata.labels for node in snapshot.group_nodes(group)] if group.spec.placement.preferred else []
    indices = unmatched(group.spec.placement, nodes) if nodes else []
    return [f"spec.placement.preferred[{index}] matches no node of the group" for index in indices[:_MOST_NAMED]]
