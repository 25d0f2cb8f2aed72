"""Builders of objects: a few words make a whole object."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kavip import names
from kavip.api.cluster import (
    ExternalIP,
    ExternalIPPolicy,
    Infrastructure,
    InfrastructureStatus,
    Namespace,
    Network,
    NetworkSpec,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    PlatformStatus,
    PlatformVIPs,
    ServiceCIDR,
    ServiceCIDRSpec,
    Taint,
)
from kavip.api.group import GroupSpec, GroupStatus, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.service import Ingress, LoadBalancer, Service, ServicePort, ServiceSpec, ServiceStatus
from kavip.api.slice import Endpoint, EndpointConditions, EndpointSlice

T = TypeVar("T", bound=Service | KeepalivedGroup | VIPPool)


def metadata(key: str, **more: Any) -> Metadata:
    """Metadata of ``ns/name`` (or ``name``), old enough to be sorted by name."""
    namespace, _, name = key.rpartition("/")
    settled = {"uid": f"uid-{key}", "resource_version": "1", "creation_timestamp": "2026-01-01T00:00:00Z"}
    return Metadata(name=name, namespace=namespace, **{**settled, **more})


def service(
    key: str,
    *,
    group: str = "",
    pool: str = "",
    wants: str = "",
    holds: Sequence[str] = (),
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    type: str = "LoadBalancer",  # noqa: A002 - the field's own name
    families: Sequence[str] = ("IPv4",),
    port: int = 80,
    **spec: Any,
) -> Service:
    """A Service ``ns/name``; *holds* are addresses in its status, *wants* the addresses annotation."""
    given = {names.GROUP_ANNOTATION: group, names.POOL_ANNOTATION: pool, names.ADDRESSES_ANNOTATION: wants}
    notes = {**{name: value for name, value in given.items() if value}, **(annotations or {})}
    return Service(
        metadata=metadata(key, annotations=notes or None, labels=labels, creation_timestamp=created),
        spec=ServiceSpec(
            **{"type": type, "ip_families": list(families), "ports": [ServicePort(port=port)], **spec},
        ),
        status=ServiceStatus(
            load_balancer=LoadBalancer(
                ingress=[Ingress(ip=text, ip_mode=names.IP_MODE_VIP) for text in holds] or None,
            ),
        ),
    )


def group(
    key: str = "lb/edge",
    *,
    default: bool = False,
    router_ids: dict[str, int] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> KeepalivedGroup:
    """A KeepalivedGroup on eth0."""
    labels = {names.DEFAULT_GROUP_LABEL: "true"} if default else None
    return KeepalivedGroup(
        metadata=metadata(key, labels=labels, creation_timestamp=created, generation=1),
        spec=GroupSpec(**{"interface": "eth0", **spec}),
        status=GroupStatus(router_ids=router_ids),
    )


def in_deletion(found: T) -> T:
    """*found* in deletion, as a finalizer keeps it."""
    metadata = msgspec.structs.replace(found.metadata, deletion_timestamp="2026-05-01T00:00:00Z", finalizers=["a/b"])
    return msgspec.structs.replace(found, metadata=metadata)


def pool(name: str = "edge", *addresses: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> VIPPool:
    """A VIPPool; without addresses 192.0.2.128/28."""
    return VIPPool(
        metadata=metadata(name, creation_timestamp=created, generation=1),
        spec=PoolSpec(addresses=list(addresses) or ["192.0.2.128/28"], **spec),
    )


def node(
    name: str,
    *addresses: str,
    labels: dict[str, str] | None = None,
    taints: Sequence[str] = (),
    kind: str = "InternalIP",
    pod_cidrs: Sequence[str] = (),
) -> Node:
    """A Node with addresses of this *kind*; *taints* as kubectl writes them, ``key=value:effect``."""
    parted = ((*text.rpartition(":")[0].partition("="), text.rpartition(":")[2]) for text in taints)
    return Node(
        metadata=metadata(name, labels=labels),
        spec=NodeSpec(
            taints=[Taint(key=key, value=value, effect=effect) for key, _, value, effect in parted] or None,
            pod_cidrs=list(pod_cidrs) or None,
        ),
        status=NodeStatus(addresses=[NodeAddress(type=kind, address=text) for text in addresses]),
    )


def not_ready(found: Node, status: str = "False") -> Node:
    """The same node, not ready; *status* "Unknown": its kubelet is silent."""
    down = msgspec.structs.replace(found.status, conditions=[NodeCondition(type="Ready", status=status)])
    return msgspec.structs.replace(found, status=down)


def namespace(name: str, **labels: str) -> Namespace:
    """A Namespace with labels."""
    return Namespace(metadata=metadata(name, labels={"kubernetes.io/metadata.name": name, **labels}))


def endpoints(key: str, *ready: str, draining: Sequence[str] = (), addresses: Sequence[str] = ()) -> EndpointSlice:
    """An EndpointSlice of Service ``ns/name``: nodes with a *ready* or a *draining* endpoint."""
    ends = EndpointConditions(ready=False, serving=True, terminating=True)
    found = [
        *(Endpoint(node_name=name, conditions=EndpointConditions(ready=True)) for name in ready),
        *(Endpoint(node_name=name, conditions=ends) for name in draining),
        *(Endpoint(addresses=[text]) for text in addresses),
    ]
    labels = {names.SERVICE_NAME_LABEL: key.rpartition("/")[2]}
    return EndpointSlice(metadata=metadata(f"{key}-x1", labels=labels), endpoints=found)


def service_range(*cidrs: str, name: str = "kubernetes") -> ServiceCIDR:
    """The Service ranges of the cluster."""
    return ServiceCIDR(metadata=metadata(name), spec=ServiceCIDRSpec(cidrs=list(cidrs)))


def network(*assigns: str, **policy: list[str]) -> Network:
    """OpenShift's Network that *assigns* from these CIDRs, with this policy for external IPs; without one: none."""
    rules = ExternalIP(
        policy=ExternalIPPolicy(**policy) if policy else None, auto_assign_cidrs=list(assigns) if assigns else None
    )
    return Network(metadata=metadata("cluster"), spec=NetworkSpec(external_ip=rules))


def infrastructure(name: str) -> Infrastructure:
    """OpenShift's Infrastructure of a cluster on bare metal with this *name*."""
    return Infrastructure(
        metadata=metadata("cluster"),
        status=InfrastructureStatus(
            api_server_internal_uri=f"https://api-int.{name}.example.com:6443",
            platform_status=PlatformStatus(baremetal=PlatformVIPs(api_server_internal_ips=["192.0.2.5"])),
        ),
    )
