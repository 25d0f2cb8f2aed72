"""
Why one Service has its addresses or none, in a cluster or in files: what ``kavip explain`` finds out.

What kavip would decide comes from the controller's own plan; :mod:`kavip.ipam.explain` adds how it is decided. Older
Services that wait are served first, as in the controller: an address that an older Service will get is not promised to
a younger one.
"""

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from kavip import names
from kavip.admission import chain
from kavip.admission.verdict import describe
from kavip.api import conditions
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Condition
from kavip.api.refusal import listed
from kavip.api.service import Service
from kavip.cli.views import simulate
from kavip.cli.views.listing import Listing
from kavip.cli.views.noderanks import NodeRank, ranks_of
from kavip.cli.views.places import AddressPlace, places_of
from kavip.cli.views.scope import check_service
from kavip.ipam.explain import Explanation, explain
from kavip.names import ConditionType, Reason
from kavip.podtemplate.permissions import ALL_PERMITTED
from kavip.reconcile.plan import ReconcileOptions
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import KINDS, Object, Snapshot, is_candidate
from kavip.vrrp import preference
from kavip.vrrp.priorities import STEP_DOWN

_DEFAULTS: Final = ReconcileOptions()
_CLASSES: Final = (None, "", names.LOAD_BALANCER_CLASS)


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that the user can do; a command is printed on one line, to be copied."""

    text: str
    is_command: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """
    The addresses of *service*, and why it has them or none.

    *unmanaged*: why kavip does not manage it, "" if it does. *condition*: ``AddressAssigned`` as it is; *decided*:
    as kavip would write it now, None for no condition. *is_decided*: False if that is unknown. *explanation*: None
    if no pool is involved. *places*: those of its VIPs that are not on the interface of the group. *ranks*: in which
    order the nodes hold its VIPs. *origin*: why *group* serves it. *waits*: the pools for which it waits. *refused*:
    the refusals of admission. *notes*: what else the user must know, such as what could not be read.
    """

    service: Service
    group: str
    origin: str
    unmanaged: str
    condition: Condition | None
    decided: Condition | None = None
    explanation: Explanation | None = None
    places: tuple[AddressPlace, ...] = ()
    ranks: tuple[NodeRank, ...] = ()
    waits: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    is_decided: bool = True

    @property
    def status(self) -> int:
        """The exit status: 0 it has all its addresses, 1 it waits or is refused, 2 unknown."""
        return 0 if self.is_served else 1 if self.is_decided else 2

    @property
    def is_served(self) -> bool:
        """Whether the Service has all addresses that it requests, or would get them if it is new."""
        if self.refused or not self.is_decided:
            return False
        if self.unmanaged:
            return not self.service.is_load_balancer or bool(self.service.status.load_balancer.ingress)
        is_written = self.condition == self.decided or not self.service.metadata.uid
        return is_written and (self.decided is None or self.decided.status == "True")


def listing_of(objects: Collection[Object]) -> Listing:
    """*objects* of files, with a note about the kinds that the files do not hold."""
    found = {KINDS[type(each)] for each in objects}
    absent = [kind for kind in simulate.REFERENCED if kind not in found]
    if not absent:
        return Listing(tuple(objects))
    note = (
        f"the files hold no {', no '.join(absent)}: references to them are not checked; without Namespaces a "
        "namespaceSelector counts as matching"
    )
    return Listing(tuple(objects), absent=frozenset(absent), notes=(note,))


def refusals_of(
    objects: Collection[Object], key: str, *, ipam: str, group_namespaces: Collection[str] = ()
) -> tuple[str, ...]:
    """Why admission would refuse the Service *key* among *objects* of files; none for a Service of a cluster."""
    if any(isinstance(each, Service) and each.key == key and each.metadata.uid for each in objects):
        return ()
    settings = chain.PolicyOptions(ipam=ipam, templates=ALL_PERMITTED)
    refused = simulate.admit(objects, group_namespaces=group_namespaces, settings=settings).refused
    found = (each for each in refused if (each.kind, f"{each.namespace}/{each.name}") == (names.SERVICE, key))
    return tuple(describe(refusal) for each in found for refusal in each.verdict.refusals)


def explain_service(
    listing: Listing,
    key: str,
    *,
    now: datetime,
    options: ReconcileOptions = _DEFAULTS,
    group_namespaces: Collection[str] = (),
    refused: tuple[str, ...] = (),
) -> ServiceReport:
    """
    The report about the Service *key*, which admission *refused*.

    Raises :class:`BadInput` if *listing* does not have the Service.
    """
    snapshot = Snapshot(group_namespaces)
    for each in listing.objects:
        snapshot.put(simulate.visible(simulate.labelled(each), listing.absent))
    snapshot.ledger.cooldown.expire(now)
    check_service(key, snapshot.services)
    if names.VIP_POOL in listing.absent:
        found = _undecided(snapshot, key)
    else:
        found = _left_to_platform(snapshot, key) or report(snapshot, key, now, options)
    return replace(found, refused=refused, notes=(*found.notes, *listing.notes))


def _undecided(snapshot: Snapshot, key: str) -> ServiceReport:
    """The report about the Service *key* from its own status only, if no pool can be read."""
    service = snapshot.services[key]
    return ServiceReport(
        service=service,
        group=snapshot.group_of(service) or "",
        origin=_origin(snapshot, service),
        unmanaged=why_unmanaged(snapshot, service),
        condition=conditions.find(service.status.conditions, ConditionType.ADDRESS_ASSIGNED),
        is_decided=False,
    )


def _left_to_platform(snapshot: Snapshot, key: str) -> ServiceReport | None:
    """
    The report if kavip left the Service to a platform that is not visible here; None otherwise.

    The user may not be allowed to read the platform's configuration, or kavip runs with ``--ipam never``.
    """
    platform = snapshot.network.spec.external_ip if snapshot.network else None
    found = _undecided(snapshot, key)
    is_visible = platform is not None and platform.auto_assign_cidrs
    if is_visible or found.condition is None or found.condition.reason != Reason.LEFT_TO_PLATFORM:
        return None
    return replace(found, decided=found.condition, is_decided=True)


def report(snapshot: Snapshot, key: str, now: datetime, options: ReconcileOptions = _DEFAULTS) -> ServiceReport:
    """The report about the Service *key* in *snapshot*."""
    service = snapshot.services[key]
    _serve_older(snapshot, service, now=now, options=options)
    group = snapshot.group_of(service)
    planned = plan_service(snapshot, key, now=now, options=options)
    condition, then = (
        conditions.find(each.status.conditions, ConditionType.ADDRESS_ASSIGNED)
        for each in (service, simulate.written(service, planned))
    )
    decided = _same(condition, then)
    explanation = _explanation(snapshot, service, group, decided)
    addresses = (*service.virtual_ips, *(each.address for each in (explanation.addresses if explanation else ())))
    places = tuple(places_of(addresses, snapshot)) if group else ()
    found = ServiceReport(
        service=service,
        group=group or "",
        origin=_origin(snapshot, service),
        unmanaged=why_unmanaged(snapshot, service),
        condition=condition,
        decided=decided,
        explanation=explanation,
        places=places,
        ranks=ranks_of(service, served_by, snapshot) if (served_by := snapshot.any_group(group or "")) else (),
        waits=planned.waits or (),
        notes=(*_notes(snapshot, service, group), *(_place_notes(snapshot, group) if places else ())),
    )
    return replace(found, advice=tuple(_advice(snapshot, found)))


def _serve_older(snapshot: Snapshot, subject: Service, *, now: datetime, options: ReconcileOptions) -> None:
    """Assign addresses to the waiting Services that are older than *subject*."""
    older = sorted(each.metadata.age_key for each in snapshot.services.values() if not each.ingress_addresses)
    for _, key in older:
        service = snapshot.services[key]
        if service.metadata.age_key < subject.metadata.age_key:
            planned = plan_service(snapshot, key, now=now, options=options)
            if planned.claims:
                snapshot.put(simulate.written(service, planned))


def _same(condition: Condition | None, decided: Condition | None) -> Condition | None:
    """*condition* if *decided* differs from it only in time and generation; *decided* otherwise."""
    if condition is None or decided is None:
        return decided
    before = (condition.status, condition.reason, condition.message)
    return condition if before == (decided.status, decided.reason, decided.message) else decided


def _explanation(
    snapshot: Snapshot, service: Service, group: str | None, decided: Condition | None
) -> Explanation | None:
    if group is None or not service.is_load_balancer or service.metadata.deletion_timestamp:
        return None
    if decided is not None and decided.reason == Reason.LEFT_TO_PLATFORM:
        return None
    labels = snapshot.namespace_labels(service.metadata.namespace)
    return explain(service, snapshot.parsed_pools, snapshot.ledger, group=group, namespace_labels=labels)


def _origin(snapshot: Snapshot, service: Service) -> str:
    """Why its group serves *service*."""
    if service.declared_group:
        return "by annotation"
    default = snapshot.default_group
    if default is not None and snapshot.group_of(service) == default.key:
        return "default group"
    return "default group when kavip chose it"


def _notes(snapshot: Snapshot, service: Service, group: str | None) -> Iterator[str]:
    if service.metadata.deletion_timestamp:
        yield "it is being deleted; it holds its addresses until it is gone"
    if group == "":
        yield "it has no KeepalivedGroup: it names none, and none is labelled as the default one"
    elif group and (found := snapshot.any_group(group)):
        accepted = conditions.find(found.status.conditions, ConditionType.ACCEPTED)
        if accepted is not None and accepted.status == "False":
            yield f"KeepalivedGroup {group}: {accepted.reason}: {accepted.message}"
        yield from _preference_notes(snapshot, service, found)
    elif group and any(snapshot.every_group):
        yield f"KeepalivedGroup {group} does not exist: no node answers on the Service's addresses without it"


def _place_notes(snapshot: Snapshot, group: str | None) -> Iterator[str]:
    """Why a VIP may not be where its pool says: all nodes change that at one instant."""
    found = snapshot.any_group(group or "")
    programmed = conditions.find(found.status.conditions, ConditionType.PROGRAMMED) if found else None
    if programmed is not None and programmed.status == "False":
        yield (
            f"the VIPs may still be on the interfaces that their pools named before; KeepalivedGroup {group}: "
            f"{programmed.reason}: {programmed.message}"
        )


def _preference_notes(snapshot: Snapshot, service: Service, group: KeepalivedGroup) -> Iterator[str]:
    """What limits the preference of *service* and of its *group*."""
    if note := preference.note_of(service, group, snapshot.group_nodes(group)):
        yield f"{names.PREFERRED_NODES_ANNOTATION} {note}"
    light = [f"{each.name} ({each.weight})" for each in group.spec.checks or () if 0 < (each.weight or 0) < STEP_DOWN]
    if light and (service.preferred_nodes or group.spec.placement.preferred):
        yield (
            f"a preferred node may keep the VIPs while a check of KeepalivedGroup {group.key} fails there: "
            f"{', '.join(light)} has a weight under {STEP_DOWN}"
        )


# --- why a Service is not managed -------------------------------------------------------------------------------------
def why_unmanaged(snapshot: Snapshot, service: Service) -> str:
    """Why kavip does not manage *service* (:meth:`Snapshot.group_of`); "" if it does."""
    if snapshot.group_of(service) is not None:
        return ""
    spec, default = service.spec, snapshot.default_group
    if spec.load_balancer_class not in _CLASSES:
        own = f"that of kavip is {names.LOAD_BALANCER_CLASS}"
        return f"its loadBalancerClass {spec.load_balancer_class} belongs to another controller; {own}"
    if not is_candidate(service):
        externals = f" and the annotation {names.GROUP_ANNOTATION} for its externalIPs" if spec.external_ips else ""
        return f"it is of type {spec.type}; addresses need type LoadBalancer{externals}"
    if default is None:
        return (
            f"it has neither the annotation {names.GROUP_ANNOTATION} nor loadBalancerClass "
            f"{names.LOAD_BALANCER_CLASS}, and no KeepalivedGroup is labelled {names.DEFAULT_GROUP_LABEL}=true"
        )
    namespace = service.metadata.namespace
    if not snapshot.allows(default, namespace):
        return f"the default KeepalivedGroup {default.key} does not allow namespace {namespace} (allowedNamespaces)"
    return f"another controller wrote its status, and it has no annotation {names.GROUP_ANNOTATION}"


# --- advice -----------------------------------------------------------------------------------------------------------
def _advice(snapshot: Snapshot, found: ServiceReport) -> Iterator[Advice]:
    if found.unmanaged:
        if is_candidate(found.service):
            yield from _group_advice(snapshot, found.service)
    elif found.decided is not None:
        yield from _address_advice(snapshot, found, found.decided)


def _group_advice(snapshot: Snapshot, service: Service) -> Iterator[Advice]:
    namespace = service.metadata.namespace
    groups = [group for _, group in sorted(snapshot.groups.items()) if snapshot.allows(group, namespace)]
    if not groups:
        yield Advice(
            f"create a KeepalivedGroup that serves namespace {namespace}, labelled {names.DEFAULT_GROUP_LABEL}=true "
            f"or named by {names.GROUP_ANNOTATION}"
        )
    for group in groups[:1]:
        yield _annotate(service, f"{names.GROUP_ANNOTATION}={group.key}")
    if len(groups) > 1:
        yield Advice(f"or one of the other groups: {listed(group.key for group in groups[1:])}")


def _address_advice(snapshot: Snapshot, found: ServiceReport, decided: Condition) -> Iterator[Advice]:
    service, pools = found.service, snapshot.parsed_pools.in_force
    unset = (f"{names.ADDRESSES_ANNOTATION}-",) if service.metadata.annotation(names.ADDRESSES_ANNOTATION) else ()
    if _needs_reassign(found.explanation, decided):
        yield _annotate(service, f"{names.REASSIGN_ANNOTATION}=true", *unset)
    if decided.reason == Reason.LEFT_TO_PLATFORM and pools:
        yield _annotate(service, f"{names.POOL_ANNOTATION}={pools[0].name}")
    others = found.explanation.others if found.explanation else ()
    if others:
        yield _annotate(service, f"{names.POOL_ANNOTATION}={others[0]}", *unset)
        if len(others) > 1:
            yield Advice(f"other pools that would serve it: {listed(others[1:])}")
    if service.spec.load_balancer_ip and (others or decided.reason == Reason.STRANDED):
        yield Advice("also remove spec.loadBalancerIP, which requests an address as well")
    if found.waits:
        names_of = [f"pool {name}" for name in found.waits if name != "*"]
        yield Advice(f"wait: kavip retries when {' or '.join(names_of) or 'a pool'} changes or has a free address")
    if service.metadata.uid and found.condition != decided:
        leases = f"kubectl get leases -A --field-selector metadata.name={names.LEASE_NAME}"
        yield Advice(f"kavip has not written this yet; see whether a controller leads: {leases}")


def _needs_reassign(explanation: Explanation | None, decided: Condition) -> bool:
    """Whether the Service keeps addresses that the annotation ``reassign`` would replace."""
    if decided.reason == Reason.FOREIGN_STATUS:
        return True
    return decided.reason == Reason.STRANDED and explanation is not None and not explanation.request.reassign


def _annotate(service: Service, *annotations: str) -> Advice:
    metadata = service.metadata
    words = ("kubectl", "annotate", "service", "-n", metadata.namespace, metadata.name, "--overwrite", *annotations)
    return Advice(shlex.join(words), is_command=True)  # names in files may mean something to a shell
