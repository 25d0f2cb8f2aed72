"""
``AddressAssigned``: the addresses that a Service has from now on, as the IPAM decides.

If another controller removes what kavip wrote, kavip writes it again: the first time immediately, because the removal
may be a mistake, and then at growing intervals, because a controller that manages the same Service would not stop.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam import messages
from kavip.ipam.allocate import left_to_platform, loss, settle_request, waits_for
from kavip.ipam.ledger.waiters import ANY_POOL
from kavip.ipam.record import ASSIGNED_REASONS, Record
from kavip.ipam.request import read_request
from kavip.names import ConditionType, Reason
from kavip.reconcile.plan import AddressRemoval, ConditionState, ReconcileOptions, ServicePlan
from kavip.snapshot import Snapshot

FIRST: Final = 1.0
"""Seconds between the first two attempts to write removed addresses again, at least."""
LONGEST: Final = 300.0
"""Seconds between two attempts, at most."""
FORGOTTEN: Final = 600.0
"""Seconds without a removal after which the next one counts as the first."""


@dataclass(frozen=True, slots=True)
class AddressAssignment:
    """
    The *addresses* that a Service has from now on, with the condition that explains them.

    *waits*: the pools that it waits for. *change*: which addresses it had before, and why that changed. *is_displaced*:
    another Service or controller has one of those. *removal*: another controller removed them from the status.
    """

    addresses: tuple[Address, ...]
    state: ConditionState
    waits: tuple[str, ...] = ()
    change: str = ""
    is_displaced: bool = False
    removal: AddressRemoval | None = None


def assign(
    snapshot: Snapshot,
    service: Service,
    group: str,
    *,
    options: ReconcileOptions,
    removal: AddressRemoval | None,
    now: datetime,
    avoided: frozenset[Address] = frozenset(),
) -> AddressAssignment:
    """
    The addresses of *service*; *removal*: the last time that another controller removed them.

    It gives up the addresses *avoided* (:mod:`.conflicts`).
    """
    reason = assigned_reason(service)
    if reason not in ASSIGNED_REASONS and reason != Reason.FOREIGN_STATUS:
        removal = None
    removed = removal.addresses if removal else ()
    found = _decide(snapshot, service, group, options=options, removed=removed, avoided=avoided)
    if not found.addresses or service.ingress_addresses or snapshot.ledger.is_expecting(service.key):
        return found
    if removal is not None and now < removal.until:
        return AddressAssignment((), removed_state(removal), removal=removal)
    if removal is not None or reason in ASSIGNED_REASONS:
        return replace(found, removal=next_removal(removal, found.addresses, now=now))
    return found


def record_waits(snapshot: Snapshot, service: Service, plan: ServicePlan) -> None:
    """Record which pools *service* waits for after *plan*, and that it was reconciled."""
    ledger = snapshot.ledger
    if plan.waits == () and not plan.unmet:
        ledger.waiters.drop(service.key)
    elif plan.waits is not None:
        request, _ = read_request(service, group=snapshot.group_of(service))
        ledger.wait(request, plan.waits, reason=plan.unmet)
    ledger.waiters.answer(service.key)


def with_recorded_group(found: AddressAssignment, service: Service, group: str) -> AddressAssignment:
    """*found*; once a Service that names no group has an address, its condition records *group*, which kavip chose."""
    if service.declared_group or not group or not (found.addresses or found.removal):
        return found
    message = Record(found.state.reason, found.state.message).with_group(group)
    return replace(found, state=replace(found.state, message=message))


def assigned_reason(service: Service) -> str:
    """The reason of the stored ``AddressAssigned``; "" without the condition."""
    stored = conditions.find(service.status.conditions, ConditionType.ADDRESS_ASSIGNED)
    return stored.reason if stored else ""


def _decide(
    snapshot: Snapshot,
    service: Service,
    group: str,
    *,
    options: ReconcileOptions,
    removed: tuple[Address, ...],
    avoided: frozenset[Address],
) -> AddressAssignment:
    labels = snapshot.namespace_labels(service.metadata.namespace)
    pools = snapshot.parsed_pools
    request, findings = read_request(service, group=group)
    if why := left_to_platform(request, pools, snapshot.ledger, snapshot.network, ipam=options.ipam):
        state = ConditionState("Unknown", Reason.LEFT_TO_PLATFORM, why)
        any_pool = (ANY_POOL,) if request.wanted else ()  # a pool may come to contain the requested address
        return AddressAssignment(service.ingress_addresses, state, any_pool)
    outcome = settle_request(
        request, findings, pools, snapshot.ledger, namespace_labels=labels, lost=removed, avoided=avoided
    )
    waits = () if findings else waits_for(request, outcome, pools, namespace_labels=labels)
    if isinstance(outcome, Refusal):
        change = loss(request, pools, snapshot.ledger, namespace_labels=labels)
        return AddressAssignment((), ConditionState("False", outcome.reason, outcome.message), waits, change)
    state = ConditionState("True" if outcome.is_assigned else "False", outcome.reason, outcome.message)
    return AddressAssignment(outcome.addresses, state, waits, outcome.note, outcome.is_displaced)


# --- removed by another controller ------------------------------------------------------------------------------------
def next_removal(before: AddressRemoval | None, addresses: tuple[Address, ...], *, now: datetime) -> AddressRemoval:
    """The removal of *addresses* that is found *now*, after the one *before*."""
    is_first = before is None or (now - before.until).total_seconds() > FORGOTTEN
    times = 1 if is_first or before is None else before.times + 1
    return AddressRemoval(addresses, times, now + timedelta(seconds=min(FIRST * 2.0 ** (times - 1), LONGEST)))


def seconds_until_rewrite(removal: AddressRemoval, now: datetime) -> float:
    """The seconds until the removed addresses are written again."""
    return (removal.until - now).total_seconds()


def removed_state(removal: AddressRemoval) -> ConditionState:
    """``AddressAssigned`` until then."""
    message = (
        f"another controller removes {messages.join_addresses(removal.addresses)}, which kavip assigned; kavip writes "
        "them again every few minutes: exclude this Service from the other controller (MetalLB: --lb-class)"
    )
    return ConditionState("False", Reason.FOREIGN_STATUS, message)
