"""
``kavip plan``, ``check`` and ``render``: the decisions of the cluster, without one.

The objects of files are admitted as ``kubectl apply`` would have them, pools before groups before Services; what is
admitted goes through the controller's own plans until nothing changes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api import conditions
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Condition
from kavip.api.pool import VIPPool
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.controller.group import plan_group
from kavip.controller.observed import Objects, Observed
from kavip.controller.outcome import Apply, Options, Plan, StatusPatch
from kavip.controller.plan import plan_service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from kavip.vrrp import groups as vrrp_groups
from kavip.webhook import policy
from kavip.webhook.checks import Options as PolicyOptions
from kavip.webhook.verdict import Verdict, message_of, told

NOW: Final = datetime(1970, 1, 1, tzinfo=UTC)  # the same files give the same bytes
_ROUNDS: Final = 5  # address, VRID, configuration, conditions; one to see that nothing changes
_NEEDS_POOLS: Final = {Reason.POOL_NOT_FOUND, Reason.ADDRESS_NOT_IN_POOL, Reason.NO_POOL, Reason.ADDRESS_NOT_ALLOWED}
_KINDS: Final = (VIPPool, KeepalivedGroup, Service)  # in the order in which they are admitted


@dataclass(frozen=True, slots=True)
class Judged:
    """One object and what admission says of it."""

    kind: str
    namespace: str
    name: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Planned:
    """What would come of the files."""

    judged: tuple[Judged, ...]
    snapshot: Snapshot
    configurations: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[Judged, ...]:
        """What would not come in."""
        return tuple(each for each in self.judged if not each.verdict.allowed)


def admit(objects: Iterable[Object], *, homes: Collection[str] = ()) -> Planned:
    """Judge *objects*, each as if those before it were there; groups count only in the namespaces *homes*."""
    given = list(objects)
    present = {type(each) for each in given}
    notes = tuple(
        f"the files hold no {kind}: references to one were not checked"
        for kind, there in ((names.KEEPALIVED_GROUP, KeepalivedGroup in present), (names.VIP_POOL, VIPPool in present))
        if not there
    )
    around = (each for each in given if not isinstance(each, _KINDS))
    snapshot = Snapshot.from_objects(around, group_namespaces=homes)
    options = PolicyOptions(allow_missing_group="refuse" if KeepalivedGroup in present else "warn")
    judged = []
    for kind in _KINDS:
        for each in (one for one in given if isinstance(one, _KINDS)):
            if type(each) is not kind:
                continue
            subject = _defaulted(each) if isinstance(each, KeepalivedGroup) else each
            verdict = policy.review(Review(Operation.CREATE, subject), snapshot, options=options)
            if VIPPool not in present:
                verdict = _without(verdict, _NEEDS_POOLS)
            metadata = each.metadata
            judged.append(Judged(_name_of(each), metadata.namespace, metadata.name, verdict))
            if verdict.allowed:
                snapshot.put(subject)
    ordered = sorted(judged, key=lambda one: (one.kind, one.namespace, one.name))
    return Planned(tuple(ordered), snapshot, notes=notes)


def plan(objects: Iterable[Object], *, homes: Collection[str] = ()) -> Planned:
    """Admit *objects* and work out everything that follows."""
    admitted = admit(objects, homes=homes)
    snapshot, manifests = admitted.snapshot, {}
    for _ in range(_ROUNDS):
        before = _state(snapshot)
        for service in sorted(snapshot.services.values(), key=lambda each: each.metadata.age_key):
            _write(snapshot, service, plan_service(snapshot, service.key, now=NOW))
        for key in sorted(snapshot.groups):
            planned = plan_group(snapshot, key, now=NOW, observed=Observed(), objects=Objects(), options=Options())
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
    return Planned(admitted.judged, snapshot, texts, bodies, admitted.notes)


def _state(snapshot: Snapshot) -> tuple[dict[str, Service], dict[str, KeepalivedGroup]]:
    return dict(snapshot.services), dict(snapshot.groups)


def lines(planned: Planned) -> list[str]:
    """Each refusal, warning and note as one line."""
    result = [f"warning: {note}" for note in planned.notes]
    for each in planned.judged:
        name = f"{each.kind} {each.namespace}/{each.name}" if each.namespace else f"{each.kind} {each.name}"
        result += [f"{name}: refused: {told(refusal)}" for refusal in each.verdict.refusals]
        result += [f"{name}: warning: {text}" for text in each.verdict.warnings]
    return result


def as_data(planned: Planned) -> dict[str, Any]:
    """What ``kavip plan -o json`` prints; sorted throughout."""
    snapshot = planned.snapshot
    return {
        "refused": [_refused(each) for each in planned.refused],
        "services": [_service(snapshot, key) for key in sorted(snapshot.services) if _is_managed(snapshot, key)],
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
    causes = [{"field": one.field, "reason": one.reason, "message": message_of(one)} for one in each.verdict.refusals]
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
    """Do to *obj* what the API server would do with the status writes of *planned*."""
    for write in planned.writes:
        if isinstance(write, StatusPatch):
            data = msgspec.to_builtins(obj)
            status = dict(write.body["status"])
            old = obj.status.conditions or []
            new = [msgspec.convert(each, Condition) for each in status.pop("conditions", ()) if "$patch" not in each]
            merged = conditions.merged(old, new, now="")
            data["status"] = {**data.get("status", {}), **status, "conditions": msgspec.to_builtins(merged)}
            snapshot.put(msgspec.convert(data, type(obj)))


def _name_of(obj: Object) -> str:
    return type(obj).__name__


def _without(verdict: Verdict, reasons: set[Reason]) -> Verdict:
    kept = tuple(refusal for refusal in verdict.refusals if refusal.reason not in reasons)
    return Verdict(kept, verdict.warnings)
