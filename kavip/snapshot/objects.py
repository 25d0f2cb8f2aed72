"""The kinds of objects that a Snapshot holds."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kavip import names
from kavip.api.cluster import Infrastructure, Namespace, Network, Node, ServiceCIDR
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice

Object = Service | KeepalivedGroup | VIPPool | Node | Namespace | Network | Infrastructure | EndpointSlice | ServiceCIDR

KINDS: Final[Mapping[type, str]] = MappingProxyType(
    {
        Service: names.SERVICE,
        KeepalivedGroup: names.KEEPALIVED_GROUP,
        VIPPool: names.VIP_POOL,
        Node: names.NODE,
        Namespace: names.NAMESPACE,
        Network: names.NETWORK,
        Infrastructure: names.INFRASTRUCTURE,
        EndpointSlice: names.ENDPOINT_SLICE,
        ServiceCIDR: names.SERVICE_CIDR,
    }
)
"""The name of each kind."""
