"""
The plan of one group.

Pure: Snapshot, agents' answers and owned objects in, Plan out. The order of things is what keeps VIPs where they are:
VRIDs and port stand in status before an object uses them, the ConfigMap is written before the pods are told, and an
object that is not kavip's is left alone, with a condition that says whose it is. What concerns one Service only, a bad
line or a VRID that is not left, never stops the group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.cluster import Node
from kavip.api.group import GroupStatus, KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.api.workload import ConfigMap, DaemonSet, controller_of
from kavip.controller import manifests, news, programmed
from kavip.controller.aside import misplaced, notices, plan_aside
from kavip.controller.difference import merge_patch
from kavip.controller.manifests import Manifest, digest
from kavip.controller.observed import Objects, Observed
from kavip.controller.outcome import (
    Apply,
    Key,
    Kind,
    Options,
    Plan,
    PodAnnotation,
    StatusPatch,
    Target,
    Verdict,
    timestamp,
)
from kavip.controller.owner import Foreign, foreign
from kavip.controller.programmed import Case, Ground
from kavip.controller.roster import Roster, roster_of
from kavip.controller.standing import View, status_of
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.vrrp.groups import check_group
from kavip.vrrp.verbatim import summary

RECHECK: Final = 60.0
"""Seconds after which an object that stood in the way, or a body that was refused, is tried again."""

_LONGEST_NAME: Final = 63  # the name becomes a label's value
_VITAL: Final = ("spec.interface", "spec.vrrpInterface", "spec.interfaceFromIP")
"""Fields without which no configuration is worth writing; other findings cost only what they are about."""

_SEEN: Final = Observed()
_DEFAULTS: Final = Options()


def plan_group(
    snapshot: Snapshot,
    key: str,
    *,
    now: datetime,
    observed: Observed = _SEEN,
    objects: Objects | None = None,
    options: Options = _DEFAULTS,
) -> Plan:
    """What is to be written for the group with *key*, and which of its Services have to be looked at again."""
    group = snapshot.any_group(key)
    if group is None:
        return Plan(also=tuple(Key(Kind.SERVICE, service.key) for service in snapshot.members(key)))
    if group.metadata.deletion_timestamp:
        return Plan()  # what it owns is being collected
    if key in snapshot.outside:
        return plan_aside(group, misplaced(snapshot, group), now=now)
    objects = objects or Objects()
    owned = _Owned.of(group, objects, now)
    roster = roster_of(snapshot, group, reserved=objects.reserved, running=owned.text, options=options)
    bodies = _bodies(group, roster, options) if owned.why is None and not _vital(group) else ()
    refused = _refused(bodies, key, objects, now)
    applies = _applies(group, bodies, owned, objects) if roster.is_settled and not refused else ()
    config_hash = roster.config.hash if roster.config and bodies and not refused else group.status.config_hash
    view = View(
        snapshot=snapshot,
        group=group,
        roster=roster,
        states=observed.of(key),
        pods=tuple(objects.pods.get(key, {}).values()),
        accepted=_accepted(snapshot, group, roster, owned.why, refused),
        config_hash=config_hash,
    )
    return Plan(
        writes=(*applies, *_annotations(view, bodies, applies, owned), *_status(view, now)),
        events=notices(group, view.accepted),
        reserves=roster.reserved,
        left_out=roster.left_out,
        target=_target(roster, config_hash) if config_hash else None,
        requeue_after=RECHECK if owned.why or refused else None,
        also=_misjudged(snapshot, group, roster, observed),
    )


# --- objects ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Owned:
    """The objects of the group's name that are there; *why* they must be left alone, None where they need not be."""

    configmap: ConfigMap | None
    daemonset: DaemonSet | None
    why: tuple[str, Foreign] | None

    @classmethod
    def of(cls, group: KeepalivedGroup, objects: Objects, now: datetime) -> "_Owned":
        key, uid = group.key, group.metadata.uid
        configmap, daemonset = objects.configmaps.get(key), objects.daemonsets.get(key)
        for kind, obj in ((names.CONFIG_MAP, configmap), (names.DAEMON_SET, daemonset)):
            stranger = objects.strangers.get(f"{kind} {key}")
            if obj is not None and (why := foreign(obj, group_uid=uid)):
                return cls(configmap, daemonset, (f"{kind} {key}", why))
            if obj is None and stranger is not None and (now - stranger.since).total_seconds() < RECHECK:
                return cls(configmap, daemonset, (f"{kind} {key}", stranger.why))
        return cls(configmap, daemonset, None)

    @property
    def text(self) -> str:
        """The keepalived.conf of kavip's that is there."""
        return (self.configmap.data or {}).get(names.CONFIG_KEY, "") if self.configmap and not self.why else ""


def _bodies(group: KeepalivedGroup, roster: Roster, options: Options) -> tuple[Manifest, ...]:
    """The objects as they should be, in the order in which they are written: pods need their ConfigMap."""
    if roster.config is None or len(group.metadata.name) > _LONGEST_NAME:
        return ()
    return (
        manifests.config_map(group, text=roster.config.text, config_hash=roster.config.hash),
        manifests.daemon_set(group, image=options.image, port=roster.port),
    )


def _applies(
    group: KeepalivedGroup, bodies: tuple[Manifest, ...], owned: _Owned, objects: Objects
) -> tuple[Apply, ...]:
    result = []
    for body in bodies:
        kind: str = body["kind"]
        seen = owned.configmap if kind == names.CONFIG_MAP else owned.daemonset
        if seen is None or not _is_current(seen, body, objects):
            result.append(Apply(kind, group.key, body, group.metadata.uid, unseen=seen is None))
    return tuple(result)


def _is_current(seen: ConfigMap | DaemonSet, body: Manifest, objects: Objects) -> bool:
    """
    Whether *seen* is what *body* makes of it.

    A ConfigMap comes back as it was written. A DaemonSet comes back with defaults, so its generation is compared with
    the one that the last apply of the same body gave: an edit by somebody else raises it.
    """
    if isinstance(seen, ConfigMap):
        data: dict[str, str] = body["data"]
        return seen.data == data
    applied = objects.applied.get(f"{names.DAEMON_SET} {seen.metadata.key}")
    return (
        applied is not None
        and applied.digest == digest(body)
        and applied.uid == seen.metadata.uid
        and applied.generation >= seen.metadata.generation
    )


def _refused(bodies: tuple[Manifest, ...], key: str, objects: Objects, now: datetime) -> str:
    """What the API server said to one of *bodies* a moment ago; "" where it was not asked."""
    for body in bodies:
        rejected = objects.refused.get(f"{body['kind']} {key}")
        if rejected and rejected.digest == digest(body) and (now - rejected.since).total_seconds() < RECHECK:
            return f"the API server refuses {body['kind']} {key}: {rejected.message}"
    return ""


def _annotations(
    view: View, bodies: tuple[Manifest, ...], applies: tuple[Apply, ...], owned: _Owned
) -> tuple[PodAnnotation, ...]:
    """Tell the pods, once the ConfigMap is as it should be or about to be."""
    if not bodies or not (owned.configmap or applies):
        return ()
    is_written = any(each.kind == names.CONFIG_MAP for each in applies)
    if not is_written and (owned.configmap is None or owned.configmap.data != bodies[0]["data"]):
        return ()  # VRIDs first
    value = digest(bodies[0]["data"])
    return tuple(
        PodAnnotation(pod.metadata.key, value)
        for pod in sorted(view.pods, key=lambda pod: pod.metadata.key)
        if pod.metadata.annotation(names.CONFIG_HASH_ANNOTATION) != value
        and not pod.metadata.deletion_timestamp
        and (owner := controller_of(pod.metadata)) is not None
        and (owner.kind, owner.name) == (names.DAEMON_SET, view.group.metadata.name)
    )


# --- verdicts ---------------------------------------------------------------------------------------------------------
def _vital(group: KeepalivedGroup) -> Refusal | None:
    return next((finding for finding in check_group(group) if finding.field in _VITAL), None)


def _accepted(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    roster: Roster,
    why: tuple[str, Foreign] | None,
    refused: str,
) -> Verdict:
    name, default = group.metadata.name, snapshot.default_group
    if len(name) > _LONGEST_NAME:
        return Verdict("False", Reason.INVALID, f"metadata.name: want at most {_LONGEST_NAME} characters")
    if finding := summary(check_group(group)) or roster.refusal:
        return Verdict("False", Reason.INVALID, finding.message)
    if why is not None:
        return _conflict(*why)
    if refused:
        return Verdict("False", Reason.INVALID, refused)
    if group.is_default and default is not None and default.key != group.key:
        message = f"{default.key} is the default group already: take the label {names.DEFAULT_GROUP_LABEL} off"
        return Verdict("False", Reason.DUPLICATE_DEFAULT, message)
    return Verdict("True", Reason.ACCEPTED, "the group is served")


def _conflict(what: str, why: Foreign) -> Verdict:
    if why.predecessor:
        message = f"{what} was made by keepalived-operator: stop the operator, then delete its DaemonSet and ConfigMap"
        return Verdict("False", Reason.OLD_OPERATOR_RUNNING, message)
    return Verdict("False", Reason.OBJECT_CONFLICT, f"{what} is {why.whose}: delete it, or rename the group")


def _misjudged(snapshot: Snapshot, group: KeepalivedGroup, roster: Roster, observed: Observed) -> tuple[Key, ...]:
    """The Services whose ``Programmed`` says something else than what is so; new ones have a plan of their own."""
    ground = Ground.of(snapshot, group.key, observed)
    problems = dict(roster.model.problems) if roster.model else {}
    problems |= {member.key: member.problem for member in roster.members if member.problem}
    problems |= roster.left_out
    result = []
    for service in snapshot.members(group.key):
        given = service.ingress_addresses if service.is_load_balancer else ()
        case = Case.of(service, given, ground, problems)
        if news.was_judged(service) and news.is_wrong(service, programmed.verdict(case)):
            result.append(Key(Kind.SERVICE, service.key))
    return tuple(result)


# --- status -----------------------------------------------------------------------------------------------------------
def _status(view: View, now: datetime) -> tuple[StatusPatch, ...]:
    new = status_of(view, now=timestamp(now))
    changes = merge_patch(_json(view.group.status), _json(new))
    if not changes:
        return ()
    body = {"metadata": {"resourceVersion": view.group.metadata.resource_version}, "status": changes}
    return (StatusPatch(Kind.GROUP, view.group.key, body),)


def _json(status: GroupStatus) -> Mapping[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(status)
    return body


def _target(roster: Roster, config_hash: str) -> Target:
    hosts = ((node.metadata.name, _host(node)) for node in roster.nodes)
    return Target({name: host for name, host in hosts if host}, roster.port, config_hash)


def _host(node: Node) -> str:
    """Where the agent of *node* listens, as URLs write it; "" where the node does not say."""
    address = next(iter(node.addresses("InternalIP")), None)
    if address is None:
        return ""
    return f"[{address}]" if address.family == 6 else str(address)
