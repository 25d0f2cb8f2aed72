"""
The plan of one Service.

Pure: Snapshot in, Plan out. One status write of a Service carries everything that has changed: address,
``AddressAssigned`` and ``Programmed``; where nothing has changed there is none. Entries and conditions of others stay.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.service import Service
from kavip.ipam.ownership import Ownership
from kavip.ipam.record import FOREIGN_REASONS
from kavip.ipam.request import read_request
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import ConditionState, KeyKind, Notice, ReconcileOptions, ServicePlan, StatusPatch, timestamp
from kavip.reconcile.service import advertised, programmed, removals, throttle, unanswered
from kavip.reconcile.service.advertised import Found
from kavip.reconcile.service.allocation import Addressing, addressing_of, told_of
from kavip.reconcile.service.programmed import Case, Ground
from kavip.snapshot import Snapshot, is_candidate

OURS: Final = (ConditionType.ADDRESS_ASSIGNED, ConditionType.SERVICE_PROGRAMMED, ConditionType.ADVERTISED)
"""The conditions on Services that are kavip's."""

_SEEN: Final = Observed()
_DEFAULTS: Final = ReconcileOptions()


def plan_service(
    snapshot: Snapshot,
    key: str,
    *,
    now: datetime,
    observed: Observed = _SEEN,
    options: ReconcileOptions = _DEFAULTS,
) -> ServicePlan:
    """What is to be written for the Service with *key*, and what it holds from then on."""
    service = snapshot.services.get(key)
    if service is None or service.metadata.deletion_timestamp:
        return ServicePlan(waits=())
    plan = _plan(snapshot, service, now=now, observed=observed, options=options)
    if plan.writes or not snapshot.ledger.is_expecting(key):
        return plan
    return unanswered.settled(plan, service, now=now)


def _plan(
    snapshot: Snapshot,
    service: Service,
    *,
    now: datetime,
    observed: Observed,
    options: ReconcileOptions,
) -> ServicePlan:
    key, group = service.key, snapshot.group_of(service)
    if group is None:
        group = _lost(snapshot, service)
    if group is None:
        return _released(snapshot, service)
    before = observed.records.removals.get(key)
    addressing = (
        addressing_of(snapshot, service, group, options=options, before=before, now=now)
        if service.is_load_balancer
        else None
    )
    given = addressing.addresses if addressing else ()
    ground = Ground.of(snapshot, group, observed.agents)
    record = observed.records.group(group)
    excluded = record.excluded.get(key)
    case = Case.of(service, given, ground, {key: excluded} if excluded else None)
    expected = ground.expected(observed.objects.pods_of(group))
    mastership = Mastership.of(ground.group, expected, observed.agents, group)
    doubt = record.unconfirmed.get(key)
    found = advertised.look(case, mastership)
    told = advertised.news_of(service, found, doubt, mastership), found
    return _difference(service, addressing, programmed.verdict(case), told, now=now, began=observed.agents.asked_from)


# --- the write --------------------------------------------------------------------------------------------------------
def _difference(
    service: Service,
    addressing: Addressing | None,
    verdict: ConditionState,
    masters: tuple[ConditionState | None, Found],
    *,
    now: datetime,
    began: datetime,
) -> ServicePlan:
    fresh: dict[ConditionType, ConditionState] = {}
    events: list[Notice] = []
    if addressing is not None and _differs(service, ConditionType.ADDRESS_ASSIGNED, addressing.verdict):
        fresh[ConditionType.ADDRESS_ASSIGNED] = addressing.verdict
    if addressing is not None:
        events += _notices(service, ConditionType.ADDRESS_ASSIGNED, addressing.verdict, addressing)
    if throttle.is_wrong(service, verdict) or throttle.is_stale(service, verdict, now=now, began=began):
        fresh[ConditionType.SERVICE_PROGRAMMED] = verdict
        events += _notices(service, ConditionType.SERVICE_PROGRAMMED, verdict)
    if held := _held(service, *masters, is_written=bool(fresh)):
        fresh[ConditionType.ADVERTISED] = held
        events += _notices(service, ConditionType.ADVERTISED, held)
    status = _status(service, addressing, fresh, now)
    removed = addressing.removal if addressing else None
    looks = (
        throttle.next_look(service, verdict, now=now, began=began),
        removals.rest(removed, now) if addressing and removed and not addressing.addresses else None,
    )
    return ServicePlan(
        writes=(_patch(service, status),) if status else (),
        events=tuple(events),
        claims=addressing.addresses if addressing and "loadBalancer" in status else None,
        waits=addressing.waits if addressing else None,
        unmet=addressing.verdict.reason if addressing and addressing.verdict.status == "False" else "",
        requeue_after=min((each for each in looks if each is not None), default=None),
        removal=removed,
    )


def _held(service: Service, told: ConditionState | None, found: Found, *, is_written: bool) -> ConditionState | None:
    """
    What is to be written of ``Advertised``; None: nothing.

    That VIPs are new, and run nowhere yet, waits for nothing where there is a write in any case.
    """
    if is_written and not found.is_run and conditions.find(service.status.conditions, ConditionType.ADVERTISED):
        told = found.verdict
    return told if advertised.is_wrong(service, told) else None


def _status(
    service: Service,
    addressing: Addressing | None,
    fresh: Mapping[ConditionType, ConditionState],
    now: datetime,
) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if addressing is not None and not _stands(service, addressing):
        status["loadBalancer"] = _load_balancer(service, addressing.addresses)
    changed: list[dict[str, Any]] = []
    if fresh:
        entries = [verdict.condition(service.metadata, kind) for kind, verdict in fresh.items()]
        merged = conditions.merged(service.status.conditions, entries, now=timestamp(now))
        changed = [conditions.wire(entry) for entry in merged if entry.type in fresh]
    if addressing is None and conditions.find(service.status.conditions, ConditionType.ADDRESS_ASSIGNED):
        changed.append(_deletion(ConditionType.ADDRESS_ASSIGNED))  # it was of type LoadBalancer before
    return {**status, "conditions": changed} if changed else status


def _stands(service: Service, addressing: Addressing) -> bool:
    """Whether status holds these addresses already, as the server defaults them; order is never a reason to write."""
    if addressing.verdict.reason in FOREIGN_REASONS:
        return True
    modes = {entry.ip_mode or names.IP_MODE_VIP for entry in service.status.load_balancer.ingress or ()}
    return set(service.ingress_addresses) == set(addressing.addresses) and modes <= {names.IP_MODE_VIP}


def _load_balancer(service: Service, addresses: Iterable[Address]) -> dict[str, Any]:
    """``status.loadBalancer`` with *addresses*: what stands keeps its place, and so does what is no address."""
    wanted = dict.fromkeys(addresses)
    entries: list[dict[str, str]] = []
    for entry in service.status.load_balancer.ingress or ():
        address = read_address(entry.ip)
        if address is None:
            entries.append({name: text for name, text in (("ip", entry.ip), ("hostname", entry.hostname)) if text})
        elif address in wanted:
            del wanted[address]
            entries.append(_entry(address))
    return {"ingress": [*entries, *map(_entry, wanted)] or None}


def _entry(address: Address) -> dict[str, str]:
    return {"ip": str(address), "ipMode": names.IP_MODE_VIP}


def _patch(service: Service, status: Mapping[str, Any]) -> StatusPatch:
    body = {"metadata": {"resourceVersion": service.metadata.resource_version}, "status": status}
    return StatusPatch(KeyKind.SERVICE, service.key, body)


def _differs(service: Service, kind: ConditionType, verdict: ConditionState) -> bool:
    old = conditions.find(service.status.conditions, kind)
    new = (verdict.status, verdict.reason, verdict.message, service.metadata.generation)
    return old is None or (old.status, old.reason, old.message, old.observed_generation) != new


def _notices(
    service: Service, kind: ConditionType, verdict: ConditionState, addressing: Addressing | None = None
) -> list[Notice]:
    """One Event for a change of reason, and for a change of addresses."""
    old = conditions.find(service.status.conditions, kind)
    change = addressing.change if addressing else ""
    if old is not None and old.reason == verdict.reason and not change:
        return []
    is_fine = verdict.status == "True" and verdict.reason not in (Reason.STRANDED, Reason.FOREIGN_STATUS)
    is_calm = is_fine or verdict.reason in (Reason.PENDING, Reason.LEFT_TO_PLATFORM, Reason.UNKNOWN)
    is_driven = addressing is not None and addressing.is_driven
    text = f"{verdict.message} ({change})" if change else verdict.message
    return [Notice(verdict.reason, text, warning=is_driven or not is_calm)]


# --- no longer ours ---------------------------------------------------------------------------------------------------
def _released(snapshot: Snapshot, service: Service) -> ServicePlan:
    """Take back in one write what kavip wrote; entries of others stay, and a Service that never was ours is let be."""
    present = [kind for kind in OURS if conditions.find(service.status.conditions, kind)]
    if not present:
        return ServicePlan(waits=())
    status: dict[str, Any] = {"conditions": [_deletion(kind) for kind in present]}
    claims = None
    if written := _written(snapshot, service):
        rest = [address for address in service.ingress_addresses if address not in written]
        status["loadBalancer"] = _load_balancer(service, rest)
        claims = tuple(rest)
    return ServicePlan(writes=(_patch(service, status),), claims=claims, waits=())


def _lost(snapshot: Snapshot, service: Service) -> str | None:
    """
    The default group that *service* was in until groups counted there no longer (``groupNamespaces``).

    The pods of that group may still hold its address: until it is gone, the address is given to nobody else.
    """
    if not is_candidate(service) or not service.is_load_balancer or not _written(snapshot, service):
        return None
    namespace = service.metadata.namespace
    found = (key for key, group in sorted(snapshot.outside.items()) if group.is_default)
    return next((key for key in found if snapshot.allows(snapshot.outside[key], namespace)), None)


def _written(snapshot: Snapshot, service: Service) -> tuple[Address, ...]:
    """The addresses in status that kavip wrote, each together with its condition (:mod:`kavip.ipam.record`)."""
    if told_of(service) in FOREIGN_REASONS or not service.ingress_addresses:
        return ()
    request, _ = read_request(service)
    ownership = Ownership.of(request, snapshot.parsed_pools, snapshot.ledger, None)
    return tuple(each for each in service.ingress_addresses if ownership.is_ours(each))


def _deletion(kind: ConditionType) -> dict[str, str]:
    return {"$patch": "delete", "type": kind}
