"""
The plan of one Service: the only plan that changes ``Service.status``.

1. Which group serves it? None: take back what kavip wrote.
2. Which addresses does it get, and which does it give up? (:mod:`.allocation`, :mod:`.conflicts`, ``AddressAssigned``)
3. Do the nodes run its VIPs? (:mod:`.programmed`)
4. Which node is master of each VIP? (:mod:`.advertised`)
5. Which of these conditions are written now? (:mod:`.throttle`)
6. One status patch carries all that differs; without a difference there is none. (:mod:`.status`)

A Service is planned after a watch event (:mod:`kavip.reconcile.enqueue`), after answers of agents
(:mod:`kavip.reconcile.group.outdated`), and after ``requeue_after``. :mod:`kavip.controller.writer` sends the patch.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.service import Service
from kavip.ipam.ownership import Ownership
from kavip.ipam.record import FOREIGN_REASONS
from kavip.ipam.request import read_request
from kavip.names import ConditionType, Reason
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import ConditionState, GroupRecord, Key, KeyKind, Notice, ReconcileOptions, ServicePlan
from kavip.reconcile.service import allocation, throttle
from kavip.reconcile.service.advertised import AdvertisedState, advertised_state
from kavip.reconcile.service.allocation import AddressAssignment, assigned_reason
from kavip.reconcile.service.conflicts import addresses_given_up, with_announced
from kavip.reconcile.service.programmed import programmed_state
from kavip.reconcile.service.status import (
    condition_deletions,
    condition_entries,
    has_addresses,
    load_balancer,
    status_patch,
    with_settling_write,
)
from kavip.reconcile.service.vips import ServiceVIPs, ServingGroup
from kavip.snapshot import Snapshot, is_candidate

CONDITIONS: Final = (ConditionType.ADDRESS_ASSIGNED, ConditionType.SERVICE_PROGRAMMED, ConditionType.ADVERTISED)
"""kavip's conditions on Services."""

_NOTHING_OBSERVED: Final = Observed()
_DEFAULTS: Final = ReconcileOptions()


def plan_service(
    snapshot: Snapshot,
    key: str,
    *,
    now: datetime,
    observed: Observed = _NOTHING_OBSERVED,
    options: ReconcileOptions = _DEFAULTS,
) -> ServicePlan:
    """The plan of the Service with *key*."""
    service = snapshot.services.get(key)
    if service is None or service.metadata.deletion_timestamp:
        return ServicePlan(waits=())
    group = snapshot.group_of(service)
    if group is None:
        group = _former_default_group(snapshot, service)
    if group is None:
        plan = _release(snapshot, service)
    else:
        plan = _serve(snapshot, service, group, now=now, observed=observed, options=options)
    if not snapshot.ledger.is_expecting(key):
        return plan
    return replace(plan, is_rewording=False) if plan.writes else with_settling_write(plan, service, now=now)


@dataclass(frozen=True, slots=True)
class _Desired:
    """
    What the status of a Service should say.

    *assignment*: None unless it is of type LoadBalancer. *confirmed*: ``Advertised`` as it should be stored now; None:
    the stored one stays.
    """

    assignment: AddressAssignment | None
    programmed: ConditionState
    advertised: AdvertisedState
    confirmed: ConditionState | None


def _serve(
    snapshot: Snapshot,
    service: Service,
    group: str,
    *,
    now: datetime,
    observed: Observed,
    options: ReconcileOptions,
) -> ServicePlan:
    """The plan of a Service that *group* serves, or would serve if there were such a group."""
    key, record = service.key, observed.records.group(group)
    removal = observed.records.removals.get(key)
    serving = ServingGroup.of(snapshot, group, observed)
    mastership = serving.mastership(observed)
    assignment, given_up = None, addresses_given_up(snapshot, service, group, mastership)
    if service.is_load_balancer:
        found = allocation.assign(
            snapshot, service, group, options=options, removal=removal, now=now, avoided=given_up.now
        )
        assignment = allocation.with_recorded_group(found, service, group)
    problems = {key: record.excluded[key]} if key in record.excluded else None
    vips = ServiceVIPs.of(service, assignment.addresses if assignment else (), serving, problems=problems)
    advertised = advertised_state(vips, mastership)
    held = throttle.unconfirmed_of(service, advertised, record.unconfirmed.get(key), at=mastership.at)
    confirmed = throttle.confirmed_state(service, advertised, held, mastership)
    desired = _Desired(assignment, programmed_state(vips), advertised, confirmed)
    plan = _difference(service, desired, record, now=now, probed_from=observed.agents.probed_from)
    pools = tuple(Key(KeyKind.POOL, name) for name in given_up.pools)
    if not pools:
        return plan
    return replace(plan, withdrawn=given_up.withdrawn, also=(*plan.also, *pools), is_rewording=False)


# --- the difference ---------------------------------------------------------------------------------------------------
def _difference(
    service: Service, desired: _Desired, record: GroupRecord, *, now: datetime, probed_from: datetime
) -> ServicePlan:
    """The plan that makes the status of *service* what is *desired*."""
    stored = throttle.stored_condition(service, ConditionType.ADVERTISED)
    assignment, programmed = _recorded(service, desired, stored.reason if stored else ""), desired.programmed
    states = _changed_assignment(service, assignment)
    if throttle.is_programmed_due(service, programmed, record, now=now, probed_from=probed_from):
        states[ConditionType.SERVICE_PROGRAMMED] = programmed
    addresses = _changed_addresses(service, assignment)
    deletions = [] if assignment else condition_deletions(service, (ConditionType.ADDRESS_ASSIGNED,))
    is_urgent = bool(addresses or deletions) or (bool(states) and not throttle.is_rewording(service, states))
    if advertised := _due_advertised(service, desired, is_urgent=is_urgent):
        assignment = _recorded(service, desired, advertised.reason)
        states.pop(ConditionType.ADDRESS_ASSIGNED, None)
        states |= {**_changed_assignment(service, assignment), ConditionType.ADVERTISED: advertised}
    is_rewording = not (addresses or deletions) and bool(states) and throttle.is_rewording(service, states)
    requeue = throttle.next_count(service, programmed, now=now, probed_from=probed_from)
    if is_rewording and _is_undecided(service, desired):
        states, requeue = {}, throttle.COUNT_AFTER  # one write for all reworded conditions
    entries = [*condition_entries(service, states, now=now), *deletions]
    status = {**addresses, **({"conditions": entries} if entries else {})}
    return ServicePlan(
        writes=(status_patch(service, status),) if status else (),
        events=_events(service, states, assignment),
        claims=assignment.addresses if assignment and addresses else None,
        waits=assignment.waits if assignment else None,
        unmet=assignment.state.reason if assignment and assignment.state.status == "False" else "",
        requeue_after=_next_requeue(requeue, assignment, now),
        removal=assignment.removal if assignment else None,
        is_rewording=is_rewording,
    )


def _recorded(service: Service, desired: _Desired, advertised: str) -> AddressAssignment | None:
    """The assignment with what its condition records while ``Advertised`` has the reason *advertised*."""
    return with_announced(desired.assignment, service, advertised=advertised) if desired.assignment else None


def _changed_assignment(service: Service, assignment: AddressAssignment | None) -> dict[ConditionType, ConditionState]:
    """``AddressAssigned`` if it changes."""
    stored = throttle.stored_condition(service, ConditionType.ADDRESS_ASSIGNED)
    is_changed = assignment and assignment.state.change(stored, service.metadata)
    return {ConditionType.ADDRESS_ASSIGNED: assignment.state} if assignment and is_changed else {}


def _changed_addresses(service: Service, assignment: AddressAssignment | None) -> dict[str, Any]:
    """``status.loadBalancer`` if it changes; another controller's stays."""
    if assignment is None or assignment.state.reason in FOREIGN_REASONS:
        return {}
    if has_addresses(service, assignment.addresses):
        return {}
    return {"loadBalancer": load_balancer(service, assignment.addresses)}


def _due_advertised(service: Service, desired: _Desired, *, is_urgent: bool) -> ConditionState | None:
    """
    ``Advertised`` if it is written now.

    That no node runs new VIPs yet is not confirmed first if there is an urgent write anyway.
    """
    state = desired.confirmed
    if is_urgent and not desired.advertised.is_run and throttle.stored_condition(service, ConditionType.ADVERTISED):
        state = desired.advertised.state
    return state if throttle.advertised_change(service, state) else None


def _is_undecided(service: Service, desired: _Desired) -> bool:
    """Whether the stored ``Advertised`` may change soon: the agents have not all answered."""
    return desired.confirmed is None and throttle.stored_condition(service, ConditionType.ADVERTISED) is not None


def _next_requeue(count: float | None, assignment: AddressAssignment | None, now: datetime) -> float | None:
    """After how many seconds: for the next *count* of nodes, or to write what another controller removed."""
    if assignment is None or assignment.removal is None or assignment.addresses:
        return count
    rewrite = allocation.seconds_until_rewrite(assignment.removal, now)
    return rewrite if count is None else min(count, rewrite)


# --- Events -----------------------------------------------------------------------------------------------------------
def _events(
    service: Service, states: dict[ConditionType, ConditionState], assignment: AddressAssignment | None
) -> tuple[Notice, ...]:
    """One Event for each changed reason, and for changed addresses."""
    if not states and not (assignment and assignment.change):
        return ()
    shown = {ConditionType.ADDRESS_ASSIGNED: assignment.state, **states} if assignment else states
    return tuple(
        _event(state, assignment if kind is ConditionType.ADDRESS_ASSIGNED else None)
        for kind, state in shown.items()
        if _has_news(service, kind, state, assignment)
    )


def _has_news(
    service: Service, kind: ConditionType, state: ConditionState, assignment: AddressAssignment | None
) -> bool:
    stored = conditions.find(service.status.conditions, kind)
    is_moved = kind is ConditionType.ADDRESS_ASSIGNED and assignment is not None and bool(assignment.change)
    return is_moved or stored is None or stored.reason != state.reason


def _event(state: ConditionState, assignment: AddressAssignment | None) -> Notice:
    is_fine = state.status == "True" and state.reason not in (Reason.STRANDED, Reason.FOREIGN_STATUS)
    is_calm = is_fine or state.reason in (Reason.PENDING, Reason.LEFT_TO_PLATFORM, Reason.UNKNOWN)
    is_displaced = assignment is not None and assignment.is_displaced
    change = assignment.change if assignment else ""
    message = f"{state.message} ({change})" if change else state.message
    return Notice(state.reason, message, warning=is_displaced or not is_calm)


# --- released ---------------------------------------------------------------------------------------------------------
def _release(snapshot: Snapshot, service: Service) -> ServicePlan:
    """Take back in one write what kavip wrote; a Service that kavip never served is not written."""
    deletions = condition_deletions(service, CONDITIONS)
    if not deletions:
        return ServicePlan(waits=())
    status: dict[str, Any] = {"conditions": deletions}
    claims = None
    if assigned := _assigned_addresses(snapshot, service):
        claims = tuple(address for address in service.ingress_addresses if address not in assigned)
        status["loadBalancer"] = load_balancer(service, claims)
    return ServicePlan(writes=(status_patch(service, status),), claims=claims, waits=())


def _former_default_group(snapshot: Snapshot, service: Service) -> str | None:
    """
    The default group of *service* before the setting ``groupNamespaces`` excluded that group.

    The pods of that group may still hold its address. Until the group is deleted, the address stays assigned.
    """
    if not is_candidate(service) or not service.is_load_balancer or not _assigned_addresses(snapshot, service):
        return None
    namespace = service.metadata.namespace
    found = (key for key, group in sorted(snapshot.outside.items()) if group.is_default)
    return next((key for key in found if snapshot.allows(snapshot.outside[key], namespace)), None)


def _assigned_addresses(snapshot: Snapshot, service: Service) -> tuple[Address, ...]:
    """The addresses in status that kavip assigned."""
    if assigned_reason(service) in FOREIGN_REASONS or not service.ingress_addresses:
        return ()
    request, _ = read_request(service)
    ownership = Ownership.of(request, snapshot.parsed_pools, snapshot.ledger, None)
    return tuple(each for each in service.ingress_addresses if ownership.is_ours(each))
