"""
Checks that this node can send VRRP from the source address in its configuration.

keepalived does not check that. Without the source address it stays master of VIPs for which it cannot answer, or stays
in FAULT.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kavip.agent.config.blocks import split
from kavip.agent.config.facts import NodeFacts
from kavip.agent.config.model import InstanceFault, LocalizedConfig, ParsedConfig
from kavip.api.address import Address, read_address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.vrrp.instances import LONE_PEER, NO_SOURCE

_SOURCE: Final = r"^ +@{node} unicast_src_ip (\S+)$"
_RUNNING: Final = re.compile(r"^ +unicast_src_ip (\S+)$", re.MULTILINE)
_PEERS: Final = re.compile(r"^    unicast_peer \{\n(.*?)^    \}", re.MULTILINE | re.DOTALL)
_PEER: Final = re.compile(r"^ +([0-9A-Fa-f:.]+)", re.MULTILINE)
_NOBODY: Final = frozenset((*NO_SOURCE.values(), *LONE_PEER.values()))
_UNICAST: Final = re.compile(r"^    interface (\S+)$(?:\n    .*)*\n    unicast_src_ip (\S+)$", re.MULTILINE)


def unusable_sources(shared: str, text: str, facts: NodeFacts) -> Mapping[str, InstanceFault]:
    """
    The instances of *text*, localised from *shared*, whose source address the node lacks or cannot use yet.

    keepalived detects a lost address only when it starts; until then it stays master of VIPs for which it cannot
    answer. If it starts while the kernel still checks the address for duplicates, it stays in FAULT for ever.
    """
    why_unused = {each.address: each.why_unused for each in facts.held}
    found = re.findall(_SOURCE.format(node=re.escape(facts.node)), shared, re.MULTILINE)
    unusable = {
        each: f"{source}, from which node {facts.node} sends VRRP, {why}"
        for each in dict.fromkeys(found)
        if (source := read_address(each)) and (why := why_unused.get(source, "is on none of its interfaces"))
    }
    return {
        block.name: InstanceFault(ProblemCode.SOURCE_ADDRESS_UNUSABLE, why)
        for block in split(text)
        for source, why in unusable.items()
        if block.name and f" unicast_src_ip {source}\n" in block.text
    }


def running_addresses(text: str) -> tuple[frozenset[Address], frozenset[Address]]:
    """The addresses that keepalived with the localised *text* sends adverts from, and accepts them from."""
    sources = _RUNNING.findall(text)
    peers = [each for block in _PEERS.findall(text) for each in _PEER.findall(block)]
    own, others = (frozenset(filter(None, map(read_address, each))) - _NOBODY for each in (sources, peers))
    return own, others


def source_notes(text: str, configuration: ParsedConfig, facts: NodeFacts) -> Iterator[NodeProblem]:
    """Problems of the source addresses in *text* that stop no instance; *configuration* is the parsed *text*."""
    if elsewhere := _source_elsewhere(text, facts):
        yield elsewhere
    if missing := _no_ipv4(text, configuration, facts):
        yield missing


def new_source_problem(
    following: LocalizedConfig, good: LocalizedConfig | None, facts: NodeFacts
) -> NodeProblem | None:
    """Why other nodes may not receive the adverts of *following*; None if the running *good* has this problem too."""
    if good is not None and _source_elsewhere(good.text, facts):
        return None
    return _source_elsewhere(following.text, facts)


def _source_elsewhere(text: str, facts: NodeFacts) -> NodeProblem | None:
    """
    Unicast leaves by another interface than the one that has its source address.

    Depending on the network, other nodes do not receive it and become master as well.
    """
    places: dict[str, set[str]] = {}
    for each in facts.held:
        places.setdefault(str(each.address), set()).add(each.virtual_ip.interface)
    for match in _UNICAST.finditer(text):
        interface, source = match[1], match[2]
        if interface not in places.get(source, {interface}):
            there = min(places[source])
            return NodeProblem(
                ProblemCode.SOURCE_ADDRESS_ELSEWHERE,
                f"VRRP leaves by {interface}, but its source address {source} is on {there}, so other nodes may not "
                f"receive it: set spec.vrrpInterface to {there}, or unicastEnabled to false",
            )
    return None


def _no_ipv4(text: str, configuration: ParsedConfig, facts: NodeFacts) -> NodeProblem | None:
    """An interface has no IPv4 address to send multicast from; keepalived stays in FAULT, without a log line."""
    usable = {each.virtual_ip.interface for each in facts.held if each.address.family == 4}
    without_ipv4 = {each.name: each.interface for each in configuration.instances if each.family == 4}
    without_ipv4 = {name: interface for name, interface in without_ipv4.items() if interface not in usable}
    for block in split(text) if without_ipv4 else ():
        if block.name in without_ipv4 and " unicast_src_ip " not in block.text:
            return NodeProblem(
                ProblemCode.NO_IPV4_ADDRESS,
                f"{without_ipv4[block.name]} has no IPv4 address to send VRRP from, so keepalived is in FAULT "
                "for IPv4 VIPs: add an address, or set spec.vrrpInterface to an interface that has one",
            )
    return None
