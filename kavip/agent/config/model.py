"""
The values that the agent works with: what is mounted, what a configuration holds, what this node runs or excludes.
"""

from dataclasses import dataclass
from typing import Final

from kavip.api.agent import NodeProblem, ProblemCode, RefusedBy
from kavip.api.agentconfig import FollowedNodes, LocalTrack, ReturnRoute
from kavip.api.group import Check
from kavip.api.spans import AddressSpans
from kavip.vrrp.tracking import Track
from kavip.vrrp.virtualips import VirtualIP

DEFAULT_PRIORITY: Final = 100


@dataclass(frozen=True, slots=True)
class ConfiguredInstance:
    """One ``vrrp_instance``, as far as the agent compares it with keepalived's dump."""

    name: str
    router_id: int
    interface: str
    priority: int = DEFAULT_PRIORITY
    virtual_ips: tuple[VirtualIP, ...] = ()
    tracks: tuple[Track, ...] = ()

    @property
    def family(self) -> int:
        """4 or 6: the family of the first address, as keepalived decides."""
        return self.virtual_ips[0].address.family if self.virtual_ips else 4

    @property
    def interfaces(self) -> frozenset[str]:
        """Every interface that the instance names."""
        return frozenset((self.interface, *(each.interface for each in self.virtual_ips)))


@dataclass(frozen=True, slots=True)
class ParsedConfig:
    """The instances of a keepalived configuration."""

    instances: tuple[ConfiguredInstance, ...] = ()

    @property
    def virtual_ips(self) -> frozenset[VirtualIP]:
        """Every address that keepalived may add to an interface with this configuration."""
        return frozenset(each for instance in self.instances for each in instance.virtual_ips)

    @property
    def interfaces(self) -> frozenset[str]:
        """Every interface that an instance names."""
        return frozenset(each for instance in self.instances for each in instance.interfaces)


@dataclass(frozen=True, slots=True)
class ConflictDetection:
    """
    Which VIPs another machine on the LAN may have, and which machines are nodes.

    *probe*: the VIPs to ask for before they are loaded. *off*: those for which nothing is asked or heard.
    """

    probe: AddressSpans = AddressSpans()  # noqa: RUF009 - immutable
    off: AddressSpans = AddressSpans()  # noqa: RUF009 - immutable
    hardware: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MountedConfig:
    """
    The configuration of the group, as read from the mount.

    *password* is None if there is none; *password_name* identifies it without its content. *held*: why the node
    runs an empty configuration for now. *is_static*: a static pod, without a controller. *next*: the configuration that
    follows at an announced instant; *is_next*: this is that one. *detection*: None: it is off. *pool_interfaces*: those
    that pools name. *routes*: the way back of replies. *follow*: the Nodes that this agent keeps current in the text.
    *interfaces*: those that the group names and no instance does.
    """

    text: str
    config_hash: str
    group: str = ""
    interface_from_ip: str = ""
    authentication: bool = False
    is_static: bool = False
    checks: tuple[Check, ...] = ()
    locals: tuple[LocalTrack, ...] = ()
    password: str | None = None
    password_name: str = ""
    held: NodeProblem | None = None
    next: "NextConfig | None" = None
    is_next: bool = False
    detection: ConflictDetection | None = None
    pool_interfaces: frozenset[str] = frozenset()
    routes: tuple[ReturnRoute, ...] = ()
    follow: FollowedNodes | None = None
    interfaces: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Identify the configuration without its content: it may hold a password."""
        return f"MountedConfig({self.group} {self.config_hash})"

    def is_left_out(self, fault: "InstanceFault") -> bool:
        """Whether *fault* only means that the node takes no part: it lacks an interface that a pool names."""
        return fault.interface in self.pool_interfaces


@dataclass(frozen=True, slots=True)
class NextConfig:
    """The configuration that all nodes of the group switch to *at* one instant; *digest* identifies it."""

    digest: str
    mounted: "MountedConfig | RefusedConfig"
    at: str = ""

    def __repr__(self) -> str:
        """Identify the configuration without its content: it may hold a password."""
        return f"NextConfig({self.digest}, {self.at})"


@dataclass(frozen=True, slots=True)
class InstanceFault:
    """Why an instance is refused. The *message* is one line, without text from any file."""

    code: ProblemCode
    message: str
    by: RefusedBy = RefusedBy.AGENT
    interface: str = ""

    def of_instance(self, name: str) -> NodeProblem:
        """The same as a problem of the node; *name* is the instance's."""
        return NodeProblem(self.code, f"instance {name}: {self.message}")


@dataclass(frozen=True, slots=True)
class Exclusion:
    """An instance that does not run as wanted. *kept*: it runs on as it last ran."""

    name: str
    fault: InstanceFault
    virtual_ips: tuple[VirtualIP, ...] = ()
    kept: bool = False


@dataclass(frozen=True, slots=True)
class LocalizedConfig:
    """A configuration for this node, with *notes* for people and the instances that are *excluded* from it."""

    text: str
    config_hash: str
    configuration: ParsedConfig
    notes: tuple[NodeProblem, ...] = ()
    excluded: tuple[Exclusion, ...] = ()

    def __repr__(self) -> str:
        """Identify the configuration without its content: it may hold a password."""
        return f"LocalizedConfig({self.config_hash}, {len(self.configuration.instances)} instances)"


@dataclass(frozen=True, slots=True)
class RefusedConfig:
    """
    Why a configuration does not run. The *message* is one line, without text from any file.

    *group*: that of the mount, if it can be read.
    """

    code: ProblemCode
    message: str
    excluded: tuple[Exclusion, ...] = ()
    group: str = ""

    @property
    def problem(self) -> NodeProblem:
        """The refusal as ``/state`` reports it."""
        return NodeProblem(self.code, self.message)
