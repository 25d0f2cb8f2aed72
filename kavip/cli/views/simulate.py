"""
Admission and the controller's plans, run on objects of files: what ``kavip check``, ``plan`` and ``render`` show.

The objects are admitted as ``kubectl apply`` would create them, groups before pools before Services. The admitted ones
go through the controller's own plans until nothing changes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeGuard, TypeVar

import msgspec

from kavip import names
from kavip.admission import chain, policy
from kavip.admission.verdict import Verdict
from kavip.api import conditions
from kavip.api.cluster import Namespace
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Condition
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.cli.views.apply import applied, key_of
from kavip.cli.views.listing import Listing
from kavip.names import Reason
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.mergepatch import patched
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.templates import ConfigTemplates, rendered
from kavip.reconcile.plan import Apply, GroupRecord, Plan, ReconcileOptions, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import KINDS, Object, Snapshot, is_candidate
from kavip.vrrp import groupspec
from kavip.vrrp.configtemplate import AddedLines, RenderRequest, TemplateFault
from kavip.vrrp.packed import in_full

Render = Callable[[RenderRequest], AddedLines | TemplateFault]
W = TypeVar("W", bound=Service | KeepalivedGroup)

Reviewable = KeepalivedGroup | VIPPool | Service

NOW: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of all decisions: the same files give the same output."""
REFERENCED: Final = (names.KEEPALIVED_GROUP, names.VIP_POOL, names.NAMESPACE, names.NODE)
"""The kinds to which reviewed objects refer."""

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_MOST_ROUNDS: Final = 5  # address, VRID, configuration, conditions; and one to see that nothing changes
_REVIEWED: Final = (KeepalivedGroup, VIPPool, Service)  # in the order of admission
_WITHOUT_GROUPS: Final = frozenset({Reason.GROUP_NOT_FOUND})
_WITHOUT_A_DEFAULT: Final = frozenset({Reason.GROUP_NOT_FOUND, Reason.POOL_SELECTOR_MISMATCH, Reason.NO_POOL})


@dataclass(frozen=True, slots=True)
class ObjectReview:
    """One object and the verdict of admission."""

    kind: str
    namespace: str
    name: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Simulation:
    """
    The result of applying the files.

    *concerned*: the Services that they affect, None for all. *excluded*: by group, its Services for which its
    configuration has no room, and why. *template_problems*: by group, why its template of keepalived.conf cannot be
    used.
    """

    reviewed: tuple[ObjectReview, ...]
    snapshot: Snapshot
    configurations: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    concerned: frozenset[str] | None = None
    excluded: Mapping[str, Mapping[str, Refusal]] = field(default_factory=dict)
    template_problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def services(self) -> tuple[str, ...]:
        """The sorted keys of the Services that the files affect."""
        return tuple(sorted(key for key in self.snapshot.services if self.concerned is None or key in self.concerned))

    @property
    def refused(self) -> tuple[ObjectReview, ...]:
        """The objects that admission refuses."""
        return tuple(each for each in self.reviewed if not each.verdict.allowed)

    @property
    def warned(self) -> tuple[ObjectReview, ...]:
        """The objects that admission refuses, or accepts with a warning."""
        return tuple(each for each in self.reviewed if each.verdict.warnings or not each.verdict.allowed)


# --- admission --------------------------------------------------------------------------------------------------------
def admit(
    objects: Iterable[Object],
    *,
    group_namespaces: Collection[str] = (),
    settings: chain.PolicyOptions = chain.DEFAULTS,
    cluster: Listing | None = None,
) -> Simulation:
    """
    Review *objects*, each as if those before it had been created.

    A Service that has addresses was dumped from a cluster and exists before all. With *cluster*, its objects exist
    before all, and an object that exists there is reviewed as an update.
    """
    given = list(objects)
    admission = _Admission(given, group_namespaces=group_namespaces, settings=settings, cluster=cluster)
    reviewed = [admission.review(each) for each in sorted(filter(_is_reviewed, given), key=_turn)]
    ordered = sorted(reviewed, key=lambda one: (one.kind, one.namespace, one.name))
    notes = cluster.notes if cluster is not None else _notes(given, admission.absent)
    return Simulation(tuple(ordered), admission.snapshot, notes=notes)


class _Admission:
    """Reviews objects one after the other; *snapshot* holds the admitted ones, *absent* are the unknown kinds."""

    def __init__(
        self,
        given: Collection[Object],
        *,
        group_namespaces: Collection[str],
        settings: chain.PolicyOptions,
        cluster: Listing | None,
    ) -> None:
        found = {KINDS[type(each)] for each in given}
        self.absent = frozenset(KINDS.values()) - found
        if cluster is not None:
            self.absent &= cluster.absent
        self._settings = replace(settings, ipam="never") if names.VIP_POOL in self.absent else settings
        standing = cluster.objects if cluster is not None else ()
        self._existing = {key_of(each): each for each in standing if _is_reviewed(each)}
        self.snapshot = Snapshot(group_namespaces)
        self._refused_groups: set[str] = set()
        for each in standing:
            self.snapshot.put(self._visible(labelled(each)))
        for each in given:
            if not _is_reviewed(each) or (_has_addresses(each) and key_of(each) not in self._existing):
                self.snapshot.put(labelled(each))

    def review(self, obj: Reviewable) -> ObjectReview:
        """The verdict about *obj*, which is then in the snapshot if it is admitted or exists in a cluster."""
        old = self._existing.get(key_of(obj))
        applied_object = self._applied(obj, old)
        assumed = names.KEEPALIVED_GROUP in self.absent and _is_for_kavip(obj)
        subject = visible(obj, {names.KEEPALIVED_GROUP}) if assumed else applied_object
        operation = Operation.UPDATE if old else Operation.CREATE
        verdict = policy.review(Review(operation, subject, old), self.snapshot, options=self._settings)
        if names.KEEPALIVED_GROUP in self.absent:
            verdict = _without(verdict, _WITHOUT_GROUPS if subject is applied_object else _WITHOUT_A_DEFAULT)
        verdict = _with_cause(verdict, self._refused_groups)
        if verdict.allowed or obj.metadata.uid:  # an object of a cluster exists, whatever its verdict is today
            self.snapshot.put(self._visible(applied_object))
        elif not old:
            self.snapshot.drop(*key_of(obj))
            if isinstance(obj, KeepalivedGroup):
                self._refused_groups.add(obj.key)
        return ObjectReview(KINDS[type(obj)], obj.metadata.namespace, obj.metadata.name, verdict)

    def _applied(self, obj: Reviewable, old: Reviewable | None) -> Reviewable:
        """*obj* as the API server would store it."""
        return _defaulted(obj) if isinstance(obj, KeepalivedGroup) and old is None else applied(obj, old)

    def _visible(self, obj: Object) -> Object:
        return visible(obj, self.absent)


def _is_reviewed(obj: Object) -> TypeGuard[Reviewable]:
    return isinstance(obj, _REVIEWED)


def _turn(obj: Reviewable) -> tuple[int, str, str]:
    """Groups before pools before Services, the oldest first, then by name: the order of files has no effect."""
    return _REVIEWED.index(type(obj)), *obj.metadata.age_key


def _notes(given: Collection[Object], absent: Collection[str]) -> tuple[str, ...]:
    """One line about references that were not checked; none if no object can have one."""
    kinds = [kind for kind in REFERENCED if kind in absent]
    referring = (is_candidate(each) if isinstance(each, Service) else _is_reviewed(each) for each in given)
    if not kinds or not any(referring):
        return ()
    return (f"the files hold no {', no '.join(kinds)}: references to them were not checked",)


def _notes_about_sizes(snapshot: Snapshot) -> tuple[str, ...]:
    """One line if a group of files has no configuration, and so no size, because the files hold no Node."""
    if snapshot.nodes or not snapshot.groups:
        return ()
    groups = "group was" if len(snapshot.groups) == 1 else f"{len(snapshot.groups)} groups was"
    return (f"the files hold no Node: the size of the configuration of the {groups} not computed",)


def _defaulted(group: KeepalivedGroup) -> KeepalivedGroup:
    """*group* with the defaults of the mutating webhook."""
    data = msgspec.to_builtins(group)
    data["spec"] = {**data.get("spec", {}), **groupspec.defaults(group)}
    return msgspec.convert(data, KeepalivedGroup)


def _is_for_kavip(obj: Object) -> bool:
    """Whether a Service has an annotation of kavip's."""
    keys = obj.metadata.annotations or ()
    return isinstance(obj, Service) and any(key.startswith(names.ANNOTATION_PREFIXES) for key in keys)


def _has_addresses(obj: Object) -> bool:
    return isinstance(obj, Service) and bool(obj.ingress_addresses)


def _without(verdict: Verdict, reasons: Collection[Reason]) -> Verdict:
    kept = tuple(refusal for refusal in verdict.refusals if refusal.reason not in reasons)
    return replace(verdict, refusals=kept)


def _with_cause(verdict: Verdict, groups: Collection[str]) -> Verdict:
    """*verdict*; if it lacks one of *groups*, which are refused, its message says so."""
    missing = [each.key for each in verdict.missing if each.kind == names.KEEPALIVED_GROUP and each.key in groups]
    if not missing:
        return verdict
    message = f'group "{missing[0]}" does not exist: it is refused itself, in these files; correct it first'
    return replace(
        verdict,
        refusals=tuple(
            replace(each, message=message) if each.reason is Reason.GROUP_NOT_FOUND else each
            for each in verdict.refusals
        ),
    )


def labelled(obj: Object) -> Object:
    """*obj* with the label that the API server gives every namespace."""
    if not isinstance(obj, Namespace):
        return obj
    labels = {**(obj.metadata.labels or {}), _NAME_LABEL: obj.metadata.name}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels))


def visible(obj: Object, absent: Collection[str]) -> Object:
    """*obj* for decisions without objects of the kinds *absent*: references to those kinds are not checked."""
    match obj:
        case Service() if names.KEEPALIVED_GROUP in absent and is_candidate(obj) and not obj.declared_group:
            spec = msgspec.structs.replace(obj.spec, load_balancer_class=names.LOAD_BALANCER_CLASS)
            return msgspec.structs.replace(obj, spec=spec)  # there may be a default group
        case KeepalivedGroup() if names.NAMESPACE in absent:  # the labels that its selector needs are unknown
            return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, allowed_namespaces=None))
        case VIPPool() if names.NAMESPACE in absent:
            return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, namespace_selector=None))
    return obj


# --- the controller's plans -------------------------------------------------------------------------------------------
def _unrendered(_: RenderRequest) -> TemplateFault:
    return TemplateFault("this command renders no templates")


def plan(
    objects: Iterable[Object],
    *,
    group_namespaces: Collection[str] = (),
    settings: chain.PolicyOptions = chain.DEFAULTS,
    cluster: Listing | None = None,
    options: ReconcileOptions | None = None,
    templates: Iterable[ConfigMap] = (),
    render: Render = _unrendered,
) -> Simulation:
    """
    Admit *objects*, and run the controller's plans on all of them until nothing changes.

    *templates* are ConfigMaps that groups may name; *render* renders them.
    """
    admitted = admit(objects, group_namespaces=group_namespaces, settings=settings, cluster=cluster)
    snapshot, made = admitted.snapshot, _made(cluster)
    options, bodies = (
        options or ReconcileOptions(ipam=settings.ipam, templates=settings.templates),
        dict[tuple[str, str], Mapping[str, Any]](),
    )
    standing = cluster.templates if cluster else ()
    known = ConfigTemplates({each.metadata.key: each for each in (*standing, *templates)})
    problems: dict[str, str] = {}
    observed = Observed(objects=made, templates=known)
    for _ in range(_MOST_ROUNDS):
        before, excluded_before = _state(snapshot), _excluded(observed)
        bodies, problems = _plan_all(snapshot, observed, options, render)
        if before == _state(snapshot) and excluded_before == _excluded(observed):
            break
    configmaps = ((key, body) for (kind, key), body in sorted(bodies.items()) if kind == names.CONFIG_MAP)
    return replace(
        admitted,
        configurations={key: in_full(body["data"][names.CONFIG_KEY]) for key, body in configmaps},
        objects=tuple(body for _, body in sorted(bodies.items())),
        template_problems=problems,
        concerned=None if cluster is None else _concerned(admitted.reviewed, snapshot, cluster),
        excluded=_excluded(observed),
        notes=admitted.notes if cluster else (*admitted.notes, *_notes_about_sizes(snapshot)),
    )


def _plan_all(
    snapshot: Snapshot, observed: Observed, options: ReconcileOptions, render: Render
) -> tuple[dict[tuple[str, str], Mapping[str, Any]], dict[str, str]]:
    """
    Plan each Service and group once, and write their status to *snapshot*; record in *observed* what is excluded.

    Returns the objects that would be applied, and by group why its template cannot be used.
    """
    bodies: dict[tuple[str, str], Mapping[str, Any]] = {}
    problems: dict[str, str] = {}
    for service in sorted(snapshot.services.values(), key=lambda each: each.metadata.age_key):
        _write(snapshot, service, plan_service(snapshot, service.key, now=NOW, observed=observed, options=options))
    for key in sorted(snapshot.groups):
        planned = plan_group(snapshot, key, now=NOW, observed=observed, options=options)
        if planned.rendering is not None:
            observed.templates.rendered[key] = rendered(planned.rendering, render(planned.rendering))
            planned = plan_group(snapshot, key, now=NOW, observed=observed, options=options)
        if planned.template_problem is not None:
            problems[key] = planned.template_problem.message
        if planned.record is not None:  # what it reserves is written at once
            observed.records.groups[key] = GroupRecord(excluded=planned.record.excluded)
        _write(snapshot, snapshot.groups[key], planned)
        bodies.update({(each.kind, each.key): each.body for each in planned.writes if isinstance(each, Apply)})
    return bodies, problems


def _excluded(observed: Observed) -> dict[str, Mapping[str, Refusal]]:
    """By group, its Services for which its configuration has no room, and why."""
    found = {
        key: {name: refusal for name, refusal in record.excluded.items() if not refusal.is_temporary}
        for key, record in sorted(observed.records.groups.items())
    }
    return {key: services for key, services in found.items() if services}


def _concerned(reviewed: Collection[ObjectReview], snapshot: Snapshot, cluster: Listing) -> frozenset[str]:
    """The Services of the files, and those of the cluster whose addresses the files change."""
    named = {f"{each.namespace}/{each.name}" for each in reviewed if each.kind == names.SERVICE}
    before = {each.key: each.ingress_addresses for each in cluster.objects if isinstance(each, Service)}
    changed = {key for key, service in snapshot.services.items() if before.get(key) != service.ingress_addresses}
    return frozenset(named | changed)


def _made(cluster: Listing | None) -> OwnedObjects:
    """The objects of groups in *cluster*: by them identities that run are kept."""
    found = OwnedObjects()
    for what, each in (cluster.written if cluster else {}).items():
        kind, key = what.split(" ", 1)
        if kind == names.CONFIG_MAP:
            found.configmaps[key] = msgspec.convert(msgspec.to_builtins(each), ConfigMap)
        else:
            found.daemonsets[key] = msgspec.convert(msgspec.to_builtins(each), DaemonSet)
    return found


def _state(snapshot: Snapshot) -> tuple[dict[str, Service], dict[str, KeepalivedGroup]]:
    return dict(snapshot.services), dict(snapshot.groups)


def _write(snapshot: Snapshot, obj: Service | KeepalivedGroup, planned: Plan) -> None:
    if any(isinstance(write, StatusPatch) for write in planned.writes):
        snapshot.put(written(obj, planned))


def written(obj: W, planned: Plan) -> W:
    """*obj* after the status writes of *planned*, as the API server would do them."""
    for write in planned.writes:
        if isinstance(write, StatusPatch):
            data = msgspec.to_builtins(obj)
            status = dict(write.body["status"])
            old = obj.status.conditions or []
            gone = {each["type"] for each in status.get("conditions", ()) if "$patch" in each}
            new = [msgspec.convert(each, Condition) for each in status.pop("conditions", ()) if "$patch" not in each]
            merged = [each for each in conditions.merged(old, new, now="") if each.type not in gone]
            new_status = patched(data.get("status", {}), status)
            data["status"] = {**new_status, "conditions": msgspec.to_builtins(merged)}
            obj = msgspec.convert(data, type(obj))
    return obj
