"""
The status patch of one Service: the entries of ``status.loadBalancer`` and kavip's conditions.

Entries and conditions of other controllers stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.service import Service
from kavip.names import ConditionType, Reason
from kavip.reconcile.plan import ConditionState, KeyKind, ServicePlan, StatusPatch, timestamp

_UNANSWERED: Final = ConditionState(
    "Unknown", Reason.PENDING, "an earlier write to this status was not answered; this one settles whether it was done"
)


def has_addresses(service: Service, addresses: Iterable[Address]) -> bool:
    """Whether status holds *addresses* already, as the API server defaults them; the order does not matter."""
    modes = {entry.ip_mode or names.IP_MODE_VIP for entry in service.status.load_balancer.ingress or ()}
    return set(service.ingress_addresses) == set(addresses) and modes <= {names.IP_MODE_VIP}


def load_balancer(service: Service, addresses: Iterable[Address]) -> dict[str, Any]:
    """``status.loadBalancer`` with *addresses*: entries that stay keep their place, and so do host names."""
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


def condition_entries(
    service: Service, states: Mapping[ConditionType, ConditionState], *, now: datetime
) -> list[dict[str, Any]]:
    """The conditions *states*, as a strategic merge patch sets them."""
    if not states:
        return []
    new = [state.condition(service.metadata, kind) for kind, state in states.items()]
    merged = conditions.merged(service.status.conditions, new, now=timestamp(now))
    return [conditions.wire(entry) for entry in merged if entry.type in states]


def condition_deletions(service: Service, kinds: Iterable[ConditionType]) -> list[dict[str, str]]:
    """The deletion of those of *kinds* that *service* has."""
    stored = [kind for kind in kinds if conditions.find(service.status.conditions, kind)]
    return [{"$patch": "delete", "type": kind} for kind in stored]


def status_patch(service: Service, status: Mapping[str, Any]) -> StatusPatch:
    """The patch that sets *status*, on condition that *service* has not changed."""
    body = {"metadata": {"resourceVersion": service.metadata.resource_version}, "status": status}
    return StatusPatch(KeyKind.SERVICE, service.key, body)


def with_settling_write(plan: ServicePlan, service: Service, *, now: datetime) -> ServicePlan:
    """
    *plan*, which has nothing to write, with a write that settles an earlier one without an answer.

    Until that is settled, the addresses of the earlier write stay reserved (:mod:`kavip.ipam.ledger.holdings`). Reading
    settles nothing: a write that was sent may still be carried out. A write on condition of the same resourceVersion
    does: either it succeeds and the earlier one never will, or it is refused because the earlier one succeeded. The
    next plan takes it back.
    """
    entries = condition_entries(service, {ConditionType.SERVICE_PROGRAMMED: _UNANSWERED}, now=now)
    write = status_patch(service, {"conditions": entries})
    return replace(plan, writes=(write,), requeue_after=0.0, is_rewording=False)


def _entry(address: Address) -> dict[str, str]:
    return {"ip": str(address), "ipMode": names.IP_MODE_VIP}
