"""
``kavip plan``, ``check`` and ``render``: the decisions of the cluster, without one.

The objects of files are admitted as ``kubectl apply`` would have them, groups before pools before Services; what is
admitted goes through the controller's own plans until nothing changes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from kavip import names
from kavip.admission import policy
from kavip.admission.chain import DEFAULTS, PolicyOptions
from kavip.admission.verdict import Verdict, describe, message_of
from kavip.api import conditions
from kavip.api.cluster import Namespace, Node
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Condition
from kavip.api.pool import VIPPool
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.cli.sources.overlay import Standing, key_of, laid
from kavip.names import Reason
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.mergepatch import patched
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import Apply, Plan, ReconcileOptions, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import KINDS, Object, Snapshot, is_candidate
from kavip.vrrp import groups as vrrp_groups

W = TypeVar("W", bound=Service | KeepalivedGroup)

NOW: Final = datetime(1970, 1, 1, tzinfo=UTC)  # the same files give the same bytes
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_ROUNDS: Final = 5  # address, VRID, configuration, conditions; one to see that nothing changes
_KINDS: Final = (KeepalivedGroup, VIPPool, Service)  # in the order in which they are admitted
_OF_GROUPS: Final = frozenset({Reason.GROUP_NOT_FOUND})
_OF_THE_DEFAULT: Final = frozenset({Reason.POOL_SELECTOR_MISMATCH, Reason.NO_POOL})  # which pools would serve it
REFERRED: Final = (KeepalivedGroup, VIPPool, Namespace, Node)


@dataclass(frozen=True, slots=True)
class Judged:
    """One object and what admission says of it."""

    kind: str
    namespace: str
    name: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Planned:
    """What would come of the files; *shown*: the Services that they concern, None for all that there are."""

    judged: tuple[Judged, ...]
    snapshot: Snapshot
    configurations: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    shown: frozenset[str] | None = None

    @property
    def services(self) -> tuple[str, ...]:
        """The keys of the Services that the files concern, sorted."""
        return tuple(sorted(key for key in self.snapshot.services if self.shown is None or key in self.shown))

    @property
    def refused(self) -> tuple[Judged, ...]:
        """What would not come in."""
        return tuple(each for each in self.judged if not each.verdict.allowed)


def admit(
    objects: Iterable[Object],
    *,
    homes: Collection[str] = (),
    manner: PolicyOptions = DEFAULTS,
    standing: Standing | None = None,
) -> Planned:
    """
    Judge *objects* in *manner*, each as if those before it were there; groups count only in the namespaces *homes*.

    A Service that has addresses comes from a cluster and was there before all. With *standing*, a whole cluster was,
    and what has a namesake there is judged as an update of it.
    """
    given = list(objects)
    absent = {kind for kind in KINDS if not any(type(each) is kind for each in given)}
    if standing is not None:
        absent = {kind for kind in absent if KINDS[kind] in standing.absent}
    options = replace(manner, ipam="never") if VIPPool in absent else manner
    before = [seen(labelled(each), {KINDS[kind] for kind in absent}) for each in standing.objects] if standing else []
    olds = {key_of(each): each for each in standing.objects if isinstance(each, _KINDS)} if standing else {}
    around = (
        labelled(each)
        for each in given
        if not isinstance(each, _KINDS) or (_has_addresses(each) and key_of(each) not in olds)
    )
    snapshot = Snapshot.from_objects((*before, *around), group_namespaces=homes)
    judged = []
    for each in sorted((one for one in given if isinstance(one, _KINDS)), key=_turn):
        old = olds.get(key_of(each))
        subject = _defaulted(each) if isinstance(each, KeepalivedGroup) and not old else laid(each, old)
        asked = seen(each, {names.KEEPALIVED_GROUP}) if KeepalivedGroup in absent and _is_ours(each) else subject
        operation = Operation.UPDATE if old else Operation.CREATE
        verdict = policy.review(Review(operation, asked, old), snapshot, options=options)
        if KeepalivedGroup in absent:
            verdict = _without(verdict, _OF_GROUPS if asked is subject else _OF_GROUPS | _OF_THE_DEFAULT)
        judged.append(Judged(KINDS[type(each)], each.metadata.namespace, each.metadata.name, verdict))
        if verdict.allowed or each.metadata.uid:  # what stands in a cluster stands, whatever would be said of it today
            snapshot.put(seen(subject, {KINDS[kind] for kind in absent}))
        elif not old:
            snapshot.drop(*key_of(each))
    ordered = sorted(judged, key=lambda one: (one.kind, one.namespace, one.name))
    notes = standing.notes if standing is not None else _notes(given, absent)
    return Planned(tuple(ordered), snapshot, notes=notes)


def _turn(obj: Service | KeepalivedGroup | VIPPool) -> tuple[int, str, str]:
    """Groups before pools before Services, the oldest first, then by name: the order of files means nothing."""
    return _KINDS.index(type(obj)), *obj.metadata.age_key


def _notes(given: Collection[Object], absent: Collection[type[Object]]) -> tuple[str, ...]:
    """What could not be judged, in one line; nothing where nothing is asked."""
    kinds = [KINDS[kind] for kind in REFERRED if kind in absent]
    concerned = (is_candidate(each) if isinstance(each, Service) else isinstance(each, _KINDS) for each in given)
    if not kinds or not any(concerned):
        return ()
    return (f"the files hold no {', no '.join(kinds)}: references to them were not checked",)


def plan(
    objects: Iterable[Object],
    *,
    homes: Collection[str] = (),
    manner: PolicyOptions = DEFAULTS,
    standing: Standing | None = None,
    options: ReconcileOptions | None = None,
) -> Planned:
    """Admit *objects* in *manner*, beside or over what is *standing*, and work out everything that follows."""
    admitted = admit(objects, homes=homes, manner=manner, standing=standing)
    snapshot, manifests = admitted.snapshot, dict[tuple[str, str], Mapping[str, Any]]()
    options, made = options or ReconcileOptions(ipam=manner.ipam), _made(standing)
    for _ in range(_ROUNDS):
        before = _state(snapshot)
        manifests.clear()
        for service in sorted(snapshot.services.values(), key=lambda each: each.metadata.age_key):
            _write(snapshot, service, plan_service(snapshot, service.key, now=NOW, options=options))
        for key in sorted(snapshot.groups):
            planned = plan_group(snapshot, key, now=NOW, observed=Observed(objects=made), options=options)
            _write(snapshot, snapshot.groups[key], planned)
            manifests.update({(each.kind, each.key): each.body for each in planned.writes if isinstance(each, Apply)})
        if before == _state(snapshot):
            break
    texts = {
        key: body["data"][names.CONFIG_KEY]
        for (kind, key), body in sorted(manifests.items())
        if kind == names.CONFIG_MAP
    }
    bodies = tuple(body for _, body in sorted(manifests.items()))
    shown = None if standing is None else _concerned(admitted.judged, snapshot, standing)
    return Planned(admitted.judged, snapshot, texts, bodies, admitted.notes, shown)


def _concerned(judged: Collection[Judged], snapshot: Snapshot, standing: Standing) -> frozenset[str]:
    """The Services of the files, and those of the cluster that get, lose or change addresses by them."""
    named = {f"{each.namespace}/{each.name}" for each in judged if each.kind == names.SERVICE}
    before = {each.key: each.ingress_addresses for each in standing.objects if isinstance(each, Service)}
    moved = {key for key, service in snapshot.services.items() if before.get(key) != service.ingress_addresses}
    return frozenset(named | moved)


def _made(standing: Standing | None) -> OwnedObjects:
    """What groups have, so that running identities stay; a DaemonSet that is looked at is always applied again."""
    found = OwnedObjects()
    for what, each in (standing.written if standing else {}).items():
        kind, key = what.split(" ", 1)
        if kind == names.CONFIG_MAP:
            found.configmaps[key] = msgspec.convert(msgspec.to_builtins(each), ConfigMap)
        else:
            found.daemonsets[key] = msgspec.convert(msgspec.to_builtins(each), DaemonSet)
    return found


def _state(snapshot: Snapshot) -> tuple[dict[str, Service], dict[str, KeepalivedGroup]]:
    return dict(snapshot.services), dict(snapshot.groups)


def lines(planned: Planned, places: Mapping[tuple[str, str], str] = MappingProxyType({})) -> list[str]:
    """Each refusal as one line; where its kind and key are among *places*, the line begins with that."""
    return [
        f"{_subject(each, places)}: refused: {describe(one)}"
        for each in planned.refused
        for one in each.verdict.refusals
    ]


def remarks(planned: Planned, places: Mapping[tuple[str, str], str] = MappingProxyType({})) -> list[str]:
    """Each warning as one line, and what was not judged."""
    found = [f"{_subject(each, places)}: warning: {text}" for each in planned.judged for text in each.verdict.warnings]
    return [*(f"warning: {note}" for note in planned.notes), *found]


def _subject(judged: Judged, places: Mapping[tuple[str, str], str]) -> str:
    key = f"{judged.namespace}/{judged.name}" if judged.namespace else judged.name
    place = places.get((judged.kind, key))
    return f"{place}: {judged.kind} {key}" if place else f"{judged.kind} {key}"


def refusals(planned: Planned) -> dict[str, Any]:
    """What ``kavip check -o json`` prints; sorted."""
    return {"refused": [_refused(each) for each in planned.refused]}


def as_data(planned: Planned) -> dict[str, Any]:
    """What ``kavip plan -o json`` prints; sorted throughout."""
    snapshot = planned.snapshot
    return {
        **refusals(planned),
        "services": [_service(snapshot, key) for key in planned.services if _is_managed(snapshot, key)],
        "groups": [
            {
                "namespace": group.metadata.namespace,
                "name": group.metadata.name,
                "routerIDs": dict(sorted((group.status.router_ids or {}).items())),
                "keepalivedConf": planned.configurations.get(key, ""),
            }
            for key, group in sorted(snapshot.groups.items())
        ],
        "objects": list(planned.objects),
    }


def _refused(each: Judged) -> dict[str, Any]:
    found = sorted(each.verdict.refusals, key=lambda one: (one.field, one.reason, one.message))
    causes = [{"field": one.field, "reason": one.reason, "message": message_of(one)} for one in found]
    warnings = list(each.verdict.warnings)
    return {"kind": each.kind, "namespace": each.namespace, "name": each.name, "causes": causes, "warnings": warnings}


def _service(snapshot: Snapshot, key: str) -> dict[str, Any]:
    service = snapshot.services[key]
    held = [str(address) for address in service.ingress_addresses]
    pools = {pool.name for address in service.ingress_addresses if (pool := snapshot.parsed_pools.pool_of(address))}
    return {
        "namespace": service.metadata.namespace,
        "name": service.metadata.name,
        "group": snapshot.group_of(service) or "",
        "pool": ",".join(sorted(pools)),
        "addresses": held,
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in sorted(service.status.conditions or (), key=lambda one: one.type)
        ],
    }


def _is_managed(snapshot: Snapshot, key: str) -> bool:
    return snapshot.group_of(snapshot.services[key]) is not None


def _defaulted(group: KeepalivedGroup) -> KeepalivedGroup:
    """*group* with the defaults that the mutating webhook writes."""
    data = msgspec.to_builtins(group)
    data["spec"] = {**data.get("spec", {}), **vrrp_groups.defaults(group)}
    return msgspec.convert(data, KeepalivedGroup)


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


def _is_ours(obj: Object) -> bool:
    """Whether a Service is written for kavip."""
    keys = obj.metadata.annotations or ()
    return isinstance(obj, Service) and any(key.startswith(names.ANNOTATION_PREFIXES) for key in keys)


def _has_addresses(obj: Object) -> bool:
    return isinstance(obj, Service) and bool(obj.ingress_addresses)


def labelled(obj: Object) -> Object:
    """*obj* with the label that the API server gives every namespace."""
    if not isinstance(obj, Namespace):
        return obj
    labels = {**(obj.metadata.labels or {}), _NAME_LABEL: obj.metadata.name}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels))


def seen(obj: Object, absent: Collection[str]) -> Object:
    """*obj* as decisions are to see it where there are no objects of the kinds *absent* that it may refer to."""
    match obj:
        case Service() if names.KEEPALIVED_GROUP in absent and is_candidate(obj) and not obj.declared_group:
            spec = msgspec.structs.replace(obj.spec, load_balancer_class=names.LOAD_BALANCER_CLASS)
            return msgspec.structs.replace(obj, spec=spec)  # there may be a default group
        case KeepalivedGroup() if names.NAMESPACE in absent:  # nobody knows whom its selector would let in
            return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, allowed_namespaces=None))
        case VIPPool() if names.NAMESPACE in absent:
            return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, namespace_selector=None))
    return obj


def _without(verdict: Verdict, reasons: Collection[Reason]) -> Verdict:
    kept = tuple(refusal for refusal in verdict.refusals if refusal.reason not in reasons)
    return replace(verdict, refusals=kept)
