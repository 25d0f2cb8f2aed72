"""
Leaves VIPs out of a configuration that another machine on the LAN has, or that the LAN was not asked about yet.

A VIP in ``virtual_ipaddress_excluded`` is left out alone: nodes need not agree on these. An instance that advertises
such a VIP is left out as a whole, because all its nodes must advertise the same addresses.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.agent.config.blocks import Block, joined, split
from kavip.agent.config.facts import NodeFacts
from kavip.agent.config.localize import addresses_of, virtual_ip_of
from kavip.agent.config.model import (
    Exclusion,
    InstanceFault,
    LocalizedConfig,
    MountedConfig,
    ParsedConfig,
    RefusedConfig,
)
from kavip.api.address import Address, read_address
from kavip.vrrp.virtualips import VirtualIP, is_anchor

_ADVERTISED: Final = "    virtual_ipaddress {"
_EXCLUDED: Final = "    virtual_ipaddress_excluded {"
_CLOSE: Final = "    }"
_PEER: Final = re.compile(r"^        @\^\S+ ([0-9A-Fa-f:.]+)(?: min_ttl 255)?$", re.MULTILINE)

Withheld = Mapping[VirtualIP, InstanceFault | None]
"""VIPs that are left out, and why; None: the LAN has not been asked yet."""
NOTHING_WITHHELD: Final[Withheld] = MappingProxyType({})


class Unprobed(NamedTuple):
    """The VIPs of a text that must not be loaded unasked, and the addresses of the unicast *peers* in it."""

    vips: frozenset[VirtualIP] = frozenset()
    peers: frozenset[Address] = frozenset()


def unprobed(mounted: MountedConfig | RefusedConfig, facts: NodeFacts, running: ParsedConfig) -> Unprobed:
    """What *mounted* has that is new, and not among the VIPs *running* here."""
    if isinstance(mounted, RefusedConfig) or mounted.detection is None or mounted.held:
        return Unprobed()
    own = {each.address for each in facts.held}
    peers = frozenset(filter(None, map(read_address, set(_PEER.findall(mounted.text))))) - own
    if not mounted.detection.probe:
        return Unprobed(peers=peers)
    known, detection = {each.address for each in running.virtual_ips}, mounted.detection
    vips = frozenset(
        each
        for each in addresses_of(mounted, facts)
        if each.address in detection.probe
        and each.address not in detection.off
        and each.address not in known
        and not is_anchor(each.address)
    )
    return Unprobed(vips, peers)


def withhold(localized: LocalizedConfig, withheld: Withheld) -> LocalizedConfig:
    """*localized* without the VIPs *withheld*; an instance that is left out for a fault is excluded."""
    instances = {each.name: each for each in localized.configuration.instances}
    affected = {name for name, each in instances.items() if not withheld.keys().isdisjoint(each.virtual_ips)}
    if not affected:
        return localized
    blocks, excluded = list[Block](), {each.name: each for each in localized.excluded}
    for block in split(localized.text):
        if block.name not in affected:
            blocks.append(block)
            continue
        instance = instances.pop(block.name)
        if shorter := _without(block, withheld.keys()):
            blocks.append(shorter)
            left = tuple(each for each in instance.virtual_ips if each not in withheld)
            instances[block.name] = replace(instance, virtual_ips=left)
        elif fault := next(filter(None, map(withheld.get, instance.virtual_ips)), None):
            excluded[block.name] = Exclusion(block.name, fault, instance.virtual_ips)
    return replace(
        localized,
        text=joined(blocks),
        configuration=ParsedConfig(tuple(instances[name] for name in sorted(instances))),
        excluded=tuple(excluded[name] for name in sorted(excluded)),
    )


def _without(block: Block, withheld: Collection[VirtualIP]) -> Block | None:
    """*block* without the VIPs *withheld*; None if it advertises one of them."""
    lines, inside = list[str](), ""
    for line in block.lines:
        if line in (_ADVERTISED, _EXCLUDED):
            inside = line
        elif inside and line == _CLOSE:
            inside = ""
            if lines[-1] == _EXCLUDED:  # all of them are left out
                lines.pop()
                continue
        elif inside and virtual_ip_of(line) in withheld:
            if inside == _ADVERTISED:
                return None
            continue
        lines.append(line)
    return replace(block, lines=tuple(lines))
