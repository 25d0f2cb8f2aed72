"""
The outcome of a decision: the addresses that a Service has from now on, with reason and message, or a refusal.

The message describes the state only, so that it stays the same when the decision is repeated; what has changed goes
into a note for an Event.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import Refusal, annotation_field, listed
from kavip.ipam import messages
from kavip.ipam.ownership import Ownership
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.ipam.record import ASSIGNED_REASONS, write_assigned, write_number, write_refused, write_stranded
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
    if surplus := ownership.surplus():
        return f", because {messages.join_addresses(surplus)} would be too many ({names.COUNT_ANNOTATION})"
    return ""


def assign_enough(ownership: Ownership, stay: tuple[Address, ...], got: tuple[Address, ...] = ()) -> Allocation:
    """:func:`assign` for a Service that lacks addresses but can do without: the message says why it has no more."""
    found = assign(ownership, stay, got)
    if found.reason is Reason.STRANDED and ownership.request.require_all:
        return found
    why = _why_not_more(ownership, found.addresses)
    return found._replace(message=f"{found.message}; {why}") if why else found


def assign(ownership: Ownership, stay: tuple[Address, ...], got: tuple[Address, ...] = ()) -> Allocation:
    """The Service has from now on *stay*, which it holds already, and *got*, which pools that serve it offer."""
    addresses = (*stay, *got)
    flaws = [f"{address} {flaw}" for address in stay if (flaw := ownership.flaw(address))]
    pools = ownership.pool_names(addresses)
    if flaws:
        reason, message = Reason.STRANDED, write_stranded(addresses, listed(flaws))
        if not ownership.request.reassign:
            message += f'; set {names.REASSIGN_ANNOTATION} to "true" to move to a legal address'
    else:
        is_adopted = ownership.is_adopted(addresses)
        reason, message = Reason.ASSIGNED, write_assigned(addresses, listed(pools), adopted=is_adopted)
    message += _number(ownership, addresses)
    note, is_displaced = ownership.change(addresses)
    return Allocation(addresses, pools, addresses == ownership.held, reason, message, None, note, is_displaced)


def _why_not_more(ownership: Ownership, addresses: tuple[Address, ...]) -> str:
    """
    Why the pool of *addresses*, which the Service has from now on, does not give it one of another family too.

    "" if it needs none, or if they are in no pool, which the message says already.
    """
    request, has = ownership.request, [address.family for address in addresses]
    lacks = [family for family in request.families if has.count(family) < request.number]
    pool = next(filter(None, map(ownership.pools.pool_of, addresses)), None) if lacks else None
    if pool is None:
        return ""
    what = f"{has.count(lacks[0])} of {request.number}" if request.number > 1 else "no"
    noun = "addresses" if request.number > 1 else "address"
    return f"{what} {FAMILY_NAMES[lacks[0]]} {noun} yet: {_why_none_of(lacks[0], pool, ownership, addresses)}"


def assign_part(ownership: Ownership, addresses: tuple[Address, ...]) -> Allocation | Refusal:
    """The Service has *addresses*, of each family fewer than it requests, because its pool has no more for it."""
    request, has = ownership.request, Counter(address.family for address in addresses)
    pool = next(filter(None, map(ownership.pools.pool_of, addresses)), None)
    lacks = [family for family in request.families if has[family] < request.number]
    counts = " and ".join(f"{has[family]} of {request.number} {FAMILY_NAMES[family]} addresses" for family in lacks)
    is_quota = pool is not None and _is_at_quota(lacks[0], pool, ownership, addresses)
    why = _why_none_of(lacks[0], pool, ownership, addresses) if pool else "they are in no pool"
    remedy = messages.LARGER_QUOTA if is_quota else "free an address or enlarge the pool"
    message = f"{counts}: {why}; {remedy}, or lower the count"
    reason = Reason.QUOTA_EXCEEDED if is_quota else Reason.POOL_EXHAUSTED
    return refuse(ownership, Refusal(reason, message, annotation_field(names.COUNT_ANNOTATION)), addresses)


def _why_none_of(family: int, pool: Pool, ownership: Ownership, addresses: Sequence[Address]) -> str:
    namespace = ownership.request.namespace
    if why := ownership.why_closed(pool):
        return f"pool {pool.name} {why}"
    if _is_at_quota(family, pool, ownership, addresses):
        return f"namespace {namespace} may hold no more addresses of pool {pool.name} (maxPerNamespace)"
    return f"pool {pool.name} has none to give" if ownership.request.number == 1 else f"pool {pool.name} has no more"


def _is_at_quota(family: int, pool: Pool, ownership: Ownership, addresses: Sequence[Address]) -> bool:
    """Whether *pool* has addresses of *family*, but the namespace may hold none besides *addresses*."""
    offers, namespace = ownership.ledger.offers, ownership.request.namespace
    left = offers.quota_left(pool, namespace) if pool.has(family) else None
    return left is not None and left <= sum(offers.costs_quota(each, namespace) for each in addresses)


def refuse(
    ownership: Ownership, refusal: Refusal, addresses: tuple[Address, ...] | None = None
) -> Allocation | Refusal:
    """The Service does not get what it requests, and has *addresses* instead: those that it may keep."""
    keep = ownership.first_of(ownership.keepable()) if addresses is None else addresses
    if not keep:
        message = write_refused(refusal.message)
        return refusal if message == refusal.message else replace(refusal, message=message)
    kept = assign(ownership, keep)
    if kept.reason is Reason.STRANDED:  # this reason stays, so that the record is read as that of a stranded Service
        return kept._replace(message=f"{kept.message}; {refusal.message}", refusal=refusal)
    message = f"{refusal.message}{_number(ownership, keep)}"
    return kept._replace(reason=refusal.reason, message=write_refused(message, keep), refusal=refusal)


def _number(ownership: Ownership, addresses: Sequence[Address]) -> str:
    """The recorded number of addresses per family, as long as the Service has or requests several."""
    request = ownership.request
    number = request.number if request.most == request.number else request.record.number
    if number > 1 or (number and len(addresses) > len({address.family for address in addresses})):
        return write_number(number)
    return ""
