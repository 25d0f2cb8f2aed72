"""
Decide which addresses a Service has: request, pools and ledger in, addresses with a reason out, or a refusal.

Nothing here changes anything: the webhook asks, the controller carries out, with the same words. How it is decided
stands in :mod:`~kavip.ipam.selection`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam import messages
from kavip.ipam.ledger.claims import can_share
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.waiters import ANY_POOL
from kavip.ipam.ownership import Allocation as Allocation
from kavip.ipam.pools import Pools
from kavip.ipam.record import ASSIGNED_REASONS
from kavip.ipam.request import Request, read_request
from kavip.ipam.selection import Case
from kavip.names import Reason

_OTHER_POOLS: Final = frozenset(
    {Reason.NO_POOL, Reason.POOL_NOT_FOUND, Reason.POOL_SELECTOR_MISMATCH, Reason.ADDRESS_NOT_IN_POOL}
)


def settle(
    service: Service,
    pools: Pools,
    ledger: Ledger,
    *,
    group: str | None = None,
    namespace_labels: Mapping[str, str] | None = None,
    lost: tuple[Address, ...] = (),
) -> Allocation | Refusal:
    """
    :func:`decide` for *service* as it stands, malformed or not: what cannot be read moves no address.

    What somebody took out of its status it gets back where that can be: what kavip's own condition still names, or what
    is known to be *lost*.
    A Refusal means that kavip gives the Service no address and keeps none of its own in status.
    """
    request, findings = read_request(service, group=group)
    return settle_request(request, findings, pools, ledger, namespace_labels=namespace_labels, lost=lost)


def settle_request(
    request: Request,
    findings: Sequence[Refusal],
    pools: Pools,
    ledger: Ledger,
    *,
    namespace_labels: Mapping[str, str] | None = None,
    lost: tuple[Address, ...] = (),
) -> Allocation | Refusal:
    """:func:`settle` for whoever has read the Service already."""
    if not findings:
        if recalled := _recalled(Case.of(request, pools, ledger, namespace_labels), lost):
            again = decide(request._replace(wanted=recalled), pools, ledger, namespace_labels=namespace_labels)
            if isinstance(again, Allocation) and again.refusal is None:
                return again
        return decide(request, pools, ledger, namespace_labels=namespace_labels)
    case = Case.of(request, pools, ledger, namespace_labels)
    if case.is_foreign() and not request.reassign:
        return case.foreign()
    return case.without(findings[0])


def _recalled(case: Case, lost: tuple[Address, ...]) -> tuple[Address, ...]:
    """What kavip assigned to the Service, which has nothing now and asks for nothing by name, and may assign again."""
    request = case.request
    if request.wanted or request.alien or case.held or case.ledger.is_expecting(request.key):
        return ()
    found = lost or (request.record.addresses if request.record.reason in ASSIGNED_REASONS else ())
    return tuple(address for address in found if address.family in request.families and case.fits(address))


def decide(
    request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Mapping[str, str] | None = None
) -> Allocation | Refusal:
    """
    The addresses of *request*; *ledger* must be configured with *pools*, and is not changed.

    A Refusal has a field where what the user wrote is at fault; without one the Service merely has to wait.
    """
    case = Case.of(request, pools, ledger, namespace_labels)
    if case.is_foreign() and not request.reassign:
        return case.foreign()
    return case.decide()


def loss(request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Mapping[str, str] | None = None) -> str:
    """What *request*, which is refused, had and who has it now, for an Event; "" where it had nothing."""
    note, _ = Case.of(request, pools, ledger, namespace_labels).change(())
    return note


def breaks_sharing(
    request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Mapping[str, str] | None = None
) -> Refusal | None:
    """
    Why an edit that *request* comes from would end the sharing of an address; None where it does not.

    For admission only: once the edit is done the older Service keeps the address and the other is moved, whoever of the
    two was edited. Who asks for another address or pool in the same edit, leaves of his own accord.
    """
    case = Case.of(request, pools, ledger, namespace_labels)
    request = case.request
    named = case.named_pool()
    place = None if isinstance(named, Refusal) else named
    for address in case.held:
        fellows = [terms for terms in ledger.holders(address) if terms.key != request.key]
        for fellow in fellows:
            if not can_share(request.terms, fellow) and case.may_stay(address, place):
                return messages.no_longer_shared(address, fellow, request)
    return None


def would_serve(
    request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The pools that would give *request* addresses now if it named them, whatever it asks for today; in order."""
    yield from (pool.name for pool in Case.of(request, pools, ledger, namespace_labels).elsewhere())


def waits_for(
    request: Request,
    outcome: Allocation | Refusal,
    pools: Pools,
    *,
    namespace_labels: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """
    The pools that *outcome* leaves *request* waiting for (:meth:`Ledger.wait`); none where it lacks nothing.

    Where no address that is freed would help, it waits for pools that are other than they are.
    """
    refusal = outcome if isinstance(outcome, Refusal) else outcome.refusal
    held = () if isinstance(outcome, Refusal) else outcome.addresses
    lacks = {address.family for address in held}.issuperset(request.families)
    if isinstance(outcome, Allocation) and refusal is None and (lacks or outcome.reason is Reason.FOREIGN_STATUS):
        return ()
    if refusal is not None and refusal.reason is Reason.INVALID_REQUEST:
        return ()
    if refusal is not None and refusal.reason in _OTHER_POOLS:
        return (ANY_POOL,)
    wanted = [pool.name for address in request.wanted if (pool := pools.pool_of(address))]
    if request.pool or wanted:
        return tuple(sorted({*wanted, *([request.pool] if request.pool else [])}))
    places = [pool.name for address in held if (pool := pools.pool_of(address))]
    if places and not request.reassign:
        return (places[0],)
    return tuple(pool.name for pool in pools.eligible(request, namespace_labels)) or (ANY_POOL,)
