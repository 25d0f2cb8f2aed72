"""
``kavip explain``: why one Service has its addresses or none, on a Snapshot of a cluster or of files.

Pure. What kavip would decide is asked of the controller's own plan; :mod:`kavip.ipam.explain` says how it came about.
Older Services that wait are served first, as the controller would: who asks about the younger one must not be promised
what the older one gets.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from kavip import names
from kavip.admission.chain import PolicyOptions
from kavip.admission.verdict import describe
from kavip.api import conditions
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Condition
from kavip.api.refusal import listed
from kavip.api.service import Service
from kavip.cli.views import simulate
from kavip.cli.views.unmanaged import why_unmanaged
from kavip.errors import BadInput
from kavip.ipam.explain import Explanation, explain
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.plan import ReconcileOptions
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import KINDS, Object, Snapshot, is_candidate

_DEFAULTS: Final = ReconcileOptions()
_TAKEN: Final = "references to them are taken as right, a namespaceSelector without Namespaces as matching"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    Everything there is to say about *service*.

    *unmanaged*: why kavip leaves it alone, "" where it does not. *told*: the condition as it stands, *decided*: as
    kavip would write it now; None where there is none to write, or it cannot be said (*is_decided*). *explanation*:
    None where no pool has a say. *waits*: pools. *refused*: by admission. *steps*: what helps. *notes*: what the reader
    must know besides, such as what could not be read.
    """

    service: Service
    group: str
    unmanaged: str
    told: Condition | None
    decided: Condition | None = None
    explanation: Explanation | None = None
    waits: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_decided: bool = True

    @property
    def status(self) -> int:
        """The exit status: 0 it has all its addresses, 1 it waits or is refused, 2 that cannot be said."""
        return 0 if self.is_served else 1 if self.is_decided else 2

    @property
    def is_served(self) -> bool:
        """Whether the Service has all addresses that it asks for; one that stands in no cluster yet: would get them."""
        if self.refused or not self.is_decided:
            return False
        if self.unmanaged:
            return not self.service.is_load_balancer or bool(self.service.status.load_balancer.ingress)
        is_written = self.told == self.decided or not self.service.metadata.uid
        return is_written and (self.decided is None or self.decided.status == "True")


@dataclass(frozen=True, slots=True)
class Around:
    """
    What is known of a cluster, or of files.

    *objects*, the kinds of which none are to be had (*absent*), what the reader must be told of that (*notes*), and why
    admission would refuse the Service in question (*refused*).
    """

    objects: tuple[Object, ...]
    absent: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def from_files(objects: Collection[Object], key: str, *, ipam: str, homes: Collection[str] = ()) -> Around:
    """*objects* of files, and what admission would say of the Service with *key* unless it stands in a cluster."""
    found = {type(each) for each in objects}
    absent = [KINDS[kind] for kind in simulate.REFERRED if kind not in found]
    notes = (f"the files hold no {', no '.join(absent)}: {_TAKEN}",) if absent else ()
    refused: tuple[str, ...] = ()
    if not any(isinstance(each, Service) and each.key == key and each.metadata.uid for each in objects):
        judged = simulate.admit(objects, homes=homes, manner=PolicyOptions(ipam=ipam)).refused
        mine = (each for each in judged if (each.kind, f"{each.namespace}/{each.name}") == (names.SERVICE, key))
        refused = tuple(describe(refusal) for each in mine for refusal in each.verdict.refusals)
    return Around(tuple(objects), frozenset(absent), notes, refused)


def explain_service(
    around: Around, key: str, *, now: datetime, options: ReconcileOptions = _DEFAULTS, homes: Collection[str] = ()
) -> Report:
    """What there is to say about the Service with *key*. Raises :class:`BadInput` where *around* has none."""
    snapshot = _snapshot(around, homes)
    snapshot.rests.expire(now)
    if key not in snapshot.services:
        meant = likely(snapshot, key)
        raise BadInput("SERVICE", key, f"no such Service; did you mean {meant}?" if meant else "no such Service")
    if names.VIP_POOL in around.absent:
        found = _undecided(snapshot, key)
    else:
        found = _left(snapshot, key) or report(snapshot, key, now, options)
    return replace(found, refused=around.refused, notes=(*found.notes, *around.notes))


def _left(snapshot: Snapshot, key: str) -> Report | None:
    """What was left to a platform that cannot be seen from here: there is no right to read it, or kavip was told so."""
    platform = snapshot.network.spec.external_ip if snapshot.network else None
    found = _undecided(snapshot, key)
    is_seen = platform is not None and platform.auto_assign_cidrs
    if is_seen or found.told is None or found.told.reason != Reason.LEFT_TO_PLATFORM:
        return None
    return replace(found, decided=found.told, is_decided=True)


def _snapshot(around: Around, homes: Collection[str]) -> Snapshot:
    """Everything as decisions see it; what refers to kinds that are absent is taken as right."""
    snapshot = Snapshot(homes)
    for each in around.objects:
        snapshot.put(simulate.seen(simulate.labelled(each), around.absent))
    return snapshot


def likely(snapshot: Snapshot, key: str) -> str:
    """The Service that was perhaps meant by *key*, or ""."""
    name = key.rpartition("/")[2]
    elsewhere = sorted(each for each in snapshot.services if each.rpartition("/")[2] == name)
    return next(iter([*elsewhere, *get_close_matches(key, sorted(snapshot.services), 1)]), "")


def _undecided(snapshot: Snapshot, key: str) -> Report:
    """What the Service with *key* says itself, where no pool can be read."""
    service = snapshot.services[key]
    return Report(
        service=service,
        group=snapshot.group_of(service) or "",
        unmanaged=why_unmanaged(snapshot, service),
        told=conditions.find(service.status.conditions, ConditionType.ADDRESS_ASSIGNED),
        is_decided=False,
    )


def report(snapshot: Snapshot, key: str, now: datetime, options: ReconcileOptions = _DEFAULTS) -> Report:
    """What there is to say about the Service with *key*, which *snapshot* must hold."""
    service = snapshot.services[key]
    _serve_the_older(snapshot, service, now=now, options=options)
    group = snapshot.group_of(service)
    planned = plan_service(snapshot, key, now=now, options=options)
    told, then = (
        conditions.find(each.status.conditions, ConditionType.ADDRESS_ASSIGNED)
        for each in (service, simulate.written(service, planned))
    )
    decided = _same(told, then)
    found = Report(
        service=service,
        group=group or "",
        unmanaged=why_unmanaged(snapshot, service),
        told=told,
        decided=decided,
        explanation=_explanation(snapshot, service, group, decided),
        waits=planned.waits or (),
        notes=tuple(_notes(snapshot, service, group)),
    )
    return replace(found, steps=tuple(_steps(snapshot, found)))


def _serve_the_older(snapshot: Snapshot, subject: Service, *, now: datetime, options: ReconcileOptions) -> None:
    older = sorted(each.metadata.age_key for each in snapshot.services.values() if not each.ingress_addresses)
    for _, key in older:
        service = snapshot.services[key]
        if service.metadata.age_key < subject.metadata.age_key:
            planned = plan_service(snapshot, key, now=now, options=options)
            if planned.claims:
                snapshot.put(simulate.written(service, planned))


def _same(told: Condition | None, decided: Condition | None) -> Condition | None:
    """*told* where *decided* says nothing else: a generation that was counted on is no news to a reader."""
    if told is None or decided is None:
        return decided
    is_same = (told.status, told.reason, told.message) == (decided.status, decided.reason, decided.message)
    return told if is_same else decided


def _explanation(
    snapshot: Snapshot, service: Service, group: str | None, decided: Condition | None
) -> Explanation | None:
    if group is None or not service.is_load_balancer or service.metadata.deletion_timestamp:
        return None
    if decided is not None and decided.reason == Reason.LEFT_TO_PLATFORM:
        return None
    labels = snapshot.namespace_labels(service.metadata.namespace)
    return explain(service, snapshot.parsed_pools, snapshot.ledger, group=group, namespace_labels=labels)


def _notes(snapshot: Snapshot, service: Service, group: str | None) -> Iterator[str]:
    if service.metadata.deletion_timestamp:
        yield "it is being deleted; it holds its addresses until it is gone"
    if group == "":
        yield "there is no KeepalivedGroup that it could use: it names none, and none is labelled as the default"
    elif group and (found := snapshot.any_group(group)):
        accepted = conditions.find(found.status.conditions, ConditionType.ACCEPTED)
        if accepted is not None and accepted.status == "False":
            yield f"KeepalivedGroup {group}: {accepted.reason}: {accepted.message}"
    elif group and any(snapshot.every_group):
        yield f"KeepalivedGroup {group} does not exist: an address alone does not make the Service answer"


def _steps(snapshot: Snapshot, found: Report) -> Iterator[str]:
    """What helps: commands to type, and what comes by itself."""
    service, decided = found.service, found.decided
    annotate = f"kubectl annotate service -n {service.metadata.namespace} {service.metadata.name} --overwrite"
    if found.unmanaged:
        if is_candidate(service):
            groups = _groups_for(snapshot, service)
            yield from (f"{annotate} {names.GROUP_ANNOTATION}={group.key}" for group in groups[:1])
            if len(groups) > 1:
                yield f"or one of the other groups: {listed(group.key for group in groups[1:])}"
            if not groups:
                yield (
                    f"create a KeepalivedGroup that serves namespace {service.metadata.namespace}, labelled "
                    f"{names.DEFAULT_GROUP_LABEL}=true or named by {names.GROUP_ANNOTATION}"
                )
        return
    if decided is None:
        return
    wish = f" {names.ADDRESSES_ANNOTATION}-" if service.metadata.annotation(names.ADDRESSES_ANNOTATION) else ""
    if names.REASSIGN_ANNOTATION in decided.message:
        yield f"{annotate} {names.REASSIGN_ANNOTATION}=true{wish}"
    if decided.reason == Reason.LEFT_TO_PLATFORM and snapshot.parsed_pools.in_force:
        yield f"{annotate} {names.POOL_ANNOTATION}={snapshot.parsed_pools.in_force[0].name}"
    others = found.explanation.others if found.explanation else ()
    if others:
        yield f"{annotate} {names.POOL_ANNOTATION}={others[0]}{wish}"
        if len(others) > 1:
            yield f"other pools that would serve it: {listed(others[1:])}"
    if service.spec.load_balancer_ip and (others or decided.reason == Reason.STRANDED):
        yield "and remove spec.loadBalancerIP, which asks for an address as well"
    if found.waits:
        pools = [f"pool {name}" for name in found.waits if name != "*"]
        yield f"wait: kavip looks again by itself when {' or '.join(pools) or 'a pool'} changes or has room"
    if service.metadata.uid and found.told != decided:
        yield f"kavip has not written that: kubectl get leases -A --field-selector metadata.name={names.LEASE_NAME}"


def _groups_for(snapshot: Snapshot, service: Service) -> list[KeepalivedGroup]:
    return [group for _, group in sorted(snapshot.groups.items()) if snapshot.allows(group, service.metadata.namespace)]
