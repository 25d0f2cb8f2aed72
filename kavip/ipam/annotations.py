"""
The annotations that ipam reads on a Service: key, parser and meaning. Parsers, webhook and reference share this table.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

from kavip import names
from kavip.api.address import Address, parse_address
from kavip.api.refusal import annotation_field
from kavip.errors import BadInput

T = TypeVar("T")

_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACED: Final = re.compile(rf"(?=.{{3,317}}\Z){_LABEL}/{_LABEL}(\.{_LABEL})*\Z")
_COUNT: Final = re.compile(r"[1-9][0-9]?\Z", re.ASCII)
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class Annotation(Generic[T]):
    """One annotation: *parse* takes a non-empty value and its field path; *doc* is its text in the reference."""

    key: str
    parse: Callable[[str, str], T]
    doc: str
    field: str = dataclasses.field(init=False)
    """The field path."""

    def __post_init__(self) -> None:
        """Set :attr:`field` once: it is read for each Service."""
        object.__setattr__(self, "field", annotation_field(self.key))

    def read(self, annotations: Mapping[str, str]) -> T | None:
        """The parsed value; None if it is absent or empty. Raises :class:`BadInput`."""
        text = annotations.get(self.key, "").strip()
        return self.parse(text, self.field) if text else None


def parse_namespaced(text: str, field: str) -> str:
    """Read ``<namespace>/<name>``, both DNS names."""
    if not _NAMESPACED.match(text):
        raise BadInput(field, text, "want <namespace>/<name>, both DNS names, such as lb/edge")
    return text


def parse_name(text: str, field: str) -> str:
    """Read the name of a VIPPool."""
    if not _NAME.match(text):
        raise BadInput(field, text, "want the name of a VIPPool, such as edge")
    return text


def parse_addresses(text: str, field: str) -> tuple[Address, ...]:
    """Read comma-separated addresses, each once; blanks around commas are fine, empty items are not."""
    items = text.split(",", names.MAX_VIPS)  # a long list is not read to its end
    if len(items) > names.MAX_VIPS:
        raise BadInput(field, text, f"has more than {names.MAX_VIPS} items; want at most {names.MAX_VIPS} addresses")
    found: dict[Address, None] = {}
    for item in items:
        if not item.strip():
            raise BadInput(field, text, "has an empty item; separate the addresses by single commas")
        address = parse_address(item.strip(), field)
        if address in found:
            raise BadInput(field, text, f"has {address} twice; want each address once")
        found[address] = None
    return tuple(found)


def parse_count(text: str, field: str) -> int:
    """Read the number of addresses per family, from 1 to the number of VIPs that a Service may have."""
    if not _COUNT.match(text) or int(text) > names.MAX_VIPS:
        raise BadInput(field, text, f"want a number from 1 to {names.MAX_VIPS}")
    return int(text)


def parse_bool(text: str, field: str) -> bool:
    """Read ``true`` or ``false``."""
    if text not in ("true", "false"):
        raise BadInput(field, text, 'want "true" or "false"')
    return text == "true"


def parse_key(text: str, field: str) -> str:
    """Read any printable text."""
    if not text.isprintable():
        raise BadInput(field, text, "want printable characters only")
    return text


GROUP: Final = Annotation(
    names.GROUP_ANNOTATION, parse_namespaced, "`<namespace>/<name>` of the KeepalivedGroup that serves the Service"
)
POOL: Final = Annotation(names.POOL_ANNOTATION, parse_name, "name of the VIPPool that the addresses come from")
ADDRESSES: Final = Annotation(
    names.ADDRESSES_ANNOTATION,
    parse_addresses,
    f"comma-separated addresses wanted, at most one per family, or as many as `{names.COUNT_ANNOTATION}` says",
)
COUNT: Final = Annotation(
    names.COUNT_ANNOTATION,
    parse_count,
    f"number of addresses per family, all from one pool; at most {names.MAX_VIPS} over both families; absent: 1",
)
SHARING_KEY: Final = Annotation(
    names.SHARING_KEY_ANNOTATION,
    parse_key,
    "Services of one namespace and group with the same key may share an address while protocol and port differ, and "
    "while they have the same selector where externalTrafficPolicy is Local",
)
REASSIGN: Final = Annotation(
    names.REASSIGN_ANNOTATION,
    parse_bool,
    '`"true"`: kavip may replace an address that is no longer legal, or that another controller wrote',
)

REGISTRY: Final[tuple[Annotation[Any], ...]] = (GROUP, POOL, ADDRESSES, COUNT, SHARING_KEY, REASSIGN)
"""All of them, in the order of the reference."""

FOREIGN: Final[Mapping[str, str]] = {
    "io.cilium/lb-ipam-ips": names.ADDRESSES_ANNOTATION,
    "io.cilium/lb-ipam-sharing-key": names.SHARING_KEY_ANNOTATION,
    "kube-vip.io/loadbalancerIPs": names.ADDRESSES_ANNOTATION,
    "lbipam.cilium.io/ips": names.ADDRESSES_ANNOTATION,
    "lbipam.cilium.io/sharing-key": names.SHARING_KEY_ANNOTATION,
    "metallb.io/address-pool": names.POOL_ANNOTATION,
    "metallb.io/allow-shared-ip": names.SHARING_KEY_ANNOTATION,
    "metallb.io/loadBalancerIPs": names.ADDRESSES_ANNOTATION,
    "metallb.universe.tf/address-pool": names.POOL_ANNOTATION,
    "metallb.universe.tf/allow-shared-ip": names.SHARING_KEY_ANNOTATION,
    "metallb.universe.tf/loadBalancerIPs": names.ADDRESSES_ANNOTATION,
    "purelb.io/addresses": names.ADDRESSES_ANNOTATION,
    "purelb.io/allow-shared-ip": names.SHARING_KEY_ANNOTATION,
    "purelb.io/service-group": names.POOL_ANNOTATION,
}
"""Annotations of other load balancers, and the annotation of kavip with the same meaning."""

_OPERATOR_NAMES: Final = (
    "keepalivedgroup",
    "verbatimconfig",
    "spreadvips",
)  # with another prefix they have no effect
_SIMILAR: Final = 0.5  # of 1; a suggestion that is far off can do harm, as kavip.io/reassign
_MAX_REMARKS: Final = 16  # the API server returns 4 KiB of warnings at most; comparing keys takes time


def remarks(annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """Warnings, sorted: empty values, unknown keys of kavip, and keys of other load balancers."""
    found: list[str] = []
    given = annotations or {}
    for key, value in sorted(given.items()):
        if len(found) == _MAX_REMARKS:
            break
        if key in names.SERVICE_ANNOTATIONS:
            if not value.strip():
                found.append(f"{annotation_field(key)}: is empty and counts as absent; remove it")
        elif is_unknown(key):
            found.append(unknown(key))
        elif (ours := FOREIGN.get(key)) and ours not in given:
            found.append(
                f"{annotation_field(key)}: is for another load balancer, and kavip does not read it; set {ours}"
            )
    return tuple(found)


def is_unknown(key: str) -> bool:
    """Whether *key* looks like an annotation of kavip or keepalived-operator, but is unknown."""
    is_like_ours = key.startswith(names.ANNOTATION_PREFIXES) or key.rpartition("/")[2] in _OPERATOR_NAMES
    return is_like_ours and key not in names.SERVICE_ANNOTATIONS


def unknown(key: str, kind: str = names.SERVICE) -> str:
    """
    The warning about a key that kavip does not read on a *kind*.

    It names the kind where the key belongs, or the most similar key, which may have another prefix.
    """
    owners = {**dict.fromkeys(names.SERVICE_ANNOTATIONS, names.SERVICE), **names.OTHER_ANNOTATIONS}
    field = annotation_field(key[:80])
    if key in owners:
        return f"{field}: has an effect only on a {owners[key]}; remove it here"
    choice = {known.rpartition("/")[2]: known for known, owner in owners.items() if owner == kind}
    nearest = get_close_matches(key[:80].partition("/")[2].lower(), choice, 1, _SIMILAR)
    hint = f"; did you mean {choice[nearest[0]]}?" if nearest else ", so it has no effect; remove it"
    return f"{field}: kavip does not know this key{hint}"


def unknown_on(kind: str, annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """Warnings about the keys of kavip that have no effect on a *kind* other than Service, sorted."""
    found = sorted(key for key in annotations or () if key.startswith(names.ANNOTATION_PREFIXES))
    return tuple(unknown(key, kind) for key in found if names.OTHER_ANNOTATIONS.get(key) != kind)[:_MAX_REMARKS]
