"""
Whether a group is accepted: the first objection, in the order of what it costs.
"""

from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.api.scheduling import fields_of
from kavip.names import Reason
from kavip.reconcile.group.desired import Roster
from kavip.reconcile.group.objects import LONGEST_NAME, InTheWay
from kavip.reconcile.plan import ConditionState
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot
from kavip.vrrp.groups import check_group
from kavip.vrrp.verbatim import summary

_VITAL: Final = ("spec.interface", "spec.vrrpInterface", "spec.interfaceFromIP")
"""Fields without which no configuration is worth writing; other findings cost only what they are about."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with objects of one sort: the one *in_the_way*, or what the API server said and *refused*."""

    in_the_way: InTheWay | None
    refused: str

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.in_the_way or self.refused)


def is_served(group: KeepalivedGroup) -> bool:
    """Whether there can be a configuration at all."""
    return not any(finding.field in _VITAL for finding in check_group(group))


def accepted(
    snapshot: Snapshot, group: KeepalivedGroup, roster: Roster, *, needed: Trouble, monitored: Trouble
) -> ConditionState:
    """The verdict; trouble with the objects that are *needed* weighs more than with those for Prometheus."""
    name, default = group.metadata.name, snapshot.default_group
    if len(name) > LONGEST_NAME:
        return _invalid(f"metadata.name: want at most {LONGEST_NAME} characters")
    if finding := _finding(group, roster):
        return _invalid(finding.message)
    if needed.in_the_way:
        return _conflict(needed.in_the_way, group)
    if needed.refused:
        return _invalid(needed.refused)
    if group.is_default and default is not None and default.key != group.key:
        message = f"{default.key} is the default group already: take the label {names.DEFAULT_GROUP_LABEL} off"
        return ConditionState("False", Reason.DUPLICATE_DEFAULT, message)
    if monitored.in_the_way:
        return _conflict(monitored.in_the_way, group)
    lacks = f", but Prometheus does not find it: {monitored.refused}" if monitored.refused else ""
    return ConditionState("True", Reason.ACCEPTED, f"the group is served{lacks}")


def _finding(group: KeepalivedGroup, roster: Roster) -> Refusal | None:
    return summary(check_group(group)) or roster.refusal


def _invalid(message: str) -> ConditionState:
    return ConditionState("False", Reason.INVALID, message)


def _conflict(found: InTheWay, group: KeepalivedGroup) -> ConditionState:
    what = found.what
    if found.doomed:
        message = (
            f"{what} and its pods are keepalived-operator's, and taken over it would end those on {few(found.doomed)} "
            f"at once, with the VIPs that they hold: {fields_of(group.spec)} let none be there; change that back "
            "until all is taken over"
        )
        return ConditionState("False", Reason.OLD_OPERATOR_RUNNING, message)
    if found.why.is_old_operator:
        message = (
            f"{what} and its pods are keepalived-operator's, and what is changed reaches no node; to have its VIPs "
            f"taken over node by node: kubectl annotate keepalivedgroup {group.metadata.name} "
            f"-n {group.metadata.namespace} {names.TAKE_OVER_ANNOTATION}=true"
        )
        return ConditionState("False", Reason.OLD_OPERATOR_RUNNING, message)
    return ConditionState(
        "False", Reason.OBJECT_CONFLICT, f"{what} is {found.why.owner}: delete it, or rename the group"
    )
