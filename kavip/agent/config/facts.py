"""
What a node is: its interfaces and addresses, which of them are its own, and what cannot be done on it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kavip.agent.config.model import Instance, interfaces_of
from kavip.api.address import BITS, Address, read_address
from kavip.vrrp.tracking import TRACK_DIR
from kavip.vrrp.virtualips import VirtualIP

KUBE_PROXY_INTERFACE: Final = "kube-ipvs0"
"""kube-proxy's IPVS mode keeps every Service address here, ours too: it is nobody's own address, and never stale."""

_LOOPBACK: Final = "lo"


@dataclass(frozen=True, slots=True)
class Held:
    """
    An address on an interface of this node; *added* says that it looks as if keepalived had put it there.

    *doubt*: why nothing can be sent from it yet, while the kernel finds out whether another machine has it, too.
    """

    virtual_ip: VirtualIP
    added: bool = False
    doubt: str = ""

    @property
    def address(self) -> Address:
        """The address alone."""
        return self.virtual_ip.address


@dataclass(frozen=True, slots=True)
class Route:
    """The kernel's way to the address *to*: by *interface*, from *source*; *direct* where no gateway is between."""

    to: Address
    interface: str
    source: Address | None = None
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """
    What this node is: its interfaces and addresses, and the VIPs that kavip may have put there.

    *route* is the way to the address by which the interface is to be found; *track_dir* is where its agent writes the
    track files.
    """

    node: str
    address: Address | None = None
    interfaces: frozenset[str] = frozenset()
    held: tuple[Held, ...] = ()
    ours: frozenset[VirtualIP] = frozenset()
    route: Route | None = None
    track_dir: str = TRACK_DIR


def interface_of(text: str, facts: Facts, vips: Iterable[Address] = ()) -> str:
    """
    The interface from which the node reaches the address *text*; "" if none fits.

    It holds that address, or its subnet does, the narrowest first; else the kernel's route decides: a network card may
    have an address alone (/32). What is behind a gateway could be anywhere, and a node that lost its address would put
    VIPs where nobody looks for them: such a route counts where its interface has the subnet of one of *vips*.
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


def _routed(wanted: Address, facts: Facts, vips: Iterable[Address]) -> str:
    route = facts.route
    if route is None or route.to != wanted or route.interface in (_LOOPBACK, KUBE_PROXY_INTERFACE, ""):
        return ""
    if any(route.source == each.address for each in facts.ours):
        return ""  # it is there because a VIP is
    subnets = [
        each.virtual_ip
        for each in facts.held
        if each.virtual_ip.interface == route.interface and each.virtual_ip not in facts.ours
    ]
    fits = route.direct or any(_in_subnet(vip, subnet) for vip in vips for subnet in subnets)
    return route.interface if fits else ""


def leftovers(facts: Facts, *, wanted: frozenset[VirtualIP], running: frozenset[VirtualIP]) -> tuple[VirtualIP, ...]:
    """
    The addresses on this node that a daemon left behind: ours or *wanted*, and not among those that one is *running*.

    Without a record (the pod was replaced) an address that merely equals a wanted one counts only if it looks added.
    The node's own address never counts.
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


def unfit(instances: Iterable[Instance], facts: Facts) -> dict[str, str]:
    """
    Which of *instances*, by name, would harm this node or cannot work on it, and why.

    ``--config-test`` passes a VIP that is the node's own address, and the daemon deletes the address.
    """
    found = tuple(instances)
    own = _own(facts, wanted=frozenset(vip for each in found for vip in each.virtual_ips))
    return {each.name: why for each in found if (why := _own_address(each, facts, own) or _missing(each, facts))}


def _own(facts: Facts, *, wanted: frozenset[VirtualIP]) -> Mapping[Address, str]:
    """The node's own addresses, and where they are."""
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


def _own_address(instance: Instance, facts: Facts, own: Mapping[Address, str]) -> str:
    for virtual_ip in instance.virtual_ips:
        if place := own.get(virtual_ip.address):
            return (
                f"{virtual_ip.address} is node {facts.node}'s own address ({place}), which keepalived would take away:"
                " give the Service another address"
            )
    return ""


def _missing(instance: Instance, facts: Facts) -> str:
    for name in sorted(interfaces_of(instance) - facts.interfaces):
        return f"interface {name} does not exist on node {facts.node}; set interface or interfaceFromIP of the group"
    return ""


def _in_subnet(wanted: Address, virtual_ip: VirtualIP) -> bool:
    if wanted.family != virtual_ip.address.family or virtual_ip.prefix == BITS[wanted.family]:
        return False
    shift = BITS[wanted.family] - virtual_ip.prefix
    return wanted.value >> shift == virtual_ip.address.value >> shift
