"""
MetalLB's kinds (``metallb.io``), as far as ``kavip import`` reads them, and its annotations.

Read in MetalLB 0.16.1. Its annotations have two prefixes; the older one still works.
"""

from typing import Final

from kavip.api.meta import LabelSelector, Metadata, Passthrough, Wire, field

GROUP: Final = "metallb.io"
VERSION: Final = f"{GROUP}/v1beta1"
PREFIXES: Final = ("metallb.io/", "metallb.universe.tf/")
POOL: Final = "address-pool"
ADDRESSES: Final = "loadBalancerIPs"
SHARING: Final = "allow-shared-ip"
ASSIGNED_POOL: Final = "ip-allocated-from-pool"
"""MetalLB's controller writes it, and removes it when the Service is no LoadBalancer any more."""


class ServiceAllocation(Wire, frozen=True):
    """``spec.serviceAllocation`` of an IPAddressPool. The entries of a list are alternatives."""

    priority: int = 0
    namespaces: list[str] | None = None
    namespace_selectors: list[LabelSelector] | None = None
    service_selectors: list[LabelSelector] | None = None


class AddressPoolSpec(Wire, frozen=True):
    """``spec`` of an IPAddressPool."""

    addresses: list[str] = []
    auto_assign: bool = True
    avoid_buggy_ips: bool = field(name="avoidBuggyIPs", default=False)
    service_allocation: ServiceAllocation | None = None


class L2AdvertisementSpec(Wire, frozen=True):
    """``spec`` of an L2Advertisement; without any selection of pools it advertises all of them."""

    ip_address_pools: list[str] | None = None
    ip_address_pool_selectors: list[LabelSelector] | None = None
    node_selectors: list[LabelSelector] | None = None
    interfaces: list[str] | None = None
    service_selectors: list[LabelSelector] | None = None


class ForeignObject(Wire, frozen=True):
    """An object of another program; *spec* and *data* as they are."""

    kind: str = ""
    metadata: Metadata = Metadata()
    spec: Passthrough = {}
    data: dict[str, str] = {}

    @property
    def subject(self) -> str:
        """Kind and key, as messages name it."""
        return f"{self.kind} {self.metadata.key}"


class L2StatusStatus(Wire, frozen=True):
    """``status`` of a ServiceL2Status."""

    node: str = ""
    service_name: str = ""
    service_namespace: str = ""


class ServiceL2Status(Wire, frozen=True):
    """Which node announces a Service; a speaker writes it, and deletes it when it withdraws."""

    metadata: Metadata = Metadata()
    status: L2StatusStatus = L2StatusStatus()

    @property
    def service(self) -> str:
        """The key of the Service."""
        return f"{self.status.service_namespace}/{self.status.service_name}"
