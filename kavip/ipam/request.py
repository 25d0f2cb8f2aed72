"""
What a Service requests: the only reader of a Service in ipam.

Reading is lenient and complete. It keeps every part that can be read and collects every finding, so that the webhook
reports all findings at once, and a Service with an invalid annotation still holds its addresses.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from kavip import names
from kavip.api.address import Address, parse_address, read_address
from kavip.api.refusal import Refusal, annotation_field, listed
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.ipam import annotations
from kavip.ipam.annotations import Annotation
from kavip.ipam.ranges import FAMILIES, FAMILY_NAMES
from kavip.ipam.record import Record, read_record
from kavip.names import Reason

T = TypeVar("T")

Port = tuple[str, int]
"""Protocol and number."""

_ANY_NUMBER: Final = 1 << 30
YOUNGEST: Final = "~"  # sorts after every timestamp
_NO_PORTS: Final[frozenset[Port]] = frozenset()
_FAMILIES: Final = {name: family for family, name in FAMILY_NAMES.items()}


class SharingTerms(NamedTuple):
    """
    Only Services with equal values may share an address, if their ports differ.

    *backend* is the selector if ``externalTrafficPolicy`` is Local (only nodes with endpoints hold the address), else
    None. *group* is the declared one, "" for the default group, which the ledger determines.
    """

    namespace: str
    key: str
    group: str
    backend: tuple[tuple[str, str], ...] | None


class Terms(NamedTuple):
    """
    The terms on which a Service holds an address: age decides a contest, the others decide about sharing.

    *created*: a timestamp, or :data:`YOUNGEST`.
    """

    key: str
    namespace: str
    created: str
    sharing: SharingTerms | None
    ports: frozenset[Port]
    leaving: bool  # in deletion; it holds its addresses until it is deleted

    @property
    def age(self) -> tuple[str, str]:
        """Sorts the oldest Service first; ends with the key."""
        return self.created, self.key

    def __str__(self) -> str:
        """The Service, as messages name it."""
        return f"Service {self.key}{' (being deleted)' if self.leaving else ''}"

    def within(self, group: str) -> "Terms":
        """The same in *group* if the Service declares none."""
        if self.sharing is None or self.sharing.group or not group:
            return self
        return self._replace(sharing=self.sharing._replace(group=group))


class Request(NamedTuple):
    """
    One Service, as ipam reads it.

    *families*: requested, in order; *number*: of addresses of each; *most*: that it may keep of each. *wanted*: the
    addresses requested by name; *legacy*: the one of these that only ``spec.loadBalancerIP`` names. *current*: the
    addresses in status, in their order; *alien*: status has entries that kavip never writes. *record*: which addresses
    kavip assigned.
    """

    key: str
    namespace: str
    labels: Mapping[str, str]
    families: tuple[int, ...]
    number: int
    most: int
    require_all: bool
    wanted: tuple[Address, ...]
    legacy: Address | None
    pool: str
    group: str
    terms: Terms
    reassign: bool
    current: tuple[Address, ...]
    alien: bool
    record: Record

    def wanted_of(self, family: int) -> tuple[Address, ...]:
        """The addresses of *family* that are requested by name, at most :attr:`number`."""
        return tuple(address for address in self.wanted if address.family == family) if self.wanted else ()

    def lacking(self, held: Collection[Address]) -> tuple[int, ...]:
        """The family of each address that is missing besides *held*: each one requested by name, and others."""
        if self.number == 1 and not self.wanted:  # most Services
            has = {address.family for address in held}
            return tuple(family for family in self.families if family not in has) if has else self.families
        mine = frozenset(held)
        result: list[int] = []
        for family in self.families:
            named = self.wanted_of(family)
            kept = len(mine.intersection(named))
            others = sum(address.family == family for address in mine) - kept
            result += [family] * (self.number - kept - min(others, max(self.number - len(named), 0)))
        return tuple(result)

    def field_of(self, address: Address) -> str:
        """The path of the field that requests *address*."""
        return "spec.loadBalancerIP" if address == self.legacy else annotation_field(names.ADDRESSES_ANNOTATION)


def read_request(service: Service, *, group: str | None = None) -> tuple[Request, tuple[Refusal, ...]]:
    """
    The readable parts of *service*, and every finding.

    *group* is the key of the group that serves it, if that is not the declared one (the default group).
    """
    findings: list[Refusal] = []
    key, meta, spec = service.key, service.metadata, service.spec
    given = meta.annotations or {}
    declared = _take(annotations.GROUP, given, findings) or ""
    record = read_record(service)
    number, most = _count(given, record, findings)
    requested = _requested(given, number, findings)
    has_legacy = bool(spec.load_balancer_ip)
    wanted, legacy = _with_load_balancer_ip(requested, service, number, findings) if has_legacy else (requested, None)
    families = _families(service, wanted)
    if number > 1 and number > names.MAX_VIPS // len(families):
        findings.append(_too_many(number, families))
        number = names.MAX_VIPS // len(families)
    sharing_key = _take(annotations.SHARING_KEY, given, findings)
    require_all = spec.ip_family_policy == "RequireDualStack"
    if require_all and len(families) < len(FAMILIES):
        findings.append(
            Refusal(
                Reason.FAMILY_NOT_AVAILABLE,
                f"spec.ipFamilyPolicy: RequireDualStack, but the Service has only {FAMILY_NAMES[families[0]]}; "
                "give it both families or another policy",
                "spec.ipFamilyPolicy",
            )
        )
    has_status = service.is_load_balancer and bool(service.status.load_balancer.ingress)
    request = Request(
        key=key,
        namespace=meta.namespace,
        labels=meta.labels or {},
        families=families,
        number=number,
        most=most,
        require_all=require_all,
        wanted=tuple(address for address in wanted if address.family in families) if wanted else (),
        legacy=legacy,
        pool=_take(annotations.POOL, given, findings) or "",
        group=declared if group is None else group,
        terms=_terms(service, key, declared, sharing_key),
        reassign=_take(annotations.REASSIGN, given, findings) or False,
        current=service.ingress_addresses if has_status else (),
        alien=has_status and _has_alien_entries(service),
        record=record,
    )
    if wanted and len(request.wanted) < len(wanted):
        findings.extend(_without_family(wanted, request))
    return request, tuple(findings)


def terms_of_unknown(key: str) -> Terms:
    """The terms of a Service of which only the key is known: the youngest, without sharing."""
    return Terms(key, key.partition("/")[0], YOUNGEST, None, frozenset(), leaving=False)


def _take(annotation: Annotation[T], given: Mapping[str, str], findings: list[Refusal]) -> T | None:
    if annotation.key not in given:  # most of them
        return None
    try:
        return annotation.read(given)
    except BadInput as error:
        findings.append(Refusal.of(Reason.INVALID_REQUEST, error))
        return None


def _count(given: Mapping[str, str], record: Record, findings: list[Refusal]) -> tuple[int, int]:
    """
    The number of addresses per family that *service* requests, and the number that it may keep.

    Without the annotation it keeps any number, as another controller may have written several, unless the annotation
    has been removed: then the *record* still has the number.
    """
    before, count = len(findings), _take(annotations.COUNT, given, findings)
    if count is not None:
        return count, count
    is_removed = len(findings) == before and record.number > 0
    return 1, 1 if is_removed else _ANY_NUMBER


def _requested(given: Mapping[str, str], count: int, findings: list[Refusal]) -> tuple[Address, ...]:
    """The addresses that the annotation names, at most *count* per family."""
    requested = _take(annotations.ADDRESSES, given, findings) or ()
    if not requested or any(each.field == annotations.COUNT.field for each in findings):
        return requested
    for family, number in sorted(Counter(address.family for address in requested).items()):
        if number > count:
            limit = "one" if count == 1 else count
            field, text = annotations.ADDRESSES.field, given[names.ADDRESSES_ANNOTATION]
            what = f"has {number} {FAMILY_NAMES[family]} addresses"
            remedy = f"{what}; want at most {limit} per family ({names.COUNT_ANNOTATION})"
            findings.append(Refusal.of(Reason.INVALID_REQUEST, BadInput(field, text.strip(), remedy)))
            return ()
    return requested


def _too_many(count: int, families: tuple[int, ...]) -> Refusal:
    """The count needs more addresses than a Service may have."""
    most = names.MAX_VIPS // len(families)
    remedy = (
        f"{count * len(families)} addresses over {len(families)} families; want at most {most} per family, "
        f"{names.MAX_VIPS} together"
    )
    return Refusal.of(Reason.INVALID_REQUEST, BadInput(annotations.COUNT.field, str(count), remedy))


def _with_load_balancer_ip(
    requested: tuple[Address, ...], service: Service, count: int, findings: list[Refusal]
) -> tuple[tuple[Address, ...], Address | None]:
    """The addresses of the annotation and of ``spec.loadBalancerIP``, at most *count* per family."""
    text = service.spec.load_balancer_ip.strip()
    if not text:
        return requested, None
    try:
        address = parse_address(text, "spec.loadBalancerIP")
    except BadInput as error:
        findings.append(Refusal.of(Reason.INVALID_REQUEST, error))
        return requested, None
    if address in requested:
        return requested, None
    named = [each for each in requested if each.family == address.family]
    if len(named) < count:
        return (*requested, address), address
    field = annotation_field(names.ADDRESSES_ANNOTATION)
    verb = "contradicts" if len(named) == 1 else "contradict"
    message = f"{field}: {listed(named)} {verb} spec.loadBalancerIP {address}; remove one of them"
    findings.append(Refusal(Reason.INVALID_REQUEST, message, field))
    return tuple(each for each in requested if each not in named), None  # it is unknown which of them is meant


def _families(service: Service, wanted: tuple[Address, ...]) -> tuple[int, ...]:
    """
    The families of the Service, in order.

    The API server always fills ``ipFamilies``. For a manifest that was never stored, the families follow from the
    cluster IPs, the policy, or the addresses requested by name.
    """
    spec = service.spec
    if spec.ip_families:
        found = [_FAMILIES[text] for text in spec.ip_families if text in _FAMILIES]
    else:
        texts = spec.cluster_ips or [spec.cluster_ip]
        found = [address.family for address in map(read_address, texts) if address]
    if not found and spec.ip_family_policy in ("PreferDualStack", "RequireDualStack"):
        found = list(FAMILIES)
    if not found:
        found = [address.family for address in wanted[:1]]
    return tuple(dict.fromkeys(found)) or FAMILIES[:1]


def _terms(service: Service, key: str, group: str, sharing_key: str | None) -> Terms:
    meta, spec = service.metadata, service.spec
    sharing = None
    if sharing_key is not None and not service.has_foreign_class:
        is_local = spec.external_traffic_policy == "Local"
        backend = tuple(sorted((spec.selector or {}).items())) if is_local else None
        sharing = SharingTerms(meta.namespace, sharing_key, group, backend)
    ports = frozenset((port.protocol, port.port) for port in spec.ports or ()) if sharing else _NO_PORTS
    created = meta.creation_timestamp or YOUNGEST
    return Terms(key, meta.namespace, created, sharing, ports, leaving=bool(meta.deletion_timestamp))


def _has_alien_entries(service: Service) -> bool:
    entries = service.status.load_balancer.ingress or ()
    return any(entry.hostname or not read_address(entry.ip) for entry in entries)


def _without_family(wanted: tuple[Address, ...], request: Request) -> list[Refusal]:
    """A refusal for each requested address of a family that the Service does not have."""
    has = " and ".join(FAMILY_NAMES[family] for family in request.families)
    return [
        Refusal(
            Reason.FAMILY_NOT_AVAILABLE,
            f"{request.field_of(address)}: {address} is {FAMILY_NAMES[address.family]}, but the Service has only "
            f"{has}; ask for {has}, or change spec.ipFamilies",
            request.field_of(address),
        )
        for address in wanted
        if address.family not in request.families
    ]
