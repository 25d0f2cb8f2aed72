"""
The outcome of a decision: the addresses that a Service has from now on, with reason and message, or a refusal.

The message describes the state only, so that it stays the same when the decision is repeated; what has changed goes
into a note for an Event.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import Refusal, listed
from kavip.ipam import messages
from kavip.ipam.ownership import Ownership
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.ipam.record import ASSIGNED_REASONS, write_assigned, write_refused, write_stranded
from kavip.names import Reason


class Allocation(NamedTuple):
    """
    The addresses that the Service has from now on, and the pools that they are from.

    *kept*: it holds exactly these already. *refusal*: what it requests besides and does not get; reason and message
    then include it. *note*: what has changed and why, for an Event. *is_displaced*: a node, a group or an older Service
    has taken an address that it had.
    """

    addresses: tuple[Address, ...]
    pools: tuple[str, ...]
    kept: bool
    reason: Reason
    message: str
    refusal: Refusal | None = None
    note: str = ""
    is_displaced: bool = False

    @property
    def is_assigned(self) -> bool:
        """Whether ``AddressAssigned`` is True."""
        return self.reason in ASSIGNED_REASONS or self.reason is Reason.FOREIGN_STATUS


def leave_foreign(ownership: Ownership) -> Allocation:
    """The status stays as another controller wrote it."""
    held = ownership.held
    what = f"{messages.join_addresses(held)} was" if held else "the host name in status was"
    message = (
        f"{what} written by another controller, and kavip leaves it alone{_why_foreign(ownership)}; "
        f'set {names.REASSIGN_ANNOTATION} to "true" to get an address from kavip'
    )
    return Allocation(held, ownership.pool_names(held), True, Reason.FOREIGN_STATUS, message)


def _why_foreign(ownership: Ownership) -> str:
    """Why kavip does not adopt the status, if an address is the cause."""
    for address in ownership.held:
        if flaw := ownership.flaw(address):
            return f", because {address} {flaw}"
        if address.family not in ownership.request.families:
            return f", because the Service has no {FAMILY_NAMES[address.family]}"
    return ""


def assign(ownership: Ownership, stay: tuple[Address, ...], got: tuple[Address, ...] = ()) -> Allocation:
    """The Service has *stay*, which it holds already, and *got*."""
    addresses = (*stay, *got)
    flaws = [f"{address} {flaw}" for address in addresses if (flaw := ownership.flaw(address))]
    pools = ownership.pool_names(addresses)
    if flaws:
        reason, message = Reason.STRANDED, write_stranded(addresses, listed(flaws))
        if not ownership.request.reassign:
            message += f'; set {names.REASSIGN_ANNOTATION} to "true" to move to a legal address'
    else:
        reason, message = Reason.ASSIGNED, write_assigned(addresses, listed(pools))
    if not (flaws and ownership.request.require_all) and (why := _why_not_more(ownership, addresses)):
        message += f"; {why}"
    note, is_displaced = ownership.change(addresses)
    return Allocation(addresses, pools, addresses == ownership.held, reason, message, None, note, is_displaced)


def _why_not_more(ownership: Ownership, addresses: tuple[Address, ...]) -> str:
    """
    Why the pool of *addresses*, which the Service has from now on, does not give it one of another family too.

    "" if it needs none, or if they are in no pool, which the message says already.
    """
    lacks = ownership.missing(addresses)
    pool = next(filter(None, map(ownership.pools.pool_of, addresses)), None)
    if not lacks or pool is None:
        return ""
    return f"no {FAMILY_NAMES[lacks[0]]} address yet: {_why_none_of(lacks[0], pool, ownership, addresses)}"


def _why_none_of(family: int, pool: Pool, ownership: Ownership, addresses: Sequence[Address]) -> str:
    offers, namespace = ownership.ledger.offers, ownership.request.namespace
    if why := ownership.why_closed(pool):
        return f"pool {pool.name} {why}"
    left = offers.quota_left(pool, namespace) if pool.has(family) else None
    if left is not None and left <= sum(offers.costs_quota(each, namespace) for each in addresses):
        return f"namespace {namespace} may hold no more addresses of pool {pool.name} (maxPerNamespace)"
    return f"pool {pool.name} has none to give"


def refuse(ownership: Ownership, refusal: Refusal) -> Allocation | Refusal:
    """The Service does not get what it requests, and keeps what it holds."""
    keep = ownership.keepable()
    if not keep:
        return replace(refusal, message=write_refused(refusal.message))
    kept = assign(ownership, keep)
    if kept.reason is Reason.STRANDED:  # this reason stays, so that the record is read as that of a stranded Service
        return kept._replace(message=f"{kept.message}; {refusal.message}", refusal=refusal)
    return kept._replace(reason=refusal.reason, message=write_refused(refusal.message, keep), refusal=refusal)
