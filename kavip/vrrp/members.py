"""
What a group's configuration is made from: its Services as :class:`Member` values, its Nodes as :class:`Peer` values.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Final

from kavip.api.address import Address
from kavip.api.cluster import Node
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.names import MAX_VIPS, SPREAD_ANNOTATION, VERBATIM_ANNOTATION, Reason
from kavip.vrrp import verbatim
from kavip.vrrp.grammar import Line

_FOLLOWS: Final = (
    "with externalTrafficPolicy: Local the VIP must follow the endpoints, and so it would stay; "
    "remove it, or want Cluster"
)
_SLOT: Final = re.compile(r"group/[0-9]+")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """
    One Service of a group.

    *spread* wants an instance per address. *local* wants instances of its own, also in Shared mode. *problem* is what
    is wrong with the Service's own lines: it is served without them, for a VIP is worth more than a tuned one.
    *is_plain*: there is nothing special about it as far as it can be told without another Service.
    """

    key: str
    addresses: tuple[Address, ...]
    created: str = ""
    spread: bool = False
    local: bool = False
    lines: tuple[Line, ...] = ()
    problem: Refusal | None = None
    is_plain: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Tell once what is asked of thousands."""
        is_plain = not (self.local or self.lines or self.problem) and is_name(self.key)
        object.__setattr__(self, "is_plain", is_plain)

    @property
    def age_key(self) -> tuple[str, str]:
        """Sorts the older Service first; ties by key. One without a timestamp is the youngest."""
        return self.created or "~", self.key


@dataclass(frozen=True, slots=True)
class Peer:
    """
    One node of a group; its addresses are those from which its advertisements come.

    *heard*: further ones at which the others listen to it already, or still. One that is not *listed* has no priority.
    """

    name: str
    ipv4: Address | None = None
    ipv6: Address | None = None
    heard: tuple[Address, ...] = ()
    is_listed: bool = True

    def address(self, family: int) -> Address | None:
        """The node's address of *family*."""
        return self.ipv4 if family == 4 else self.ipv6

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All of its addresses, sorted."""
        return tuple(sorted({*filter(None, (self.ipv4, self.ipv6)), *self.heard}))


def member_of(service: Service, group: KeepalivedGroup) -> Member:
    """*service* as a member of *group*."""
    found = verbatim_of(service, group.spec)
    problem = verbatim.summary(found.refusals)
    ingress = service.ingress_addresses if service.is_load_balancer else ()
    return Member(
        key=service.key,
        addresses=served((*ingress, *service.judged_addresses)),
        created=service.metadata.creation_timestamp or "",
        spread=service.metadata.annotation(SPREAD_ANNOTATION) == "true",
        local=service.is_local,
        lines=() if problem else found.lines,
        problem=problem,
    )


def verbatim_of(service: Service, spec: GroupSpec | None) -> verbatim.Findings:
    """
    What becomes of the lines that *service* asks for in a group of *spec*, which may be unknown.

    Where each node finds its interface by itself, any name may be that of the instance's own, and keepalived refuses
    to track that: so none but the group's, which are left out, may be named, whatever the group allows.
    """
    allowed = set(spec.allow_verbatim or ()) if spec else set()
    if spec and spec.interface_from_ip:
        allowed.discard("track_interface")
    text = service.metadata.annotation(VERBATIM_ANNOTATION)
    found = verbatim.read_service(text, allowed=allowed, interfaces=interfaces_of(spec) if spec else None)
    if service.is_local and any(line.keyword == "nopreempt" for line in found.lines):
        refusal = Refusal.of(Reason.INVALID_VERBATIM, BadInput(verbatim.FIELD, "nopreempt", _FOLLOWS))
        return replace(found, refusals=(*found.refusals, refusal))
    return found


def served(vips: Iterable[Address]) -> tuple[Address, ...]:
    """Those of *vips* that one Service may have, sorted: the first ones, so whoever calls puts the dearest first."""
    return tuple(sorted(islice(dict.fromkeys(vips), MAX_VIPS)))


def peer_of(node: Node) -> Peer:
    """*node* as a member of a group."""
    return Peer(node.metadata.name, node.internal_ip(4), node.internal_ip(6))


def interfaces_of(spec: GroupSpec) -> frozenset[str]:
    """The interfaces that a group names: every node of it must have them."""
    own = {spec.interface, spec.vrrp_interface, *(entry.interface for entry in spec.virtual_ips or ())}
    return frozenset(own - {""})


@lru_cache(16384)
def is_name(key: str) -> bool:
    """
    Whether *key* is ``ns/name`` of DNS names: files may hold what no API server would have taken.

    A name of digits, which Kubernetes may take one day, would be that of a Shared instance in a namespace ``group``.
    """
    parts = key.split("/")
    return len(parts) == 2 and all(_NAME.fullmatch(part) for part in parts) and not _SLOT.fullmatch(key)
