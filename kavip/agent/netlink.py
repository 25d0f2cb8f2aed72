"""Netlink: which interfaces and addresses this node has, and how to take one away."""

import errno
import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from kavip.agent.config.facts import KUBE_PROXY_INTERFACE, Held, Route
from kavip.api.address import BITS, Address, read_address
from kavip.vrrp.virtualips import VirtualIP

_SECONDARY: Final = 0x01  # IFA_F_SECONDARY: put beside another address of its subnet
_NODAD: Final = 0x02  # IFA_F_NODAD: put there without duplicate address detection
_PERMANENT: Final = 0x80  # IFA_F_PERMANENT: not leased
_OPTIMISTIC, _DADFAILED, _TENTATIVE = 0x04, 0x08, 0x40  # IFA_F_*: of duplicate address detection
_FAMILIES: Final = {2: 4, 10: 6}  # AF_INET, AF_INET6
_ARP_IGNORE: Final = Path("/proc/sys/net/ipv4/conf/all/arp_ignore")
_GONE: Final = frozenset({errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENOENT})


async def look(reach: Address | None = None) -> tuple[frozenset[str], tuple[Held, ...], Route | None]:
    """The names of all interfaces, every address on them, and the way to the address *reach*, if there is one."""
    async with AsyncIPRoute() as route:
        links = {link["index"]: str(link.get("IFLA_IFNAME")) async for link in await route.get_links()}
        found = [_held(message, links) async for message in await route.get_addr()]
        way = await _way(route, reach, links) if reach else None
    gc.collect()  # messages refer to each other, and those of some hundred addresses would be megabytes meanwhile
    return frozenset(links.values()), tuple(each for each in found if each), way


def arp_warning(interfaces: frozenset[str]) -> str:
    """
    Say that the node answers ARP for VIPs that it does not hold, where it does.

    kube-proxy's IPVS mode keeps every Service address on a dummy interface; without arp_ignore every node answers.
    """
    if KUBE_PROXY_INTERFACE not in interfaces:
        return ""
    try:
        ignored = _ARP_IGNORE.read_text().strip() != "0"
    except OSError:
        return ""
    return (
        ""
        if ignored
        else "kube-proxy runs in IPVS mode without strictARP: this node answers ARP for VIPs of other nodes"
    )


async def remove(virtual_ips: Iterable[VirtualIP]) -> None:
    """Take addresses off their interfaces, in one conversation: a Shared group leaves thousands. Gone ones are fine."""
    async with AsyncIPRoute() as route:
        indexes = {str(link.get("IFLA_IFNAME")): link["index"] async for link in await route.get_links()}
        for each in virtual_ips:
            if each.interface not in indexes:
                continue
            try:
                await route.addr("del", index=indexes[each.interface], address=str(each.address), prefixlen=each.prefix)
            except NetlinkError as error:
                if error.code not in _GONE:
                    raise


async def _way(route: AsyncIPRoute, reach: Address, links: dict[int, str]) -> Route | None:
    try:
        messages = await route.route("get", dst=str(reach))
    except NetlinkError:
        return None  # no network is that far
    for message in messages:
        direct = not (message.get("RTA_GATEWAY") or message.get("RTA_VIA"))
        source = read_address(str(message.get("RTA_PREFSRC")))
        return Route(reach, links.get(message.get("RTA_OIF"), ""), source, direct)
    return None


def _held(message: Any, links: dict[int, str]) -> Held | None:
    """An RTM_NEWADDR message as a value; None for what is neither IPv4 nor IPv6."""
    text = message.get("IFA_LOCAL") or message.get("IFA_ADDRESS")  # on a point-to-point link IFA_ADDRESS is the peer's
    address = read_address(str(text))
    if address is None or _FAMILIES.get(message["family"]) != address.family:
        return None
    virtual_ip = VirtualIP(address, message["prefixlen"], links.get(message["index"], ""))
    flags = int(message.get("IFA_FLAGS") or message["flags"])
    return Held(virtual_ip, _looks_added(virtual_ip, flags=flags), _doubt(flags) if address.family == 6 else "")


def _doubt(flags: int) -> str:
    """Why nobody can speak from an IPv6 address with these *flags*."""
    if flags & _DADFAILED:
        return "is another machine's as well, says the kernel (dadfailed): give one of the two another address"
    if flags & _TENTATIVE and not flags & _OPTIMISTIC:
        return "is not in use yet: the kernel still asks whether another machine has it (tentative)"
    return ""


def _looks_added(virtual_ip: VirtualIP, *, flags: int) -> bool:
    """Whether keepalived may have put an address there: for ever, beside others or alone in its subnet, without DAD."""
    if virtual_ip.address.family == 6:
        return flags & (_NODAD | _PERMANENT) == _NODAD | _PERMANENT
    return bool(flags & _PERMANENT) and (bool(flags & _SECONDARY) or virtual_ip.prefix == BITS[4])
