"""
The rules of addresses for the checker: a second, simpler implementation that imports nothing of kavip.

They cover what the histories do: two families, pools by name, explicit addresses, sharing within a namespace.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

Ip = IPv4Address | IPv6Address

CLASS: Final = "kavip.io/keepalived"
POOL: Final = "kavip.io/pool"
ADDRESSES: Final = "kavip.io/addresses"
SHARING: Final = "kavip.io/sharing-key"
_FAMILIES: Final = {"IPv4": 4, "IPv6": 6}


@dataclass(slots=True)
class Service:
    """A Service at one moment."""

    key: str
    uid: str
    born: str
    version: int
    spec: Mapping[str, Any]
    notes: Mapping[str, str]
    status: Mapping[str, Any]
    held: tuple[Ip, ...] = field(default=())

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Service":
        """Read the object *body*."""
        metadata, status = body["metadata"], body.get("status", {})
        ingress = status.get("loadBalancer", {}).get("ingress") or ()
        return cls(
            key=f"{metadata['namespace']}/{metadata['name']}",
            uid=metadata["uid"],
            born=metadata["creationTimestamp"],
            version=int(metadata["resourceVersion"]),
            spec=body["spec"],
            notes=metadata.get("annotations") or {},
            status=status,
            held=tuple(ip_address(entry["ip"]) for entry in ingress if entry.get("ip")),
        )

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.key.partition("/")[0]

    @property
    def is_managed(self) -> bool:
        """Whether kavip assigns addresses to the Service; every history has a default group."""
        return self.spec.get("type") == "LoadBalancer" and self.spec.get("loadBalancerClass") in (None, CLASS)

    @property
    def families(self) -> tuple[int, ...]:
        """The families that it has."""
        return tuple(_FAMILIES[name] for name in self.spec.get("ipFamilies") or ("IPv4",))

    @property
    def needs_all(self) -> bool:
        """Whether the Service needs an address of each family."""
        return self.spec.get("ipFamilyPolicy") == "RequireDualStack"

    @property
    def ports(self) -> frozenset[tuple[str, int]]:
        """Its protocols and ports."""
        return frozenset((port.get("protocol", "TCP"), port["port"]) for port in self.spec.get("ports") or ())

    @property
    def wanted(self) -> dict[int, Ip]:
        """The explicitly requested address of each family."""
        text = self.notes.get(ADDRESSES, "")
        found = [ip_address(part.strip()) for part in text.split(",") if part.strip()]
        return {address.version: address for address in found}

    @property
    def pool(self) -> str:
        """The explicitly requested pool, or ""."""
        return self.notes.get(POOL, "")

    def shares_with(self, other: "Service") -> bool:
        """Whether the two may share an address."""
        mine, theirs = (
            (each.namespace, each.notes.get(SHARING, ""), each.spec.get("externalTrafficPolicy") == "Local")
            for each in (self, other)
        )
        if mine != theirs or not mine[1] or self.ports & other.ports:
            return False
        return not mine[2] or self.spec.get("selector") == other.spec.get("selector")


@dataclass(slots=True, eq=False)
class Pool:
    """A pool at one moment."""

    name: str
    spans: list[tuple[Ip, Ip]]
    excluded: list[tuple[Ip, Ip]]
    is_automatic: bool
    status: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Pool":
        """Read the object *body*."""
        spec = body["spec"]
        return cls(
            name=body["metadata"]["name"],
            spans=[span(text) for text in spec["addresses"]],
            excluded=[span(text) for text in spec.get("exclude") or ()],
            is_automatic=spec.get("autoAssign", True),
            status=body.get("status", {}),
        )

    def covers(self, address: Ip) -> bool:
        """Whether *address* is in its ranges, excluded or not."""
        return _within(address, self.spans)

    def gives(self, address: Ip) -> bool:
        """Whether *address* is in its ranges and not excluded."""
        return self.covers(address) and not _within(address, self.excluded)

    def addresses(self, family: int) -> Iterator[Ip]:
        """Its assignable addresses of *family*; the pools of a history are small."""
        for first, last in self.spans:
            if first.version == family:
                for number in range(int(last) - int(first) + 1):
                    if self.gives(address := first + number):
                        yield address


def span(text: str) -> tuple[Ip, Ip]:
    """First and last address of a CIDR, or of ``first-last``."""
    if "/" in text:
        network = ip_network(text)
        return network[0], network[-1]
    first, _, last = text.partition("-")
    return ip_address(first), ip_address(last or first)


def _within(address: Ip, spans: list[tuple[Ip, Ip]]) -> bool:
    return any(first.version == address.version and int(first) <= int(address) <= int(last) for first, last in spans)


def place(address: Ip, pools: Mapping[str, Pool]) -> Pool | None:
    """The pool that *address* belongs to."""
    return next((pool for _, pool in sorted(pools.items()) if pool.covers(address)), None)


def cause(service: Service, address: Ip, pools: Mapping[str, Pool]) -> str:
    """The reason why *service* may lose *address* without a conflict; "" if the Service must keep it."""
    if not service.is_managed:
        return "it is not managed"
    if address.version not in service.families:
        return "it does not have the family"
    wanted = service.wanted.get(address.version)
    if wanted is not None:
        return "" if wanted == address else "it requests another address"
    home = place(address, pools)
    if home is None:
        return ""
    chosen = {service.pool} | {found.name for each in service.wanted.values() if (found := place(each, pools))}
    return "it requests another pool" if chosen - {"", home.name} else ""
