"""
The input of a group's configuration: its Services as :class:`Member`, its nodes as :class:`Peer`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Final

from kavip.api.address import Address
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.pool import PoolInterface
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.names import MAX_VIPS, VERBATIM_ANNOTATION, Reason
from kavip.vrrp import verbatim
from kavip.vrrp.drain import NO_TURNS, Turns, undrained_among
from kavip.vrrp.grammar import Line

_FOLLOWS: Final = (
    "with externalTrafficPolicy: Local the VIP must follow the endpoints, which nopreempt prevents; "
    "remove it, or use Cluster"
)
_SHARED_INSTANCE: Final = re.compile(r"group/[0-9]+(\..*)?")
InterfaceOf = Callable[[Address], PoolInterface | None]
"""The interface that the pool of an address names; None: it is that of the group."""

_NO_POOLS: Final[frozenset[str]] = frozenset()
"""One for all Services: an empty set has 216 bytes."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """
    One Service of a group.

    *spread*: it has an instance per address, on nodes that are chosen together. *local*: its instances follow the
    endpoints. *shared*: the addresses for which no VRID is left: they stay in a Shared instance. *problem*: why its own
    lines are refused; it is served without them, because a VIP without its tuning is better than none. *endpoints*: the
    nodes with a ready endpoint, where its VIPs are spread over these only. *preferred_selector*: the nodes that it
    prefers, as a selector in text; "" in a Shared instance. *preferred*: the names of these nodes. *interfaces*: by
    address, in their order, those that are not the group's; *routed_by*: the pools that route its replies. *is_plain*:
    it depends on no other Service.
    """

    key: str
    addresses: tuple[Address, ...]
    created: str = ""
    spread: bool = False
    local: bool = False
    shared: tuple[Address, ...] = ()
    lines: tuple[Line, ...] = ()
    problem: Refusal | None = None
    endpoints: frozenset[str] = frozenset()
    preferred_selector: str = ""
    preferred: frozenset[str] = frozenset()
    interfaces: tuple[tuple[Address, str], ...] = ()
    routed_by: frozenset[str] = frozenset()
    is_plain: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Set :attr:`is_plain` once: it is read for thousands of members."""
        is_plain = not (self.has_own_instances or self.lines or self.problem) and is_name(self.key)
        object.__setattr__(self, "is_plain", is_plain)

    @property
    def has_own_instances(self) -> bool:
        """Whether it has instances of its own, also in Shared mode."""
        return self.spread or self.local

    def addresses_by_interface(self) -> Mapping[str, tuple[Address, ...]]:
        """Its addresses by interface; "": that of the group."""
        if not self.interfaces:
            return {"": self.addresses}
        places, found = dict(self.interfaces), dict[str, list[Address]]()
        for address in self.addresses:
            found.setdefault(places.get(address, ""), []).append(address)
        return {interface: tuple(some) for interface, some in sorted(found.items())}

    @property
    def age_key(self) -> tuple[str, str]:
        """The sort key by age: oldest first, then by key; without a timestamp a Service counts as the youngest."""
        return self.created or "~", self.key


@dataclass(frozen=True, slots=True)
class Peer:
    """
    One node of a group; its advertisements come from *ipv4* and *ipv6*.

    *accepted*: further addresses from which the others accept its adverts. A node that is not *listed* has no priority.
    *preference*: a node with a higher one ranks before a node with a lower one. *drain_turn*: see
    :data:`kavip.vrrp.drain.Turns`; 0: it is not drained. A drained node ranks last, and one that is *lacking* an
    interface ranks before these, for the instances that need it.
    """

    name: str
    ipv4: Address | None = None
    ipv6: Address | None = None
    accepted: tuple[Address, ...] = ()
    is_listed: bool = True
    preference: int = 0
    drain_turn: int = 0
    lacking: frozenset[str] = frozenset()

    def address(self, family: int) -> Address | None:
        """The node's address of *family*."""
        return self.ipv4 if family == 4 else self.ipv6

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All of its addresses, sorted."""
        return tuple(sorted({*filter(None, (self.ipv4, self.ipv6)), *self.accepted}))


def no_interface(_: Address) -> None:
    """The interface of an address that is in no pool."""


def turns_of(peers: Iterable[Peer]) -> Turns:
    """The turns of those of *peers* that are drained, by name."""
    return {peer.name: peer.drain_turn for peer in peers if peer.drain_turn}


def behind_of(able: Collection[str], turns: Turns, lacking: Collection[str] = ()) -> Mapping[str, int]:
    """
    The nodes that rank behind all others, those with the highest number last.

    They are the ones *lacking* an interface, and behind these the drained ones, the first of *turns* last. If all nodes
    *able* to hold the VIPs are drained, those that were drained last keep their rank, so that nothing moves.
    """
    if not turns:
        return dict.fromkeys(lacking, 1) if lacking else NO_TURNS
    last, keeping = max(turns.values()), undrained_among(able, turns)
    drained = {name: 2 + last - turn for name, turn in turns.items() if name not in keeping}
    return dict.fromkeys(lacking, 1) | drained


def lacking_of(peers: Iterable[Peer], interfaces: Collection[str]) -> frozenset[str]:
    """The names of those of *peers* that are lacking one of *interfaces*."""
    return frozenset(peer.name for peer in peers if not peer.lacking.isdisjoint(interfaces))


def member_of(
    service: Service,
    group: KeepalivedGroup,
    interface_of: InterfaceOf = no_interface,
    *,
    vips: tuple[Address, ...] | None = None,
) -> Member:
    """
    *service* as a member of *group*; *interface_of* says where its addresses live.

    *vips*: those that it should have, if they are not the ones that it has (:func:`served`).
    """
    found = verbatim_of(service, group.spec)
    problem = verbatim.summary(found.refusals) if found.refusals else None
    addresses = served_of(service) if vips is None else vips
    places = [(each, place) for each in addresses if (place := interface_of(each))]
    return Member(
        key=service.key,
        addresses=addresses,
        created=service.metadata.creation_timestamp or "",
        spread=service.is_spread,
        local=service.is_local,
        lines=() if problem else found.lines,
        problem=problem,
        preferred_selector=service.preferred_nodes if has_own_instances(service) or not group.is_shared else "",
        interfaces=tuple((each, place.interface) for each, place in places if place.interface != group.spec.interface),
        routed_by=frozenset(place.pool for _, place in places if place.is_routed) if places else _NO_POOLS,
    )


def has_own_instances(service: Service) -> bool:
    """Whether *service* has instances of its own, also in Shared mode."""
    return service.is_local or service.is_spread


def verbatim_of(service: Service, spec: GroupSpec | None) -> verbatim.VerbatimResult:
    """
    The lines of *service* in a group with *spec*, and the refused ones; None: the group is unknown.

    keepalived refuses to track an instance's own interface. With ``interfaceFromIP`` each node finds that interface by
    itself, so any name may be it. Then ``track_interface`` may name only the group's interfaces, which are not
    rendered, even where the group allows others.
    """
    text = service.metadata.annotation(VERBATIM_ANNOTATION)
    if not text:
        return verbatim.NO_LINES
    allowed = set(spec.allow_verbatim or ()) if spec else set()
    if spec and spec.interface_from_ip:
        allowed.discard("track_interface")
    found = verbatim.read_service(text, allowed=allowed, interfaces=interfaces_of(spec) if spec else None)
    if service.is_local and any(line.keyword == "nopreempt" for line in found.lines):
        refusal = Refusal.of(Reason.INVALID_VERBATIM, BadInput(verbatim.FIELD, "nopreempt", _FOLLOWS))
        return replace(found, refusals=(*found.refusals, refusal))
    return found


def served_of(service: Service) -> tuple[Address, ...]:
    """The VIPs that *service* has: those in its status, and its validated external IPs."""
    ingress = service.ingress_addresses if service.is_load_balancer else ()
    return served((*ingress, *service.validated_external_ips))


def served(vips: Iterable[Address]) -> tuple[Address, ...]:
    """The first of *vips*, as many as one Service may have, sorted; callers put the most important ones first."""
    return tuple(sorted(islice(dict.fromkeys(vips), MAX_VIPS)))


def interfaces_of(spec: GroupSpec) -> frozenset[str]:
    """The interfaces that a group names: each of its nodes must have them."""
    own = {spec.interface, spec.vrrp_interface, *(entry.interface for entry in spec.virtual_ips or ())}
    return frozenset(own - {""})


@lru_cache(2048)
def is_name(key: str) -> bool:
    """
    Whether *key* is ``ns/name`` of DNS names: files may hold objects that no API server would accept.

    ``group/`` and digits, alone or before a dot, is refused: it would be the name of a Shared instance. Kubernetes may
    one day allow Services with such names.
    """
    parts = key.split("/")
    return len(parts) == 2 and all(_NAME.fullmatch(part) for part in parts) and not _SHARED_INSTANCE.fullmatch(key)
