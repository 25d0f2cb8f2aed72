"""
The addresses that a Service asks for: the controller's own decision, and what admission makes of it.

What the user names and cannot have is refused. What is merely not there yet, a Service waits for, and its condition
says so.
"""

from collections.abc import Iterator
from typing import Final

from kavip import names
from kavip.admission.chain import Caution, Context, Finding
from kavip.admission.verdict import Awaited, told
from kavip.api.refusal import Refusal, annotation_field
from kavip.api.service import Service
from kavip.ipam import messages
from kavip.ipam.allocate import breaks_sharing, decide
from kavip.ipam.ledger.claims import can_share
from kavip.ipam.platform import left_to_platform
from kavip.ipam.request import Request, read_request
from kavip.ipam.selection import Case
from kavip.names import Reason
from kavip.snapshot import Snapshot

_GROUP_FIELD: Final = annotation_field(names.GROUP_ANNOTATION)
_POOL_FIELD: Final = annotation_field(names.POOL_ANNOTATION)


def request_is_met(service: Service, context: Context[Service]) -> Iterator[Finding]:
    """What the Service asks for can be read, and can be had."""
    if not service.is_load_balancer:
        return
    snapshot = context.snapshot
    request, findings = read_request(service, group=context.group)
    unreadable = [finding for finding in findings if finding.field != _GROUP_FIELD]  # services.group_is_a_reference's
    yield from unreadable
    pools, labels = snapshot.parsed_pools, snapshot.namespace_labels(request.namespace)
    if left_to_platform(Case.of(request, pools, snapshot.ledger, labels), snapshot.network, ipam=context.options.ipam):
        return
    decided = decide(request, pools, snapshot.ledger, namespace_labels=labels)
    refusal = decided if isinstance(decided, Refusal) else decided.refusal
    if refusal is None and request.pool and pools.get(request.pool) is None:
        refusal = messages.pool_not_found(request, pools)  # what it holds it keeps, and yet it has misnamed the pool
    if refusal is None:
        refusal = breaks_sharing(request, pools, snapshot.ledger, namespace_labels=labels)
    if refusal is None:
        yield from _contested(request, snapshot)
        if decided.reason is Reason.STRANDED:
            yield Caution(f"the Service {decided.message}")
    elif unreadable and refusal.field != _POOL_FIELD:
        pass  # decided on what is left of the request: it may mislead
    elif _comes_by_itself(refusal, named=pools.are_named_by(request)) or _cools_down(refusal, request, snapshot):
        yield Caution(f"the Service waits for an address: {told(refusal)}")
    else:
        yield refusal
        if refusal.reason is Reason.POOL_NOT_FOUND and request.pool not in snapshot.pools:
            yield Awaited(names.VIP_POOL, request.pool)
        if refusal.reason is Reason.ADDRESS_NOT_IN_POOL and not request.pool:
            yield from (Awaited(names.VIP_POOL, address=each) for each in request.wanted if not pools.pool_of(each))


def asked_for(service: Service, _: str) -> object:
    """What the owner asks for; labels and ports may change beside it, where they change no word of the finding."""
    spec, meta = service.spec, service.metadata
    read = (names.POOL_ANNOTATION, names.ADDRESSES_ANNOTATION, names.SHARING_KEY_ANNOTATION, names.REASSIGN_ANNOTATION)
    return (
        service.declared_group,
        [meta.annotation(key) for key in read],
        (spec.type, spec.load_balancer_ip, spec.ip_families, spec.ip_family_policy),
    )


def _contested(request: Request, snapshot: Snapshot) -> Iterator[Caution]:
    """Who else asks for the same addresses, and has not got them yet."""
    request = snapshot.ledger.placed(request)
    for address in request.wanted:
        rivals = [terms for terms in snapshot.ledger.wishes(address) if terms.key != request.key]
        if rivals and address not in request.current and not can_share(rivals[0], request.terms):
            yield Caution(
                f"{request.field_of(address)}: {address} is asked for by {rivals[0]} too; the older one gets it"
            )


def _comes_by_itself(refusal: Refusal, *, named: bool) -> bool:
    """Whether a Service may wait for what it lacks: somebody frees an address, or adds a pool."""
    if not refusal.field or refusal.reason is Reason.POOL_EXHAUSTED:
        return True
    return refusal.reason in (Reason.FAMILY_NOT_AVAILABLE, Reason.QUOTA_EXCEEDED) and not named


def _cools_down(refusal: Refusal, request: Request, snapshot: Snapshot) -> bool:
    """Whether *refusal* is about an address that only rests for a while."""
    kept = ((each, snapshot.ledger.rests.keeping(each, request.key)) for each in request.wanted)
    return any(rest is not None and refusal == messages.at_rest(address, rest, request) for address, rest in kept)
