"""Other objects that kavip reads: Nodes, Namespaces, Pods, Secrets, ServiceCIDRs, and two of OpenShift."""

from typing import Final

from kavip.api.address import Address, read_address
from kavip.api.meta import Metadata, Wire, field
from kavip.api.text import one_line
from kavip.api.workload import Container


class NodeAddress(Wire, frozen=True):
    """``status.addresses[]``."""

    type: str
    address: str


class NodeCondition(Wire, frozen=True):
    """``status.conditions[]``."""

    type: str
    status: str


class Taint(Wire, frozen=True):
    """``spec.taints[]``."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Wire, frozen=True):
    """``spec``."""

    taints: list[Taint] | None = None
    unschedulable: bool = False
    pod_cidrs: list[str] | None = field(name="podCIDRs", default=None)


class NodeStatus(Wire, frozen=True):
    """``status``."""

    addresses: list[NodeAddress] | None = None
    conditions: list[NodeCondition] | None = None


MAX_NODE_ADDRESSES: Final = 64
"""At most so many are read from one Node: a compromised node could otherwise list every address of a pool."""


class Node(Wire, frozen=True):
    """A Node."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def addresses(self, *types: str) -> tuple[Address, ...]:
        """
        The readable addresses of *types* (``InternalIP``, ``ExternalIP``) among the first ones, in their order.

        Without *types*, those of all types: a host name may be an address too.
        """
        first = (self.status.addresses or ())[:MAX_NODE_ADDRESSES]
        found = (read_address(entry.address) for entry in first if not types or entry.type in types)
        return tuple(address for address in found if address)

    @property
    def is_ready(self) -> bool:
        """Whether the Ready condition is True; a node without it, for example from a file, counts as ready."""
        return all(entry.status == "True" for entry in self.status.conditions or () if entry.type == "Ready")

    @property
    def host_addresses(self) -> tuple[Address, ...]:
        """Its InternalIPs, or its ExternalIPs if it has no InternalIP: kubelet chooses ``hostIP`` in the same way."""
        return self.addresses("InternalIP") or self.addresses("ExternalIP")

    def internal_ip(self, family: int) -> Address | None:
        """The first of :attr:`host_addresses` that is of *family*; None if there is none."""
        return next((address for address in self.host_addresses if address.family == family), None)


class Namespace(Wire, frozen=True):
    """A Namespace; its labels matter to selectors."""

    metadata: Metadata = Metadata()


class PodCondition(Wire, frozen=True):
    """``status.conditions[]``."""

    type: str
    status: str
    message: str = ""


class Waiting(Wire, frozen=True):
    """``status.containerStatuses[].state.waiting``."""

    reason: str = ""


class Terminated(Wire, frozen=True):
    """``status.containerStatuses[].state.terminated``."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(Wire, frozen=True):
    """``status.containerStatuses[].state``."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """``status.containerStatuses[]``."""

    name: str = ""
    image: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    restart_count: int = 0

    @property
    def problem(self) -> str:
        """
        Why the container does not start or does not stay up; "" if it runs.

        The text stays the same as long as the cause does.
        """
        reason = self.state.waiting.reason if self.state.waiting else ""
        if reason in _PULL_REASONS:  # kubelet alternates between these reasons
            return f"image {one_line(self.image)} cannot be pulled"
        if reason in _CREATE_REASONS:
            return reason
        name, ended = one_line(self.name), self.state.terminated or self.last_state.terminated
        if ended is not None and ended.reason == _OUT_OF_MEMORY:
            return f"container {name} needs more memory than its limit (OOMKilled): see spec.resources, LimitRange"
        if ended is not None and ended.exit_code and self.restart_count > 1:
            return f"container {name} exits again and again with exit code {ended.exit_code}: see its log"
        return ""


class PodStatus(Wire, frozen=True):
    """``status``."""

    conditions: list[PodCondition] | None = None
    host_ip: str = field(name="hostIP", default="")
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


class PodSpec(Wire, frozen=True):
    """``spec``."""

    node_name: str = ""
    containers: list[Container] | None = None


class Pod(Wire, frozen=True):
    """A Pod of a group's DaemonSet."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the Ready condition is True."""
        return any(entry.type == "Ready" and entry.status == "True" for entry in self.status.conditions or ())

    @property
    def problem(self) -> str:
        """Why the pod cannot start, if a user must correct something; "" otherwise."""
        for entry in self.status.conditions or ():
            if entry.type == "PodScheduled" and entry.status == "False":
                return one_line(entry.message)
        every = [*(self.status.init_container_statuses or ()), *(self.status.container_statuses or ())]
        return next((each.problem for each in every if each.problem), "")


_PULL_REASONS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
_CREATE_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_OUT_OF_MEMORY: Final = "OOMKilled"


class Secret(Wire, frozen=True):
    """A Secret; *data* is base64 text."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None


class ExternalIPPolicy(Wire, frozen=True):
    """``spec.externalIP.policy`` of OpenShift's Network."""

    allowed_cidrs: list[str] | None = field(name="allowedCIDRs", default=None)
    rejected_cidrs: list[str] | None = field(name="rejectedCIDRs", default=None)


class ExternalIP(Wire, frozen=True):
    """``spec.externalIP``; an absent policy restricts nothing, an empty policy allows no address."""

    policy: ExternalIPPolicy | None = None
    auto_assign_cidrs: list[str] | None = field(name="autoAssignCIDRs", default=None)


class NetworkSpec(Wire, frozen=True):
    """``spec``."""

    external_ip: ExternalIP | None = field(name="externalIP", default=None)


class Network(Wire, frozen=True):
    """``config.openshift.io/v1`` Network ``cluster``."""

    metadata: Metadata = Metadata()
    spec: NetworkSpec = NetworkSpec()


class PlatformLoadBalancer(Wire, frozen=True):
    """``status.platformStatus.PLATFORM.loadBalancer``; ``UserManaged``: OpenShift runs no keepalived."""

    type: str = ""


class PlatformVIPs(Wire, frozen=True):
    """``status.platformStatus.PLATFORM``: the VIPs of a platform on which OpenShift runs keepalived."""

    api_server_internal_ips: list[str] | None = field(name="apiServerInternalIPs", default=None)
    api_server_internal_ip: str = field(name="apiServerInternalIP", default="")
    load_balancer: PlatformLoadBalancer | None = None


class PlatformStatus(Wire, frozen=True):
    """``status.platformStatus``, without the platforms that have load balancers of their own."""

    baremetal: PlatformVIPs | None = None
    vsphere: PlatformVIPs | None = None
    openstack: PlatformVIPs | None = None
    nutanix: PlatformVIPs | None = None
    ovirt: PlatformVIPs | None = None


class InfrastructureStatus(Wire, frozen=True):
    """``status``; its ``infrastructureName`` is the name of the cluster with a suffix."""

    api_server_internal_uri: str = field(name="apiServerInternalURI", default="")
    platform_status: PlatformStatus | None = None


class Infrastructure(Wire, frozen=True):
    """``config.openshift.io/v1`` Infrastructure ``cluster``."""

    metadata: Metadata = Metadata()
    status: InfrastructureStatus = InfrastructureStatus()


class ServiceCIDRSpec(Wire, frozen=True):
    """``spec``."""

    cidrs: list[str] | None = None


class ServiceCIDR(Wire, frozen=True):
    """``networking.k8s.io/v1`` ServiceCIDR: a range from which Services have their cluster IPs."""

    metadata: Metadata = Metadata()
    spec: ServiceCIDRSpec = ServiceCIDRSpec()
