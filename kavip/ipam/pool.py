"""
One VIPPool, parsed: which addresses it may assign, and to which Services.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kavip import names
from kavip.api.address import Address, parse_address
from kavip.api.meta import LabelSelector
from kavip.api.naming import INTERFACE_REMEDY, is_interface
from kavip.api.pool import VIPPool
from kavip.api.refusal import MAX_FINDINGS, Refusal, listed
from kavip.api.returnroute import MOST_TABLE, is_table
from kavip.api.selector import check_selector
from kavip.errors import BadInput
from kavip.ipam.annotations import parse_namespaced
from kavip.ipam.ranges import (
    EVERYTHING,
    FAMILY_NAMES,
    LINK_LOCAL,
    UNUSABLE,
    Range,
    find,
    first_overlap,
    is_buggy,
    parse_range,
    subtract,
)
from kavip.ipam.request import Request
from kavip.names import Reason

LONGEST_COOLDOWN: Final = 31_536_000
"""Seconds: a year, as in the CRD."""
REJECTED: Final = "spec.externalIP.policy.rejectedCIDRs of Network cluster"
"""The field of OpenShift that names addresses which no pool may assign."""
ON_REQUEST: Final = f"must be requested (autoAssign: false; set {names.POOL_ANNOTATION})"
"""Completes "pool X ..."."""


class Barred(NamedTuple):
    """A range that no pool may assign. *what* it is completes "address X lies in ..."."""

    span: Range
    what: str


class Routing(NamedTuple):
    """How replies leave: by the *gateways*, one of a family, in the routing table number *table* of the nodes."""

    gateways: tuple[Address, ...]
    table: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """
    A pool in force.

    *ranges*: as declared; *usable*: without those excluded by the pool, and without the *barred* ones, which the
    cluster uses itself or the platform rejects; both are sorted and disjoint. Which Services it serves: *groups*
    (empty: all), *services*, *namespaces* (None: all), *auto_assign*, *max_per_namespace*. *interface*: the one of the
    nodes that carries its VIPs; "": that of the group. *routing*: None: replies leave as all other packets of the node.
    """

    name: str
    age: tuple[str, str]
    priority: int
    auto_assign: bool
    ranges: tuple[Range, ...]
    usable: tuple[Range, ...]
    barred: tuple[Barred, ...]
    avoid_buggy: bool
    reservations: Mapping[Address, str]
    reserved: Mapping[str, tuple[Address, ...]]  # the inverse
    groups: frozenset[str]
    services: LabelSelector | None
    namespaces: LabelSelector | None
    max_per_namespace: int | None
    excluded: tuple[tuple[str, Range], ...] = ()  # with their field paths
    cooldown_seconds: int = 0  # for which a freed address stays reserved
    detects_conflicts: bool = True  # with other machines on the LAN
    interface: str = ""
    routing: Routing | None = None
    families: frozenset[int] = dataclasses.field(init=False, compare=False, repr=False)
    """Of its usable addresses."""

    def __post_init__(self) -> None:
        """Set :attr:`families` once: they are read for each Service without an address."""
        object.__setattr__(self, "families", frozenset(span.family for span in self.usable))

    @property
    def rank(self) -> tuple[int, str]:
        """Sorts pools in the order in which they are tried."""
        return self.priority, self.name

    def usable_of(self, family: int) -> tuple[Range, ...]:
        """The usable ranges of *family*."""
        return tuple(span for span in self.usable if span.family == family)

    def has(self, family: int) -> bool:
        """Whether the pool has usable addresses of *family*."""
        return family in self.families

    def is_usable(self, address: Address) -> bool:
        """Whether the pool ever assigns *address*: in its ranges, not excluded, not avoided."""
        return find(self.usable, address) is not None and not (self.avoid_buggy and is_buggy(address))

    def reserved_for(self, service: str) -> tuple[Address, ...]:
        """The addresses that are reserved for *service*, lowest first."""
        return self.reserved.get(service, ())

    def why_barred(self, address: Address, service: str) -> str:
        """Why *address*, which is in the ranges, is not for *service*; "" if it is. Completes "address X ..."."""
        if find(self.usable, address) is None:
            for span, what in self.barred:
                if span.holds(address):
                    return f"of pool {self.name} lies in {what}"
            return f"is excluded from pool {self.name}"
        if self.avoid_buggy and is_buggy(address):
            return f"ends in .0 or .255, which pool {self.name} does not assign (avoidBuggyIPs)"
        if self.reservations.get(address, service) != service:
            return f"is reserved for Service {self.reservations[address]} in pool {self.name}"
        return ""

    def mismatch(self, request: Request, namespace_labels: Mapping[str, str] | None) -> str:
        """Why the pool does not serve *request*; "" if it does. Completes "pool X ..." and "pools X, Y ..."."""
        if why := self.group_mismatch(request):
            return f"{why} (groups)"
        if why := self.namespace_mismatch(request, namespace_labels):
            return f"{why} (namespaceSelector)"
        if why := self.service_mismatch(request):
            return f"{why} (serviceSelector)"
        return ""

    def serves(self, group: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
        """Whether the pool serves Services of *group* with *labels* in such a namespace."""
        return (
            (not self.groups or group in self.groups)
            and (self.namespaces is None or self.namespaces.matches(namespace_labels))
            and (self.services is None or self.services.matches(labels))
        )

    def group_mismatch(self, request: Request) -> str:
        """Why the pool does not serve the group of *request*; "" if it does."""
        if self.groups and request.group not in self.groups:
            return f"can serve only KeepalivedGroup {listed(sorted(self.groups))}"
        return ""

    def namespace_mismatch(self, request: Request, namespace_labels: Mapping[str, str] | None) -> str:
        """Why the pool does not serve the namespace of *request*; "" if it does."""
        if self.namespaces is not None and not self.namespaces.matches(namespace_labels):
            return f"cannot serve namespace {request.namespace}"
        return ""

    def service_mismatch(self, request: Request) -> str:
        """Why the pool does not serve the labels of *request*; "" if it does."""
        if self.services is not None and not self.services.matches(request.labels):
            return f"cannot serve the labels of Service {request.key}"
        return ""


@dataclasses.dataclass(slots=True)
class _Findings:
    """The findings of one pool, at most :data:`MAX_FINDINGS`; parsing continues after each until there are so many."""

    found: list[Refusal]

    @property
    def is_full(self) -> bool:
        return len(self.found) >= MAX_FINDINGS

    def add(self, field: str, value: object, remedy: str) -> None:
        if not self.is_full:
            self.found.append(Refusal.of(Reason.INVALID, BadInput(field, value, remedy)))

    def ranges(self, texts: list[str] | None, field: str) -> list[tuple[str, Range]]:
        """The readable ranges of *texts*, each with its field path."""
        result: list[tuple[str, Range]] = []
        for index, text in enumerate(texts or ()):
            if self.is_full:
                break
            try:
                result.append((f"{field}[{index}]", parse_range(text, f"{field}[{index}]")))
            except BadInput as error:
                self.found.append(Refusal.of(Reason.INVALID, error))
        return result


def parse_pool(wire: VIPPool, *, barred: tuple[Barred, ...] = ()) -> tuple[Pool | None, tuple[Refusal, ...]]:
    """
    The pool of *wire*, None if it has no valid range, and all findings, regardless of other pools.

    A pool with findings is not in force. *barred*: ranges that no pool may assign.
    """
    spec, findings = wire.spec, _Findings([])
    ranges = _declared(spec.addresses, findings)
    excluded = findings.ranges(spec.exclude, "spec.exclude")
    for field, span in excluded:
        if ranges and first_overlap(ranges, span) is None:
            findings.add(field, str(span), "is outside spec.addresses; remove it")
    _check_groups(spec.groups or (), findings)
    for field, number in (
        ("spec.cooldownSeconds", spec.cooldown_seconds),
        ("spec.maxPerNamespace", spec.max_per_namespace or 0),
        ("spec.priority", spec.priority),
    ):
        if number < 0:
            findings.add(field, number, "want 0 or more")
    if spec.conflict_detection not in (names.PROBE, names.OFF):
        findings.add("spec.conflictDetection", spec.conflict_detection, f"want {names.PROBE} or {names.OFF}")
    for selector, field in (
        (spec.service_selector, "spec.serviceSelector"),
        (spec.namespace_selector, "spec.namespaceSelector"),
    ):
        findings.found += islice(check_selector(selector, field), MAX_FINDINGS - len(findings.found))
    allowed = subtract(ranges, (span for _, span in excluded))
    routing = _routing(wire, ranges, allowed, findings)
    # checked without *barred*: what the cluster or the platform claims today is not an error in the pool
    reservations = _reservations(wire, ranges, allowed, findings)
    if not ranges:
        return None, tuple(findings.found)
    pool = Pool(
        name=wire.name,
        age=wire.metadata.age_key,
        priority=spec.priority,
        auto_assign=spec.auto_assign,
        ranges=ranges,
        usable=subtract(allowed, (each.span for each in barred)),
        barred=tuple(each for each in barred if first_overlap(allowed, each.span)),
        avoid_buggy=spec.avoid_buggy_ips,
        reservations=reservations,
        reserved=_inverse(reservations),
        groups=frozenset(spec.groups or ()),
        services=spec.service_selector,
        namespaces=spec.namespace_selector,
        max_per_namespace=spec.max_per_namespace,
        excluded=tuple(excluded),
        cooldown_seconds=min(spec.cooldown_seconds, LONGEST_COOLDOWN),
        detects_conflicts=spec.conflict_detection != names.OFF,
        interface=spec.interface if spec.interface and is_interface(spec.interface) else "",
        routing=routing,
    )
    return pool, tuple(findings.found)


def _check_groups(groups: Sequence[str], findings: _Findings) -> None:
    for index, group in enumerate(groups):
        if findings.is_full:
            break
        try:
            parse_namespaced(group, f"spec.groups[{index}]")
        except BadInput as error:
            findings.found.append(Refusal.of(Reason.INVALID, error))


def cautions(pool: Pool) -> tuple[str, ...]:
    """Warnings about *pool*: an exclude that lies only partly inside its ranges."""
    outside = subtract(EVERYTHING, pool.ranges)
    return tuple(
        f"{field}: {span} is only partly inside spec.addresses"
        for field, span in pool.excluded
        if first_overlap(pool.ranges, span) is not None and first_overlap(outside, span) is not None
    )


def _declared(texts: list[str], findings: _Findings) -> tuple[Range, ...]:
    """The ranges of ``spec.addresses``, sorted and disjoint, with a finding for each that no Service can use."""
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


def _routing(
    wire: VIPPool, ranges: tuple[Range, ...], usable: tuple[Range, ...], findings: _Findings
) -> Routing | None:
    """``spec.routing``, by ``spec.interface``; None if there is none, or no valid one."""
    routing, before = wire.spec.routing, len(findings.found)
    if wire.spec.interface is not None and not is_interface(wire.spec.interface):
        findings.add("spec.interface", wire.spec.interface, INTERFACE_REMEDY)
    if routing is None:
        return None
    if wire.spec.interface is None:
        findings.add("spec.interface", "", "routing needs the interface by which the gateway is reached; set it")
    if not is_table(routing.table):
        remedy = (
            f"want the number of a routing table, 1 to {MOST_TABLE}, but not 253, 254 or 255, which the kernel uses"
        )
        findings.add("spec.routing.table", routing.table, remedy)
    gateways: list[Address] = []
    for name, text in (("gateway", routing.gateway), ("gatewayIPv6", routing.gateway_ipv6)):
        field = f"spec.routing.{name}"
        if name == "gatewayIPv6" and not text:
            continue
        try:
            gateway = parse_address(text, field)
        except BadInput as error:
            if not findings.is_full:
                findings.found.append(Refusal.of(Reason.INVALID, error))
            continue
        if problem := _gateway_problem(gateway, name, gateways, ranges, usable):
            findings.add(field, text, problem)
        gateways.append(gateway)
    is_valid = len(findings.found) == before and not findings.is_full  # once it is full, nothing is added
    return Routing(tuple(sorted(gateways)), routing.table) if is_valid else None


def _gateway_problem(
    gateway: Address, name: str, before: list[Address], ranges: tuple[Range, ...], usable: tuple[Range, ...]
) -> str:
    """Why *gateway*, in the field *name* after those *before*, cannot be one; "" if it can."""
    if name == "gatewayIPv6" and gateway.family != 6:
        return "want an IPv6 address"
    if any(each.family == gateway.family for each in before):
        return "gateway is an IPv6 address already; remove one of them"
    if any(span.holds(gateway) for span, what in UNUSABLE if what != LINK_LOCAL):
        return "want the address of a router"
    if all(span.family != gateway.family for span in ranges):
        return f"the pool has no {FAMILY_NAMES[gateway.family]} address; want a gateway of its family"
    if find(usable, gateway) is not None:
        return "is an address of this pool; list it in spec.exclude, or want another gateway"
    return ""


def _reservations(
    wire: VIPPool, ranges: tuple[Range, ...], usable: tuple[Range, ...], findings: _Findings
) -> Mapping[Address, str]:
    result: dict[Address, str] = {}
    for index, entry in enumerate(wire.spec.reservations or ()):
        field = f"spec.reservations[{index}]"
        if findings.is_full:
            break
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
