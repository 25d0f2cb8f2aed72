"""``v1.Service``: the parts that kavip reads."""

from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import Final

from msgspec.structs import force_setattr

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.meta import Condition, Metadata, Wire, field

_COMMON_ANNOTATIONS: Final = frozenset({names.GROUP_ANNOTATION, names.POOL_ANNOTATION})
"""Annotations with the same value on many Services."""
_FAMILIES: Final = {tuple(each): each for each in (["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"])}
"""One list for all Services with these families."""
_FEW_PORTS: Final = 4
_COUNTS: Final = {str(number): number for number in range(1, names.MAX_VIPS + 1)}


class Protocol(StrEnum):
    """``spec.ports[].protocol``: one object for all ports, and no error for a value of a later API."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"
    OTHER = "other"

    @classmethod
    def _missing_(cls, _: object) -> "Protocol":
        return cls.OTHER


class ServicePort(Wire, frozen=True, gc=False):
    """``spec.ports[]``: what decides about a shared address. A Service may have ten thousands of them."""

    protocol: Protocol = Protocol.TCP
    port: int = 0


class ServiceSpec(Wire, frozen=True):
    """``spec``."""

    type: str = "ClusterIP"
    ports: list[ServicePort] | None = None
    selector: dict[str, str] | None = None
    cluster_ip: str = field(name="clusterIP", default="")
    cluster_ips: list[str] | None = field(name="clusterIPs", default=None)
    external_ips: list[str] | None = field(name="externalIPs", default=None)
    load_balancer_ip: str = field(name="loadBalancerIP", default="")
    load_balancer_class: str | None = None
    ip_families: list[str] | None = None
    ip_family_policy: str | None = None
    external_traffic_policy: str = ""
    health_check_node_port: int = 0


class Ingress(Wire, frozen=True, gc=False):
    """``status.loadBalancer.ingress[]``."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None


class LoadBalancer(Wire, frozen=True):
    """``status.loadBalancer``."""

    ingress: list[Ingress] | None = None


class ServiceStatus(Wire, frozen=True):
    """``status``."""

    load_balancer: LoadBalancer = LoadBalancer()
    conditions: list[Condition] | None = None


class Service(Wire, frozen=True):
    """A Service."""

    metadata: Metadata = Metadata()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.metadata.key

    @property
    def is_load_balancer(self) -> bool:
        """Whether ``type: LoadBalancer``."""
        return self.spec.type == "LoadBalancer"

    @property
    def has_foreign_class(self) -> bool:
        """Whether ``spec.loadBalancerClass`` names another controller, which announces the addresses."""
        return self.spec.load_balancer_class not in (None, "", names.LOAD_BALANCER_CLASS)

    @property
    def is_local(self) -> bool:
        """Whether only nodes with a ready endpoint answer on its VIPs."""
        return self.spec.external_traffic_policy == "Local"

    @property
    def follows_slices(self) -> bool:
        """Whether its VIPs follow its EndpointSlices; a LoadBalancer has a health port of kube-proxy instead."""
        return self.is_local and not self.is_load_balancer

    @property
    def needs_slices(self) -> bool:
        """
        Whether its EndpointSlices decide anything: where its VIPs are, or over which nodes they are spread.

        Where no node of its group has an endpoint, they also say which other nodes have one.
        """
        return self.is_local and (not self.is_load_balancer or self.is_spread or self._lacks_endpoints)

    @property
    def _lacks_endpoints(self) -> bool:
        """Whether its condition says that its VIPs do not answer for want of endpoints."""
        stored = conditions.find(self.status.conditions, names.ConditionType.ADVERTISED)
        return stored is not None and stored.reason in (names.Reason.NO_ENDPOINTS, names.Reason.ENDPOINTS_OUTSIDE_GROUP)

    @property
    def is_spread(self) -> bool:
        """Whether its VIPs are spread over the nodes."""
        return self.metadata.annotation(names.SPREAD_ANNOTATION) == "true"

    @property
    def requested_addresses(self) -> tuple[Address, ...]:
        """The readable addresses that a LoadBalancer requests by name, at most as many as a Service may have."""
        if not self.is_load_balancer:
            return ()
        listed = self.metadata.annotation(names.ADDRESSES_ANNOTATION).split(",", names.MAX_VIPS)[: names.MAX_VIPS]
        found = (read_address(text.strip()) for text in (*listed, self.spec.load_balancer_ip))
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def preferred_nodes(self) -> str:
        """The label selector of the nodes that it prefers, as text, or ""."""
        return self.metadata.annotation(names.PREFERRED_NODES_ANNOTATION).strip()

    @property
    def ingress_addresses(self) -> tuple[Address, ...]:
        """The addresses in status, in their order; host names and unreadable entries left out."""
        entries = self.status.load_balancer.ingress
        if not entries:
            return ()
        found = [address for entry in entries if (address := read_address(entry.ip))]
        return tuple(dict.fromkeys(found)) if len(found) > 1 else tuple(found)

    @property
    def external_addresses(self) -> tuple[Address, ...]:
        """The readable addresses among the first ``spec.externalIPs``, in their order."""
        listed = self.spec.external_ips
        if not listed:
            return ()
        return tuple(dict.fromkeys(filter(None, map(read_address, listed[: names.MAX_EXTERNAL_IPS]))))

    @property
    def selects_kavip(self) -> bool:
        """Whether its own annotation or class selects kavip, so that the webhook validates its external IPs."""
        return bool(self.declared_group) or self.spec.load_balancer_class == names.LOAD_BALANCER_CLASS

    @property
    def validated_external_ips(self) -> tuple[Address, ...]:
        """
        The ``spec.externalIPs`` that admission has validated: none if only the default group makes kavip manage it.

        A Service in deletion has in the Snapshot only those that it holds.
        """
        return self.external_addresses if self.spec.external_ips and self.selects_kavip else ()

    @property
    def virtual_ips(self) -> tuple[Address, ...]:
        """The VIPs of the Service: the union of status and ``externalIPs``, sorted."""
        shown, external = self.ingress_addresses if self.is_load_balancer else (), self.external_addresses
        return tuple(sorted({*shown, *external})) if external or len(shown) > 1 else shown

    @property
    def address_count(self) -> int | None:
        """The number of addresses per family that an annotation requests; None if it is absent or malformed."""
        return _COUNTS.get(self.metadata.annotation(names.COUNT_ANNOTATION))

    @property
    def declared_group(self) -> str:
        """The value of the group annotation, or ""."""
        return self.metadata.annotation(names.GROUP_ANNOTATION)


def share_texts(service: Service) -> Service:
    """
    Replace the texts in *service* that other Services have too by one string for all of them; returns *service*.

    It changes an immutable object, so it is for one that was just decoded. The values stay equal.
    """
    spec, status, notes = service.spec, service.status, service.metadata.annotations or {}
    _share(service.metadata, "namespace")
    for key in notes.keys() & _COMMON_ANNOTATIONS:
        notes[key] = intern(notes[key])
    _share(spec, "type", "ip_family_policy")
    if (families := _FAMILIES.get(tuple(spec.ip_families or ()))) is not None:
        force_setattr(spec, "ip_families", families)
    if spec.ports and len(spec.ports) <= _FEW_PORTS:
        force_setattr(spec, "ports", _one_list(tuple(spec.ports)))
    if spec.cluster_ips and spec.cluster_ips[0] == spec.cluster_ip:
        force_setattr(spec, "cluster_ip", spec.cluster_ips[0])
    for entry in status.load_balancer.ingress or ():
        _share(entry, "ip_mode")
    for condition in status.conditions or ():
        _share(condition, "type", "status", "reason", "last_transition_time")
        if condition.type == names.ConditionType.SERVICE_PROGRAMMED:  # it says the same of all Services of a group
            _share(condition, "message")
    return service


@lru_cache(4096)
def _one_list(ports: tuple[ServicePort, ...]) -> list[ServicePort]:
    """One list for all Services with these *ports*; nothing changes it."""
    return list(ports)


def _share(part: Wire, *fields: str) -> None:
    for name in fields:
        text = getattr(part, name)
        if text is not None:
            force_setattr(part, name, intern(text if type(text) is str else str(text)))  # no member of an enum
