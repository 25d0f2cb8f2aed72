"""
Decide which addresses a Service has: request, pools and ledger in, addresses with a reason or a refusal out.

Nothing here changes anything: the webhook asks and the controller carries out, with the same messages. How a decision
selects pool and addresses is in :mod:`.selection`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Network
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam import messages, outcome
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.sharing import can_share
from kavip.ipam.ledger.waiters import ANY_POOL
from kavip.ipam.outcome import Allocation as Allocation
from kavip.ipam.ownership import Ownership
from kavip.ipam.pools import Pools
from kavip.ipam.record import ASSIGNED_REASONS
from kavip.ipam.request import Request, read_request
from kavip.ipam.selection import Selection
from kavip.names import Reason

Labels = Mapping[str, str]

IPAM_NEVER: Final = (
    "kavip assigns no addresses here (--ipam never): set spec.externalIPs, or let another controller assign"
)
PLATFORM_ASSIGNS: Final = (
    "the cluster's Network assigns addresses (spec.externalIP.autoAssignCIDRs); "
    f"annotate the Service with {names.POOL_ANNOTATION} to get one from kavip"
)

_OTHER_POOLS_HELP: Final = frozenset(
    {Reason.NO_POOL, Reason.POOL_NOT_FOUND, Reason.POOL_SELECTOR_MISMATCH, Reason.ADDRESS_NOT_IN_POOL}
)


def settle(
    service: Service,
    pools: Pools,
    ledger: Ledger,
    *,
    group: str | None = None,
    namespace_labels: Labels | None = None,
    lost: tuple[Address, ...] = (),
) -> Allocation | Refusal:
    """
    :func:`decide` for *service* as it is stored, valid or not: fields that cannot be read move no address.

    Addresses that another controller removed from status are assigned again if possible: those that the ownership
    record names, or those known to be *lost*. A Refusal means that the Service has no address from kavip.
    """
    request, findings = read_request(service, group=group)
    return settle_request(request, findings, pools, ledger, namespace_labels=namespace_labels, lost=lost)


def settle_request(
    request: Request,
    findings: Sequence[Refusal],
    pools: Pools,
    ledger: Ledger,
    *,
    namespace_labels: Labels | None = None,
    lost: tuple[Address, ...] = (),
    avoided: frozenset[Address] = frozenset(),
) -> Allocation | Refusal:
    """:func:`settle` for a Service that was read already, and that gives up the addresses *avoided*."""
    ownership = Ownership.of(request, pools, ledger, namespace_labels, avoided)
    if findings:
        if ownership.is_foreign() and not request.reassign:
            return outcome.leave_foreign(ownership)
        return outcome.refuse(ownership, findings[0], ownership.keepable())
    if recalled := _recalled(ownership, lost):
        again = decide(request._replace(wanted=recalled), pools, ledger, namespace_labels=namespace_labels)
        if isinstance(again, Allocation) and set(recalled).issubset(again.addresses):
            return again
    return _decide(ownership)


def _recalled(ownership: Ownership, lost: tuple[Address, ...]) -> tuple[Address, ...]:
    """The addresses to assign again to a Service that has none now and requests none by name."""
    request = ownership.request
    if request.wanted or request.alien or ownership.held or ownership.ledger.is_expecting(request.key):
        return ()
    found = lost or (request.record.addresses if request.record.reason in ASSIGNED_REASONS else ())
    return ownership.first_of(tuple(filter(ownership.fits, found)), most=request.number)


def decide(
    request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Labels | None = None
) -> Allocation | Refusal:
    """
    The addresses of *request*. *ledger* must be configured with *pools*, and is not changed.

    A Refusal names a field if the user must change the Service; without a field the Service only has to wait.
    """
    return _decide(Ownership.of(request, pools, ledger, namespace_labels))


def gets_first_addresses(
    request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Labels | None = None
) -> bool:
    """
    Whether *request*, of a Service that has no address and names none, gets all that it lacks.

    :func:`decide` then assigns these addresses, there is nothing to say about them, and no sharing ends. For admission
    of most new Services: this costs a third of the decision with its texts.
    """
    ownership = Ownership.of(request, pools, ledger, namespace_labels)
    has_choice = ownership.held or request.wanted or request.alien
    return not has_choice and Selection(ownership).finds_all()


def _decide(ownership: Ownership) -> Allocation | Refusal:
    if ownership.is_foreign() and not ownership.request.reassign:
        return outcome.leave_foreign(ownership)
    return Selection(ownership).decide()


def left_to_platform(request: Request, pools: Pools, ledger: Ledger, network: Network | None, *, ipam: str) -> str:
    """
    Why kavip assigns nothing to *request*, because OpenShift or ``--ipam never`` says so; "" if kavip assigns.

    A Service that has an address from kavip is never left to the platform.
    """
    if ipam == "always":
        return ""
    rules = network.spec.external_ip if network else None
    if ipam != "never" and (rules is None or not rules.auto_assign_cidrs):
        return ""
    ownership = Ownership.of(request, pools, ledger, None)
    if any(ownership.is_ours(address) for address in ownership.held):
        return ""
    if ipam == "never":
        return IPAM_NEVER
    return "" if pools.are_named_by(request) else PLATFORM_ASSIGNS


def loss(request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Labels | None = None) -> str:
    """What *request*, which is refused, had, and which holder has it now, for an Event; "" if it had nothing."""
    note, _ = Ownership.of(request, pools, ledger, namespace_labels).change(())
    return note


def breaks_sharing(
    request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Labels | None = None
) -> Refusal | None:
    """
    Why the edit that *request* comes from would end the sharing of an address; None if it does not.

    For admission only: once the edit is stored, the older Service keeps the address and the other one moves, whichever
    of the two was edited. An edit that requests another address or pool may end the sharing.
    """
    selection = Selection(Ownership.of(request, pools, ledger, namespace_labels))
    request, chosen = selection.request, selection.chosen_pool()
    pool = None if isinstance(chosen, Refusal) else chosen
    for address in selection.ownership.held:
        others = [terms for terms in ledger.claims.holders(address) if terms.key != request.key]
        for other in others:
            if not can_share(request.terms, other) and selection.may_stay(address, pool):
                return messages.no_longer_shared(address, other, request)
    return None


def would_serve(
    request: Request, pools: Pools, ledger: Ledger, *, namespace_labels: Labels | None = None
) -> Iterator[str]:
    """The pools that would serve *request* now if it named them, whatever it requests today; in order."""
    selection = Selection(Ownership.of(request, pools, ledger, namespace_labels))
    yield from (pool.name for pool in selection.alternatives())


def waits_for(
    request: Request,
    decided: Allocation | Refusal,
    pools: Pools,
    *,
    namespace_labels: Labels | None = None,
) -> tuple[str, ...]:
    """
    The pools that *request* waits for after *decided* (:meth:`Ledger.wait`); none if it lacks nothing.

    If no freed address would help, it waits for a change of the pools.
    """
    refusal = decided if isinstance(decided, Refusal) else decided.refusal
    held = () if isinstance(decided, Refusal) else decided.addresses
    has_all = not request.lacking(held)
    if isinstance(decided, Allocation) and refusal is None and (has_all or decided.reason is Reason.FOREIGN_STATUS):
        return ()
    if refusal is not None and refusal.reason is Reason.INVALID_REQUEST:
        return ()
    if refusal is not None and refusal.reason in _OTHER_POOLS_HELP:
        return (ANY_POOL,)
    wanted = [pool.name for address in request.wanted if (pool := pools.pool_of(address))]
    if request.pool or wanted:
        return tuple(sorted({*wanted, *([request.pool] if request.pool else [])}))
    current = next((pool for address in held if (pool := pools.pool_of(address))), None)
    if current is not None and not request.reassign:
        return (ANY_POOL,) if pools.why_closed(current, request, namespace_labels) else (current.name,)
    return tuple(pool.name for pool in pools.eligible(request, namespace_labels)) or (ANY_POOL,)
