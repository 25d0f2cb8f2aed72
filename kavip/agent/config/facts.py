"""
The facts of a node: interfaces, addresses, the route; and which instances cannot run with them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kavip.agent.config.model import ConfiguredInstance, Exclusion, InstanceFault
from kavip.api.address import BITS, Address, read_address
from kavip.api.agent import ProblemCode
from kavip.vrrp.tracking import TRACK_DIR
from kavip.vrrp.virtualips import VirtualIP

KUBE_PROXY_INTERFACE: Final = "kube-ipvs0"
"""kube-proxy's IPVS mode adds every Service address here, VIPs too: such an address is neither the node's nor stale."""

_LOOPBACK: Final = "lo"


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """
    An address on an interface of this node. *added*: it looks as if keepalived had added it.

    *why_unused*: why the kernel does not use it yet (duplicate address detection runs, or has found another machine);
    "" if it does.
    """

    virtual_ip: VirtualIP
    added: bool = False
    why_unused: str = ""

    @property
    def address(self) -> Address:
        """The address without its prefix."""
        return self.virtual_ip.address


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """The kernel's route to the address *to*: its *interface* and *source*; *direct*: without a gateway."""

    to: Address
    interface: str
    source: Address | None = None
    direct: bool = False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """
    The node *node* with its InternalIP *address*, its interfaces and the addresses that are *held* on them.

    *ours* are the VIPs that a keepalived of this pod may have added. *route* is the route to the address of
    ``interfaceFromIP``. The agent writes track files to *track_dir*.
    """

    node: str
    address: Address | None = None
    interfaces: frozenset[str] = frozenset()
    held: tuple[InterfaceAddress, ...] = ()
    ours: frozenset[VirtualIP] = frozenset()
    route: KernelRoute | None = None
    track_dir: str = TRACK_DIR


def interface_of(text: str, facts: NodeFacts, vips: Iterable[Address] = ()) -> str:
    """
    The interface from which the node reaches the address *text*; "" if none fits.

    It has that address, or the narrowest subnet that holds it. Otherwise the kernel's route decides, because a network
    card may have a single address (/32). A route through a gateway counts only if its interface has the subnet of one
    of *vips*: the address could be anywhere behind the gateway, and a node that has lost its own address would put VIPs
    where no client looks for them.
    """
    wanted = read_address(text)
    if wanted is None:
        return ""
    found = [
        (-each.virtual_ip.prefix, each.virtual_ip.interface)
        for each in facts.held
        if each.virtual_ip.interface not in (_LOOPBACK, KUBE_PROXY_INTERFACE)
        and each.virtual_ip not in facts.ours
        and (each.address == wanted or _in_subnet(wanted, each.virtual_ip))
    ]
    return min(found)[1] if found else _routed(wanted, facts, vips)


def _routed(wanted: Address, facts: NodeFacts, vips: Iterable[Address]) -> str:
    route = facts.route
    if route is None or route.to != wanted or route.interface in (_LOOPBACK, KUBE_PROXY_INTERFACE, ""):
        return ""
    if any(route.source == each.address for each in facts.ours):
        return ""  # the route exists because of a VIP
    subnets = [
        each.virtual_ip
        for each in facts.held
        if each.virtual_ip.interface == route.interface and each.virtual_ip not in facts.ours
    ]
    fits = route.direct or any(_in_subnet(vip, subnet) for vip in vips for subnet in subnets)
    return route.interface if fits else ""


def leftovers(
    facts: NodeFacts, *, wanted: frozenset[VirtualIP], running: frozenset[VirtualIP]
) -> tuple[VirtualIP, ...]:
    """
    The addresses that a keepalived left on this node: recorded as ours, or *wanted*, and not *running* now.

    Without a record (the pod was replaced) a wanted address counts only if it looks as if keepalived had added it. The
    node's own address never counts.
    """
    found = (
        each.virtual_ip
        for each in facts.held
        if (each.virtual_ip in facts.ours or (each.virtual_ip in wanted and each.added))
        and each.virtual_ip not in running
        and each.address != facts.address
        and each.virtual_ip.interface != KUBE_PROXY_INTERFACE
    )
    return tuple(sorted(found))


def unfit(instances: Iterable[ConfiguredInstance], facts: NodeFacts) -> dict[str, InstanceFault]:
    """
    The faults of *instances* that would harm this node or cannot work on it, by name.

    ``--config-test`` accepts a VIP that is the node's own address, and keepalived deletes that address.
    """
    found = tuple(instances)
    own = _own(facts, wanted=frozenset(vip for each in found for vip in each.virtual_ips))
    faults = ((each.name, _own_address(each, facts, own) or _missing_interface(each, facts)) for each in found)
    return {name: fault for name, fault in faults if fault}


def _own(facts: NodeFacts, *, wanted: frozenset[VirtualIP]) -> Mapping[Address, str]:
    """The node's own addresses, and the interface of each."""
    own = {
        each.address: each.virtual_ip.interface
        for each in facts.held
        if each.virtual_ip.interface != KUBE_PROXY_INTERFACE
        and each.virtual_ip not in facts.ours
        and not (each.virtual_ip in wanted and each.added)
    }
    if facts.address:
        own.setdefault(facts.address, "its InternalIP")
    return own


def _own_address(instance: ConfiguredInstance, facts: NodeFacts, own: Mapping[Address, str]) -> InstanceFault | None:
    for virtual_ip in instance.virtual_ips:
        if place := own.get(virtual_ip.address):
            return InstanceFault(
                ProblemCode.NODE_ADDRESS,
                f"{virtual_ip.address} is node {facts.node}'s own address ({place}), which keepalived would delete: "
                "give the Service another address",
            )
    return None


def _missing_interface(instance: ConfiguredInstance, facts: NodeFacts) -> InstanceFault | None:
    for name in sorted(instance.interfaces - facts.interfaces):
        return InstanceFault(
            ProblemCode.INTERFACE_MISSING,
            f"interface {name} does not exist on node {facts.node}: create it there, or name another one in interface "
            "(or interfaceFromIP) of the group, or in interface of the VIPPool",
            interface=name,
        )
    return None


def missing_interfaces(excluded: Iterable[Exclusion], facts: NodeFacts) -> frozenset[str]:
    """The interfaces that the node lacks and because of which instances are *excluded*."""
    named = {each.fault.interface for each in excluded} - {""}
    named |= {vip.interface for each in excluded if each.fault.interface for vip in each.virtual_ips}
    return frozenset(named - facts.interfaces)


def is_in_own_subnet(wanted: Address, interface: str, facts: NodeFacts) -> bool:
    """Whether *wanted* is in the subnet of an address of the node's own on *interface*."""
    own = (each.virtual_ip for each in facts.held if each.virtual_ip not in facts.ours)
    return any(each.interface == interface and _in_subnet(wanted, each) for each in own)


def _in_subnet(wanted: Address, virtual_ip: VirtualIP) -> bool:
    if wanted.family != virtual_ip.address.family or virtual_ip.prefix == BITS[wanted.family]:
        return False
    shift = BITS[wanted.family] - virtual_ip.prefix
    return wanted.value >> shift == virtual_ip.address.value >> shift
