"""
One VIPPool, parsed: what it may hand out, and to whom.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kavip.api.address import Address, parse_address
from kavip.api.meta import LabelSelector
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal, listed
from kavip.api.selector import check_selector
from kavip.errors import BadInput
from kavip.ipam.annotations import parse_namespaced
from kavip.ipam.ranges import UNUSABLE, Range, find, first_overlap, is_buggy, parse_range, subtract
from kavip.ipam.request import Request
from kavip.names import Reason

LONGEST: Final = 31_536_000
"""Seconds of a cool-down: a year, as the CRD has it."""
REJECTED: Final = "spec.externalIP.policy.rejectedCIDRs of Network cluster"
"""What no pool may hand out where OpenShift says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """
    A pool in force.

    *ranges*: as declared; *usable*: without what is excluded and *rejected* by the platform; both sorted and disjoint.
    Who may draw: *groups* (empty: all), *services*, *namespaces* (None: all), *auto_assign*, *max_per_namespace*.
    """

    name: str
    age: tuple[str, str]
    priority: int
    auto_assign: bool
    ranges: tuple[Range, ...]
    usable: tuple[Range, ...]
    rejected: tuple[Range, ...]
    avoid_buggy: bool
    reservations: Mapping[Address, str]
    reserved: Mapping[str, tuple[Address, ...]]  # the inverse
    groups: frozenset[str]
    services: LabelSelector | None
    namespaces: LabelSelector | None
    max_per_namespace: int | None
    cooldown: int = 0  # seconds for which a freed address rests

    @property
    def rank(self) -> tuple[int, str]:
        """Sorts the pool that is tried first first."""
        return self.priority, self.name

    def usable_of(self, family: int) -> tuple[Range, ...]:
        """The usable ranges of *family*."""
        return tuple(span for span in self.usable if span.family == family)

    def has(self, family: int) -> bool:
        """Whether the pool has addresses of *family* to hand out."""
        return any(span.family == family for span in self.usable)

    def is_usable(self, address: Address) -> bool:
        """Whether *address* is ever handed out: ours, not excluded, not avoided."""
        return find(self.usable, address) is not None and not (self.avoid_buggy and is_buggy(address))

    def reserved_for(self, service: str) -> tuple[Address, ...]:
        """The addresses that are kept for *service*, lowest first."""
        return self.reserved.get(service, ())

    def bar(self, address: Address, service: str) -> str:
        """Why *address*, one of ours, is not for *service*; "" where it is. Completes "address X ..."."""
        if find(self.usable, address) is None:
            if any(span.holds(address) for span in self.rejected):
                return f"of pool {self.name} lies in {REJECTED}"
            return f"is excluded from pool {self.name}"
        if self.avoid_buggy and is_buggy(address):
            return f"ends in .0 or .255, which pool {self.name} does not hand out (avoidBuggyIPs)"
        if self.reservations.get(address, service) != service:
            return f"is reserved for Service {self.reservations[address]} in pool {self.name}"
        return ""

    def mismatch(self, request: Request, namespace_labels: Mapping[str, str] | None) -> str:
        """Why the pool does not serve *request*; "" where it does. Completes "pool X ..."."""
        return (
            self.group_mismatch(request)
            or self.namespace_mismatch(request, namespace_labels)
            or self.service_mismatch(request)
        )

    def group_mismatch(self, request: Request) -> str:
        """Why the pool does not serve the group of *request*; "" where it does."""
        if self.groups and request.group not in self.groups:
            return f"serves only KeepalivedGroup {listed(sorted(self.groups))}"
        return ""

    def namespace_mismatch(self, request: Request, namespace_labels: Mapping[str, str] | None) -> str:
        """Why the pool does not serve the namespace of *request*; "" where it does."""
        if self.namespaces is not None and not self.namespaces.matches(namespace_labels):
            return f"does not select namespace {request.namespace}"
        return ""

    def service_mismatch(self, request: Request) -> str:
        """Why the pool does not serve the labels of *request*; "" where it does."""
        if self.services is not None and not self.services.matches(request.labels):
            return f"does not select the labels of Service {request.key}"
        return ""


@dataclass(slots=True)
class _Findings:
    """What is wrong with one pool; parsing goes on after each."""

    found: list[Refusal]

    def add(self, field: str, value: object, remedy: str) -> None:
        self.found.append(Refusal.of(Reason.INVALID, BadInput(field, value, remedy)))

    def ranges(self, texts: list[str] | None, field: str) -> list[tuple[str, Range]]:
        """The readable ones of *texts*, each with its path."""
        result: list[tuple[str, Range]] = []
        for index, text in enumerate(texts or ()):
            try:
                result.append((f"{field}[{index}]", parse_range(text, f"{field}[{index}]")))
            except BadInput as error:
                self.found.append(Refusal.of(Reason.INVALID, error))
        return result


def parse_pool(wire: VIPPool, *, barred: tuple[Range, ...] = ()) -> tuple[Pool | None, tuple[Refusal, ...]]:
    """
    Read *wire*: the pool, None where nothing of it can be used; and everything that is wrong with it, looked at alone.

    A pool with findings is not in force. *barred* is what no pool may hand out (OpenShift's ``rejectedCIDRs``).
    """
    spec, findings = wire.spec, _Findings([])
    ranges = _declared(spec.addresses, findings)
    excluded = findings.ranges(spec.exclude, "spec.exclude")
    for field, span in excluded:
        if ranges and first_overlap(ranges, span) is None:
            findings.add(field, str(span), "is outside spec.addresses; remove it")
    for index, group in enumerate(spec.groups or ()):
        try:
            parse_namespaced(group, f"spec.groups[{index}]")
        except BadInput as error:
            findings.found.append(Refusal.of(Reason.INVALID, error))
    for field, number in (
        ("spec.cooldownSeconds", spec.cooldown_seconds),
        ("spec.maxPerNamespace", spec.max_per_namespace or 0),
        ("spec.priority", spec.priority),
    ):
        if number < 0:
            findings.add(field, number, "want 0 or more")
    findings.found += check_selector(spec.service_selector, "spec.serviceSelector")
    findings.found += check_selector(spec.namespace_selector, "spec.namespaceSelector")
    allowed = subtract(ranges, (span for _, span in excluded))
    # what the platform rejects today is no mistake of whoever wrote the pool
    reservations = _reservations(wire, ranges, allowed, findings)
    if not ranges:
        return None, tuple(findings.found)
    pool = Pool(
        name=wire.name,
        age=wire.metadata.age_key,
        priority=spec.priority,
        auto_assign=spec.auto_assign,
        ranges=ranges,
        usable=subtract(allowed, barred),
        rejected=tuple(span for span in barred if first_overlap(ranges, span)),
        avoid_buggy=spec.avoid_buggy_ips,
        reservations=reservations,
        reserved=_inverse(reservations),
        groups=frozenset(spec.groups or ()),
        services=spec.service_selector,
        namespaces=spec.namespace_selector,
        max_per_namespace=spec.max_per_namespace,
        cooldown=min(spec.cooldown_seconds, LONGEST),
    )
    return pool, tuple(findings.found)


def cautions(wire: VIPPool) -> tuple[str, ...]:
    """What is allowed but unwise in *wire*: an exclude that is only half inside."""
    findings = _Findings([])
    ranges = _declared(wire.spec.addresses, findings)
    return tuple(
        f"{field}: {span} is only partly inside spec.addresses"
        for field, span in findings.ranges(wire.spec.exclude, "spec.exclude")
        if first_overlap(ranges, span) is not None and subtract((span,), ranges)
    )


def _declared(texts: list[str], findings: _Findings) -> tuple[Range, ...]:
    """``spec.addresses``: sorted, disjoint, and nothing that no Service could use."""
    if not texts:
        findings.found.append(
            Refusal(Reason.INVALID, "spec.addresses: is empty; list CIDRs or first-last ranges", "spec.addresses")
        )
    accepted: list[Range] = []
    for field, span in sorted(findings.ranges(texts, "spec.addresses"), key=lambda entry: entry[1]):
        for unusable, what in UNUSABLE:
            if span.overlaps(unusable):
                findings.add(field, str(span), f"holds addresses that no Service can have: {what}")
                break
        if accepted and accepted[-1].overlaps(span):
            findings.add(field, str(span), f"overlaps {accepted[-1]} of the same pool; remove one of them")
        else:
            accepted.append(span)
    return tuple(accepted)


def _reservations(
    wire: VIPPool, ranges: tuple[Range, ...], usable: tuple[Range, ...], findings: _Findings
) -> Mapping[Address, str]:
    result: dict[Address, str] = {}
    for index, entry in enumerate(wire.spec.reservations or ()):
        field = f"spec.reservations[{index}]"
        try:
            address = parse_address(entry.address, f"{field}.address")
            service = parse_namespaced(entry.service, f"{field}.service")
        except BadInput as error:
            findings.found.append(Refusal.of(Reason.INVALID, error))
            continue
        if find(ranges, address) is None:
            findings.add(f"{field}.address", entry.address, "is outside spec.addresses")
        elif find(usable, address) is None or (wire.spec.avoid_buggy_ips and is_buggy(address)):
            findings.add(f"{field}.address", entry.address, "is excluded from this pool; reserve another")
        elif address in result:
            findings.add(f"{field}.address", entry.address, "is reserved twice; remove one of them")
        else:
            result[address] = service
    return result


def _inverse(reservations: Mapping[Address, str]) -> Mapping[str, tuple[Address, ...]]:
    result: dict[str, list[Address]] = {}
    for address, service in sorted(reservations.items()):
        result.setdefault(service, []).append(address)
    return {service: tuple(addresses) for service, addresses in result.items()}
