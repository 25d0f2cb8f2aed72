"""
The objects of a group: which of them must be applied, and which pods must be annotated.

A group needs its ConfigMap and its DaemonSet: if one of them belongs to another program, or the API server rejects
it, neither is written. A patch of the pod template that cannot be used stops the DaemonSet alone. The objects for
Prometheus come after them and never stop the group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.agentconfig import DetectionConfig
from kavip.api.group import KeepalivedGroup
from kavip.api.naming import is_interface
from kavip.api.refusal import Refusal
from kavip.api.workload import ConfigMap, Role, RoleBinding
from kavip.names import Reason
from kavip.reconcile.group import manifests
from kavip.reconcile.group.annotations import AnnotationsPlan, plan_annotations
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.group.existing import Existing, find_conflict
from kavip.reconcile.group.manifests import Manifest, digest
from kavip.reconcile.group.podtemplate import patched_daemon_set
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.ownership import GroupObject
from kavip.reconcile.observed.records import RECHECK
from kavip.reconcile.plan import Apply, CalledOffSwitch, ReconcileOptions
from kavip.reconcile.rollout.configmap import PublishedRevisions
from kavip.vrrp.groupspec import check_group
from kavip.vrrp.members import interfaces_of
from kavip.vrrp.packed import is_packed, unpacked

LONGEST_NAME: Final = 63  # the name becomes the value of a label

_OURS: Final = frozenset({names.CONFIG_KEY, names.TAKE_OVER_KEY, names.AGENT_KEY})
_ON_DELETE: Final = {"type": "OnDelete"}
_VITAL: Final = ("spec.interface", "spec.vrrpInterface", "spec.interfaceFromIP")
"""Fields without which there is no configuration. A fault in another field affects only what this field sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsPlan:
    """
    What to write of the objects of one group.

    *has_objects*: ConfigMap and DaemonSet may exist. *is_current*: nothing is left to apply. *problem*: why ConfigMap
    and DaemonSet are not written; *template_problem*: why the DaemonSet alone is not; *monitoring_problem*: the same
    for the objects for Prometheus. *recheck*: after how many seconds such a problem is looked at again. *pods*: those
    to annotate.
    """

    applies: tuple[Apply, ...] = ()
    has_objects: bool = False
    is_current: bool = False
    problem: Refusal | None = None
    template_problem: Refusal | None = None
    monitoring_problem: Refusal | None = None
    recheck: float | None = None
    pods: AnnotationsPlan = AnnotationsPlan()  # noqa: RUF009 - frozen


def plan_objects(
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    desired: Desired,
    published: PublishedRevisions | None,
    called_off: CalledOffSwitch,
    options: ReconcileOptions,
    now: datetime,
) -> ObjectsPlan:
    """
    Compare the objects of *group* with what is *desired*; *published* are the revisions for the ConfigMap.

    The pods that *called_off* concerns are annotated at once.
    """
    if existing.conflict is not None:
        return ObjectsPlan(problem=existing.conflict, recheck=RECHECK)
    if published is None or not is_servable(group):
        return ObjectsPlan()
    bodies = _needed_bodies(group, existing, desired, published, options, detection=desired.detection.kept)
    if not _is_written(existing, bodies[0], observed):
        bodies = _needed_bodies(group, existing, desired, published, options, detection=desired.detection.fresh)
    if problem := _unlisted(group, options):
        return ObjectsPlan(problem=problem)
    config_map, daemon_set = bodies
    patched = patched_daemon_set(group, daemon_set, observed.template, options)
    bodies = (config_map, patched.body) if patched.body else (config_map,)
    problem, recheck = _rejection(bodies, observed, now=now)
    if problem:
        return ObjectsPlan(problem=problem, recheck=recheck)
    monitoring, monitoring_problem, recheck = _monitoring_bodies(group, observed, existing, options, now=now)
    applies = _applies(group, observed, existing, (*bodies, *monitoring)) if desired.is_persisted else ()
    data: Mapping[str, str] = bodies[0]["data"]
    is_written = any(each.kind == names.CONFIG_MAP for each in applies) or _holds(existing.configmap, data)
    pods = plan_annotations(
        group,
        existing.pods if is_written else (),
        data,
        observed,
        model=desired.configuration.model,
        called_off=called_off,
        switch_at=published.switch_at,
        now=now,
        memory=desired.members.memory,
    )
    return ObjectsPlan(
        applies=applies,
        has_objects=True,
        is_current=desired.is_persisted and not applies and not patched.problem,
        template_problem=patched.problem,
        monitoring_problem=monitoring_problem,
        recheck=recheck,
        pods=pods,
    )


def is_servable(group: KeepalivedGroup) -> bool:
    """Whether *group* can have a configuration at all."""
    if len(group.metadata.name) > LONGEST_NAME:
        return False
    return not any(finding.field in _VITAL for finding in check_group(group))


# --- what is desired --------------------------------------------------------------------------------------------------
def _needed_bodies(
    group: KeepalivedGroup,
    existing: Existing,
    desired: Desired,
    published: PublishedRevisions,
    options: ReconcileOptions,
    *,
    detection: DetectionConfig,
) -> tuple[Manifest, ...]:
    """
    ConfigMap and DaemonSet, in the order in which they are written: pods need their ConfigMap.

    While pods of keepalived-operator exist, the DaemonSet replaces no pod by itself
    (:mod:`~kavip.reconcile.takeover.replacement` does).
    """
    takeover = existing.takeover
    return (
        manifests.config_map(
            group,
            published,
            key=names.TAKE_OVER_KEY if takeover.is_active else names.CONFIG_KEY,
            leaders=takeover.leaders,
            tracks=desired.locals,
            detection=detection,
            interfaces=_unused_interfaces(group, desired),
        ),
        manifests.daemon_set(
            group,
            image=options.image,
            port=desired.port,
            allowed_cidrs=options.agent_allowed_cidrs,
            metrics=options.agent_metrics,
            strategy=_ON_DELETE if takeover.is_active else None,
            secrets=published.secrets,
            pull_policy=options.pull_policy,
            pull_secrets=options.pull_secrets,
        ),
    )


def _unused_interfaces(group: KeepalivedGroup, desired: Desired) -> tuple[str, ...]:
    """
    The interfaces that *group* names while no instance does: agents report before the first VIP which they lack.

    With ``interfaceFromIP`` there are none: agents look for that interface in any case.
    """
    model = desired.configuration.model
    if group.spec.interface_from_ip or (model is not None and model.instances):
        return ()
    return tuple(sorted(filter(is_interface, interfaces_of(group.spec))))


def _is_written(existing: Existing, body: Manifest, observed: Observed) -> bool:
    """Whether the ConfigMap is already what *body* says."""
    return existing.configmap is not None and _is_current(existing.configmap, body, observed)


def _monitoring_bodies(
    group: KeepalivedGroup, observed: Observed, existing: Existing, options: ReconcileOptions, *, now: datetime
) -> tuple[tuple[Manifest, ...], Refusal | None, float | None]:
    """The objects for Prometheus, in a cluster with its operator; or why they are not written, and for how long."""
    if not observed.objects.has_pod_monitors:
        return (), None, None
    if conflict := find_conflict(group, observed, manifests.MONITORING, takeover=existing.takeover, now=now):
        return (), conflict, RECHECK
    bodies = manifests.monitoring(group, account=options.prometheus_account)
    rejection, recheck = _rejection(bodies, observed, now=now)
    return (() if rejection else bodies), rejection, recheck


def _rejection(bodies: Sequence[Manifest], observed: Observed, *, now: datetime) -> tuple[Refusal | None, float | None]:
    """Why the API server rejected one of *bodies* a moment ago, and after how many seconds it is tried again."""
    for body in bodies:
        what = f"{body['kind']} {_key_of(body)}"
        rejected = observed.records.rejected.get(what)
        if rejected and (delay := rejected.delay(digest(body), now)):
            return Refusal(Reason.INVALID, f"the API server refuses {what}: {rejected.message}"), delay
    return None, None


def _unlisted(group: KeepalivedGroup, options: ReconcileOptions) -> Refusal | None:
    """A field of *group* that names what the lists of the administrator do not have."""
    spec, images, accounts = group.spec, options.policy_images, options.policy_service_accounts
    if images:
        for name, image in (("image", spec.image), ("agentImage", spec.agent_image)):
            if image not in {"", names.DEFAULT_IMAGE, *options.related_images}:
                message = f"spec.{name}: {image!r}: want an image of the chart value policies.images, or none"
                return Refusal(Reason.INVALID, message)
    if accounts and spec.service_account_name not in {"", "default", *accounts}:
        value, wanted = spec.service_account_name, "an account of the chart value policies.serviceAccounts, or none"
        return Refusal(Reason.INVALID, f"spec.serviceAccountName: {value!r}: want {wanted}")
    return None


# --- what has to be applied -------------------------------------------------------------------------------------------
def _applies(
    group: KeepalivedGroup, observed: Observed, existing: Existing, bodies: Sequence[Manifest]
) -> tuple[Apply, ...]:
    result = []
    for body in bodies:
        kind, key = body["kind"], _key_of(body)
        found = observed.objects.find(kind, key)
        if found is None or not _is_current(found, body, observed):
            adopts = existing.takeover.approved
            result.append(Apply(kind, key, body, group.metadata.uid, unseen=found is None, adopts=adopts))
    return tuple(result)


def _is_current(found: GroupObject, body: Manifest, observed: Observed) -> bool:
    """
    Whether *found* is what applying *body* would give.

    ConfigMaps, Roles and RoleBindings come back as they were written. DaemonSets and PodMonitors come back with
    defaults, so their generation is compared with the one after the last apply of the same body: an edit by another
    program raises it. A new leader therefore applies each of them once, which changes nothing unless they were edited.
    """
    if isinstance(found, ConfigMap):
        binary, wanted = found.binary_data or {}, body.get("binaryData") or {}
        return _holds(found, body["data"]) and binary.get(names.NEXT_KEY) == wanted.get(names.NEXT_KEY)
    if isinstance(found, Role | RoleBinding):
        content: dict[str, Any] = msgspec.to_builtins(found)
        return all(value == body.get(name) for name, value in content.items() if name != "metadata")
    applied = observed.records.applied.get(f"{body['kind']} {found.metadata.key}")
    return (
        applied is not None
        and applied.digest == digest(body)
        and applied.uid == found.metadata.uid
        and applied.generation >= found.metadata.generation
    )


def _holds(configmap: ConfigMap | None, data: Mapping[str, str]) -> bool:
    """
    Whether *configmap* has *data*, and no other key of kavip except the text of keepalived-operator's pods.

    Keys of other programs do not matter to agents. Server-side apply would leave them in any case.
    """
    there = (configmap.data if configmap else None) or {}
    stale = (there.keys() & _OURS) - data.keys() - ({names.CONFIG_KEY} if names.TAKE_OVER_KEY in data else set())
    return not stale and all(_is_same(there.get(key), text) for key, text in data.items())


def _is_same(found: str | None, wanted: str) -> bool:
    """Whether *found* is *wanted*; another version of zlib may have packed the same text into other bytes."""
    if found == wanted:
        return True
    return found is not None and is_packed(found) and is_packed(wanted) and unpacked(found) == unpacked(wanted)


def _key_of(body: Manifest) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
