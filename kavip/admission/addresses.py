"""
The addresses that a Service requests: the decision of the controller, and what admission makes of it.

Admission refuses what the user names and cannot have. If the Service only has to wait, it is accepted with a warning,
and its condition reports the cause.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from kavip import names
from kavip.admission.chain import Context, Findings
from kavip.admission.verdict import AdmissionWarning, MissingReference, message_of
from kavip.api.refusal import Refusal, annotation_field
from kavip.api.service import Service
from kavip.ipam import annotations, messages
from kavip.ipam.allocate import Allocation, breaks_sharing, decide, gets_first_addresses, left_to_platform
from kavip.ipam.ledger.sharing import can_share
from kavip.ipam.request import Request, read_request
from kavip.names import Reason
from kavip.snapshot import Snapshot

_GROUP_FIELD: Final = annotation_field(names.GROUP_ANNOTATION)
_POOL_FIELD: Final = annotation_field(names.POOL_ANNOTATION)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """A readable request and the decision about it."""

    request: Request
    decided: Allocation | Refusal
    snapshot: Snapshot
    labels: Mapping[str, str]

    @classmethod
    def of(cls, request: Request, snapshot: Snapshot, labels: Mapping[str, str]) -> Self:
        """Decide as the controller does; *labels* are those of the namespace."""
        decided = decide(request, snapshot.parsed_pools, snapshot.ledger, namespace_labels=labels)
        return cls(request, decided, snapshot, labels)


def addresses_are_available(service: Service, context: Context[Service]) -> Findings:
    """The pool and the addresses that the Service requests can be read and assigned."""
    if not service.is_load_balancer:
        return
    snapshot = context.snapshot
    request, findings = read_request(service, group=context.group)
    unreadable = [each for each in findings if each.field != _GROUP_FIELD]  # services.group_reference_is_valid has it
    yield from unreadable
    if left_to_platform(request, snapshot.parsed_pools, snapshot.ledger, snapshot.network, ipam=context.options.ipam):
        return
    labels = snapshot.namespace_labels(request.namespace)
    if gets_first_addresses(request, snapshot.parsed_pools, snapshot.ledger, namespace_labels=labels):
        return
    found = _Evaluation.of(request, snapshot, labels)
    refusal = next((refusal for check in _REFUSALS if (refusal := check(found))), None)
    if refusal is None:
        for warn in _WARNINGS:
            yield from warn(found)
    elif unreadable and refusal.field != _POOL_FIELD:
        return  # the decision ignored the unreadable part, so its message could mislead
    elif _can_wait(refusal, names_pool=snapshot.parsed_pools.are_named_by(request)):
        yield AdmissionWarning(f"the Service waits for an address: {message_of(refusal)}", refusal.field)
    else:
        yield refusal
        yield from _missing_references(refusal, request, snapshot)


def _allocation_succeeds(found: _Evaluation) -> Refusal | None:
    """The controller would assign every requested address."""
    return found.decided if isinstance(found.decided, Refusal) else found.decided.refusal


def _named_pool_is_in_force(found: _Evaluation) -> Refusal | None:
    """The named pool exists, even if the Service could keep addresses without it."""
    request, pools = found.request, found.snapshot.parsed_pools
    return messages.pool_not_found(request, pools) if request.pool and pools.get(request.pool) is None else None


def _sharing_is_kept(found: _Evaluation) -> Refusal | None:
    """The edit leaves shared addresses shareable."""
    snapshot = found.snapshot
    return breaks_sharing(found.request, snapshot.parsed_pools, snapshot.ledger, namespace_labels=found.labels)


def _addresses_are_uncontested(found: _Evaluation) -> Iterator[AdmissionWarning]:
    """No other Service requests the same address and waits for it."""
    ledger = found.snapshot.ledger
    request = ledger.with_default_group(found.request)
    for address in request.wanted:
        rivals = [terms for terms in ledger.requesting(address) if terms.key != request.key]
        if rivals and address not in request.current and not can_share(rivals[0], request.terms):
            message = f"{address} is also requested by {rivals[0]}; the older Service gets it"
            yield AdmissionWarning(message, request.field_of(address))


def _addresses_are_not_stranded(found: _Evaluation) -> Iterator[AdmissionWarning]:
    """The pools still allow the addresses that the Service holds."""
    decided = found.decided
    if isinstance(decided, Allocation) and decided.reason is Reason.STRANDED:
        yield AdmissionWarning(f"the Service {decided.message}")


_REFUSALS: Final[tuple[Callable[[_Evaluation], Refusal | None], ...]] = (
    _allocation_succeeds,
    _named_pool_is_in_force,
    _sharing_is_kept,
)
"""The first refusal counts: the others would follow from it."""
_WARNINGS: Final[tuple[Callable[[_Evaluation], Iterator[AdmissionWarning]], ...]] = (
    _addresses_are_uncontested,
    _addresses_are_not_stranded,
)


def address_request(service: Service, _: str) -> object:
    """The fields that request addresses. Labels and ports are not part of it: they change no message here."""
    spec, meta = service.spec, service.metadata
    return (
        service.declared_group,
        [meta.annotation(each.key) for each in annotations.REGISTRY],
        (spec.type, spec.load_balancer_ip, spec.ip_families, spec.ip_family_policy),
    )


def _can_wait(refusal: Refusal, *, names_pool: bool) -> bool:
    """Whether the Service is accepted and waits: a cool-down ends, an address is freed, or a pool is added."""
    if not refusal.field or refusal.is_temporary or refusal.reason is Reason.POOL_EXHAUSTED:
        return True
    return refusal.reason in (Reason.FAMILY_NOT_AVAILABLE, Reason.QUOTA_EXCEEDED) and not names_pool


def _missing_references(refusal: Refusal, request: Request, snapshot: Snapshot) -> Iterator[MissingReference]:
    """The pools that would make the request valid."""
    if refusal.reason is Reason.POOL_NOT_FOUND and request.pool not in snapshot.pools:
        yield MissingReference(names.VIP_POOL, request.pool)
    if refusal.reason is Reason.ADDRESS_NOT_IN_POOL and not request.pool:
        pools = snapshot.parsed_pools
        yield from (
            MissingReference(names.VIP_POOL, address=each) for each in request.wanted if not pools.pool_of(each)
        )
