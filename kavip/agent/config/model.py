"""What stands in a configuration, as far as the agent compares it, and what it leaves out of one."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kavip.vrrp.tracking import Track
from kavip.vrrp.virtualips import VirtualIP

DEFAULT_PRIORITY: Final = 100


@dataclass(frozen=True, slots=True)
class Instance:
    """One ``vrrp_instance`` as far as the agent compares it with what the daemon says."""

    name: str
    router_id: int
    interface: str
    priority: int = DEFAULT_PRIORITY
    virtual_ips: tuple[VirtualIP, ...] = ()
    tracks: tuple[Track, ...] = ()

    @property
    def family(self) -> int:
        """4 or 6: that of the first address, as keepalived decides it."""
        return self.virtual_ips[0].address.family if self.virtual_ips else 4


@dataclass(frozen=True, slots=True)
class Configuration:
    """What stands in a configuration."""

    instances: tuple[Instance, ...] = ()

    @property
    def virtual_ips(self) -> frozenset[VirtualIP]:
        """Every address that this configuration may put on an interface."""
        return frozenset(each for instance in self.instances for each in instance.virtual_ips)

    @property
    def interfaces(self) -> frozenset[str]:
        """Every interface that it names."""
        return frozenset(each for instance in self.instances for each in interfaces_of(instance))


class Judge(StrEnum):
    """Who refuses an instance: the agent for what it knows of the node, or the node's keepalived."""

    AGENT = "agent"
    KEEPALIVED = "keepalived"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an instance is refused: one line, without text from any file."""

    reason: str
    by: Judge = Judge.AGENT


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An instance that is not run as it is wanted; *kept*: as it last ran, it runs on."""

    name: str
    fault: Fault
    virtual_ips: tuple[VirtualIP, ...] = ()
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Localized:
    """A configuration for this node. *note*: why the node has no part in it; *left_out*: what is not as wanted."""

    text: str
    config_hash: str
    configuration: Configuration
    note: str = ""
    left_out: tuple[LeftOut, ...] = ()

    def __repr__(self) -> str:
        """Say which configuration this is, and nothing that stands in it."""
        return f"Localized({self.config_hash}, {len(self.configuration.instances)} instances)"


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a configuration is not run: one line, without text from any file; *left_out*: the instances at fault."""

    reason: str
    left_out: tuple[LeftOut, ...] = ()


def interfaces_of(instance: Instance) -> frozenset[str]:
    """Every interface that *instance* names."""
    return frozenset((instance.interface, *(each.interface for each in instance.virtual_ips)))
