"""
What becomes of a Service's addresses: what the IPAM decides, and whether it is to be written now.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.allocate import left_to_platform, loss, settle_request, waits_for
from kavip.ipam.ledger.waiters import ANY_POOL
from kavip.ipam.record import ASSIGNED_REASONS
from kavip.ipam.request import read_request
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.plan import AddressRemoval, ConditionState, ReconcileOptions
from kavip.reconcile.service import removals
from kavip.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Addressing:
    """
    What becomes of a Service's addresses, and the pools that it *waits* for.

    *change*: which it had before, where that is not the same; *is_driven*: somebody else has one of those. *removal*:
    somebody has taken them out of the status.
    """

    addresses: tuple[Address, ...]
    verdict: ConditionState
    waits: tuple[str, ...] = ()
    change: str = ""
    is_driven: bool = False
    removal: AddressRemoval | None = None


def addressing_of(
    snapshot: Snapshot,
    service: Service,
    group: str,
    *,
    options: ReconcileOptions,
    before: AddressRemoval | None,
    now: datetime,
) -> Addressing:
    """What becomes of the addresses, with what is to be remembered where somebody has removed them *before*."""
    told = told_of(service)
    if told not in ASSIGNED_REASONS and told != Reason.FOREIGN_STATUS:
        before = None
    found = _decided(snapshot, service, group, options=options, lost=before.addresses if before else ())
    if not found.addresses or service.ingress_addresses or snapshot.ledger.is_expecting(service.key):
        return found
    if before is not None and now < before.until:
        return Addressing((), removals.verdict(before), removal=before)
    if before is not None or told in ASSIGNED_REASONS:
        return replace(found, removal=removals.removal(before, found.addresses, now=now))
    return found


def _decided(
    snapshot: Snapshot, service: Service, group: str, *, options: ReconcileOptions, lost: tuple[Address, ...]
) -> Addressing:
    labels = snapshot.namespace_labels(service.metadata.namespace)
    parsed = snapshot.parsed_pools
    request, findings = read_request(service, group=group)
    if why := left_to_platform(request, parsed, snapshot.ledger, snapshot.network, ipam=options.ipam):
        verdict = ConditionState(
            "Unknown", Reason.LEFT_TO_PLATFORM, why
        )  # unless a pool gets the address that it asks for
        return Addressing(service.ingress_addresses, verdict, (ANY_POOL,) if request.wanted else ())
    outcome = settle_request(request, findings, parsed, snapshot.ledger, namespace_labels=labels, lost=lost)
    waits = () if findings else waits_for(request, outcome, parsed, namespace_labels=labels)
    if isinstance(outcome, Refusal):
        change = loss(request, parsed, snapshot.ledger, namespace_labels=labels)
        return Addressing((), ConditionState("False", outcome.reason, outcome.message), waits, change)
    verdict = ConditionState("True" if outcome.is_assigned else "False", outcome.reason, outcome.message)
    return Addressing(outcome.addresses, verdict, waits, outcome.note, outcome.is_displaced)


def told_of(service: Service) -> str:
    """The reason of our own ``AddressAssigned``; "" where kavip has not written it."""
    found = conditions.find(service.status.conditions, ConditionType.ADDRESS_ASSIGNED)
    return found.reason if found else ""
