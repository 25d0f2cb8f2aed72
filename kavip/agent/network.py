"""
The node's network, by netlink: interfaces, addresses and the route; removes addresses that keepalived left behind.
"""

import asyncio
import errno
import gc
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from kavip.agent.config.facts import (
    KUBE_PROXY_INTERFACE,
    InterfaceAddress,
    KernelRoute,
    NodeFacts,
    is_in_own_subnet,
    leftovers,
)
from kavip.agent.config.returnroutes import GatewayRoute
from kavip.agent.conflicts.packets.sighting import hardware_text
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.rtnetlink import NetworkChange
from kavip.api.address import BITS, Address, read_address
from kavip.api.agent import MOST_HARDWARE, NodeProblem, ProblemCode
from kavip.vrrp.virtualips import VirtualIP

_SECONDARY: Final = 0x01  # IFA_F_SECONDARY: added beside another address of its subnet
_NODAD: Final = 0x02  # IFA_F_NODAD: added without duplicate address detection
_PERMANENT: Final = 0x80  # IFA_F_PERMANENT: not leased
_OPTIMISTIC, _DADFAILED, _TENTATIVE = 0x04, 0x08, 0x40  # IFA_F_*: of duplicate address detection
_FAMILIES: Final = {2: 4, 10: 6}  # AF_INET, AF_INET6
_CONF: Final = Path("/proc/sys/net/ipv4/conf")
_ARP_IGNORE: Final = _CONF / "all" / "arp_ignore"
_STRICT: Final = 1  # of rp_filter
_GONE: Final = frozenset({errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENOENT})
_INTERRUPTED: Final = 0x10  # NLM_F_DUMP_INTR
_LOGGED: Final = 20  # addresses in one log line
_ETHERNET: Final = 1  # ARPHRD_ETHER
_BOND: Final = "bond"
_PRIVATE: Final = frozenset({"lo", KUBE_PROXY_INTERFACE})  # no other machine sees their hardware addresses

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Hardware:
    """
    The hardware addresses of this node, as text: *own* are all of them.

    *public* are the ones that other machines see: those of interfaces with an address, and of the ports of a bond; that
    of the InternalIP's interface first. Pods have hundreds of others.
    """

    own: frozenset[str] = frozenset()
    public: tuple[str, ...] = ()


class NodeNetwork:
    """
    The network of the node *node*.

    A record in the run directory names every VIP that a keepalived of this pod may have added; it is written before
    keepalived can add them. *removed* counts the addresses that were removed. *hardware* and *held*, the addresses on
    the interfaces, are as of the last :meth:`facts`; :meth:`observe` keeps *held* current.
    """

    def __init__(self, node: str, node_ip: Address | None, files: RunDirectory) -> None:
        self._node, self._node_ip, self._files = node, node_ip, files
        self.removed = 0
        self.hardware = Hardware()
        self.held: set[tuple[Address, str]] = set()
        self._last: tuple[InterfaceAddress, ...] = ()
        self._reads: list[list[NetworkChange]] = []  # the changes since each read that is under way began

    async def facts(self, reach: str = "") -> NodeFacts:
        """The node as it is now, with its route to the address *reach*."""
        changes: list[NetworkChange] = []
        self._reads.append(changes)
        try:
            found = await read(read_address(reach))
        finally:
            self._reads = [each for each in self._reads if each is not changes]
        links, held = found.interfaces, (*found.held, *(self._skipped(found) if found.is_interrupted else ()))
        self.hardware, self._last = hardware_of(links, held, self._node_ip), held
        self.held = set(map(_place, held))
        for change in changes:
            self._follow(change)
        ours = await asyncio.to_thread(self._files.load_record)
        interfaces = frozenset(each.name for each in links)
        return NodeFacts(self._node, self._node_ip, interfaces, held, ours, found.route, str(self._files.tracks))

    def _skipped(self, found: "Reading") -> Iterator[InterfaceAddress]:
        """
        The addresses with a subnet that the kernel has not listed, because others were deleted meanwhile.

        It continues its list by position, so it skips one for each that was deleted before that position. A VIP that is
        skipped does no harm: it has no subnet, and is not the node's own.
        """
        listed, names = set(map(_place, found.held)), {each.name for each in found.interfaces}
        return (
            each
            for each in self._last
            if each.virtual_ip.prefix < BITS[each.address.family]
            and each.virtual_ip.interface in names
            and _place(each) in self.held
            and _place(each) not in listed
        )

    def observe(self, change: NetworkChange) -> None:
        """Follow *change* of an address."""
        for changes in self._reads:
            changes.append(change)
        self._follow(change)

    def _follow(self, change: NetworkChange) -> None:
        address = read_address(change.address)
        if address is None:
            return
        try:
            place = address, socket.if_indextoname(change.index)
        except OSError:  # the interface is gone
            return
        if change.is_gone:
            self.held.discard(place)
        else:
            self.held.add(place)

    async def record(self, virtual_ips: frozenset[VirtualIP]) -> None:
        """Record that keepalived may add *virtual_ips*."""
        recorded = await asyncio.to_thread(self._files.load_record)
        await asyncio.to_thread(self._files.save_record, recorded | virtual_ips)

    async def remove_leftovers(self, facts: NodeFacts, *, wanted: frozenset[VirtualIP]) -> None:
        """While keepalived does not run: remove what it left, *wanted* or not."""
        await self._remove(leftovers(facts, wanted=wanted, running=frozenset()))

    async def remove_all_but(self, running: frozenset[VirtualIP]) -> None:
        """While keepalived has *running*: remove every other recorded address, and shorten the record."""
        facts = await self.facts()
        if facts.ours - running:
            await self._remove(leftovers(facts, wanted=frozenset(), running=running))
            await asyncio.to_thread(self._files.save_record, running)

    async def _remove(self, found: tuple[VirtualIP, ...]) -> None:
        if not found:
            return
        await remove(found)
        shown = ", ".join(f"{each} on {each.interface}" for each in found[:_LOGGED])
        log.warning("stale addresses removed", count=len(found), addresses=shown)
        self.removed += len(found)


@dataclass(frozen=True, slots=True)
class Interface:
    """
    An interface: its *name* and number; *hardware*: its current address, and the one that its card has; "" for none.

    *kind*: of a virtual one, such as bond. *master*: the number of the interface of which it is a port; 0: of none.
    """

    name: str
    index: int
    hardware: tuple[str, ...] = ()
    kind: str = ""
    master: int = 0


class Reading(NamedTuple):
    """What the kernel lists; *is_interrupted*: addresses have changed meanwhile, so the list may lack some."""

    interfaces: tuple[Interface, ...]
    held: tuple[InterfaceAddress, ...]
    route: KernelRoute | None = None
    is_interrupted: bool = False


async def read(reach: Address | None = None) -> Reading:
    """All interfaces, all addresses, and the route to the address *reach* if it is given."""
    async with AsyncIPRoute() as netlink:
        links = [_interface(message) async for message in await netlink.get_links()]
        names = {each.index: each.name for each in links}
        found = [(_address(each, names), each["header"]["flags"]) async for each in await netlink.get_addr()]
        route = await _route(netlink, reach, names) if reach else None
    gc.collect()  # messages are reference cycles; those of some hundred addresses take megabytes until they are freed
    is_interrupted = any(flags & _INTERRUPTED for _, flags in found)
    return Reading(tuple(links), tuple(each for each, _ in found if each), route, is_interrupted)


def _place(held: InterfaceAddress) -> tuple[Address, str]:
    return held.address, held.virtual_ip.interface


def hardware_of(interfaces: Iterable[Interface], held: Iterable[InterfaceAddress], node_ip: Address | None) -> Hardware:
    """The hardware addresses of *interfaces*, which have the addresses *held*."""
    found = tuple(interfaces)
    addressed = {each.virtual_ip.interface for each in held if not _is_link_local(each.address)}
    main = {each.virtual_ip.interface for each in held if each.address == node_ip}
    bonds = {each.index for each in found if each.kind == _BOND}
    public = [each for each in found if (each.name in addressed or each.master in bonds) and each.name not in _PRIVATE]
    public.sort(key=lambda each: (each.name not in main, each.name))
    seen = dict.fromkeys(text for each in public for text in each.hardware)
    own = frozenset(text for each in found for text in each.hardware)
    return Hardware(own, tuple(seen)[:MOST_HARDWARE])


def _is_link_local(address: Address) -> bool:
    """Whether *address* is one that interfaces of pods have too."""
    return address.value >> 118 == 0xFE80 >> 6 if address.family == 6 else address.value >> 16 == 0xA9FE


def _interface(message: Any) -> Interface:
    """An RTM_NEWLINK message as a value."""
    texts = (message.get("IFLA_ADDRESS"), message.get("IFLA_PERM_ADDRESS")) if message["ifi_type"] == _ETHERNET else ()
    addresses = dict.fromkeys(
        str(text) for text in texts if text and hardware_text(bytes.fromhex(text.replace(":", "")))
    )
    information = message.get("IFLA_LINKINFO")
    kind = str(information.get("IFLA_INFO_KIND") or "") if information else ""
    return Interface(
        str(message.get("IFLA_IFNAME")), message["index"], tuple(addresses), kind, int(message.get("IFLA_MASTER") or 0)
    )


async def remove(virtual_ips: Iterable[VirtualIP]) -> None:
    """Remove addresses from their interfaces over one socket, because a Shared group leaves thousands."""
    async with AsyncIPRoute() as netlink:
        indexes = {str(link.get("IFLA_IFNAME")): link["index"] async for link in await netlink.get_links()}
        for each in virtual_ips:
            if each.interface not in indexes:
                continue
            try:
                index = indexes[each.interface]
                await netlink.addr("del", index=index, address=str(each.address), prefixlen=each.prefix)
            except NetlinkError as error:
                if error.code not in _GONE:
                    raise


def arp_problem(interfaces: frozenset[str]) -> NodeProblem | None:
    """
    The warning that the node answers ARP for VIPs that it does not hold; None if it does not.

    kube-proxy's IPVS mode adds every Service address to a dummy interface; without arp_ignore each node answers.
    """
    if KUBE_PROXY_INTERFACE not in interfaces:
        return None
    try:
        is_ignored = _ARP_IGNORE.read_text().strip() != "0"
    except OSError:
        return None
    message = "kube-proxy runs in IPVS mode without strictARP: this node answers ARP for VIPs of other nodes"
    return None if is_ignored else NodeProblem(ProblemCode.STRICT_ARP_OFF, message)


def filter_problems(routes: Iterable[GatewayRoute], facts: NodeFacts) -> list[NodeProblem]:
    """
    The warnings that the reverse path filter drops requests which come from behind the gateways of *routes*.

    A strict filter wants the route to the source on the same interface. It looks at a mark only with src_valid_mark,
    and at the source of an ARP request without one.
    """
    found = []
    for route in routes:
        if route.family != 4 or _conf("rp_filter", route.interface) != _STRICT:
            continue
        name = route.interface.replace(".", "/")
        if not _conf("src_valid_mark", route.interface):
            found.append(
                f"rp_filter of {route.interface} drops requests from behind {route.gateway}: set "
                f"net.ipv4.conf.{name}.src_valid_mark=1"
            )
        elif not is_in_own_subnet(route.gateway, route.interface, facts):
            found.append(
                f"rp_filter of {route.interface} drops ARP requests of {route.gateway}: give the node an address in "
                f"its subnet there, or set net.ipv4.conf.{name}.rp_filter=2"
            )
    return [NodeProblem(ProblemCode.REQUESTS_FILTERED, message) for message in found]


def _conf(name: str, interface: str) -> int:
    """The value of a setting that applies if it is set for *interface* or for all; 0 if it cannot be read."""
    values = []
    for each in ("all", interface):
        try:
            values.append(int((_CONF / each / name).read_text()))
        except (OSError, ValueError):
            continue
    return max(values, default=0)


async def _route(netlink: AsyncIPRoute, reach: Address, links: dict[int, str]) -> KernelRoute | None:
    try:
        messages = await netlink.route("get", dst=str(reach))
    except NetlinkError:
        return None  # there is no route
    for message in messages:
        direct = not (message.get("RTA_GATEWAY") or message.get("RTA_VIA"))
        source = read_address(str(message.get("RTA_PREFSRC")))
        return KernelRoute(reach, links.get(message.get("RTA_OIF"), ""), source, direct)
    return None


def _address(message: Any, links: dict[int, str]) -> InterfaceAddress | None:
    """An RTM_NEWADDR message as a value; None if it is neither IPv4 nor IPv6."""
    text = message.get("IFA_LOCAL") or message.get("IFA_ADDRESS")  # on a point-to-point link IFA_ADDRESS is the peer's
    address = read_address(str(text))
    if address is None or _FAMILIES.get(message["family"]) != address.family:
        return None
    virtual_ip = VirtualIP(address, message["prefixlen"], links.get(message["index"], ""))
    flags = int(message.get("IFA_FLAGS") or message["flags"])
    why_unused = _why_unused(flags) if address.family == 6 else ""
    return InterfaceAddress(virtual_ip, _looks_added(virtual_ip, flags=flags), why_unused)


def _why_unused(flags: int) -> str:
    """Why the kernel does not send from an IPv6 address with these *flags*; "" if it does."""
    if flags & _DADFAILED:
        return "is also an address of another machine (dadfailed): give one of the two another address"
    if flags & _TENTATIVE and not flags & _OPTIMISTIC:
        return "is not in use yet: the kernel still checks whether another machine has it (tentative)"
    return ""


def _looks_added(virtual_ip: VirtualIP, *, flags: int) -> bool:
    """
    Whether keepalived may have added the address.

    Such an address is permanent. IPv6: without duplicate address detection; IPv4: secondary, or alone in its subnet.
    """
    if virtual_ip.address.family == 6:
        return flags & (_NODAD | _PERMANENT) == _NODAD | _PERMANENT
    return bool(flags & _PERMANENT) and (bool(flags & _SECONDARY) or virtual_ip.prefix == BITS[4])
