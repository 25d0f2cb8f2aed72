"""
Checks that this node can send VRRP from the source address in its configuration.

keepalived does not check that. Without the source address it stays master of VIPs for which it cannot answer, or stays
in FAULT.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kavip.agent.config.blocks import split
from kavip.agent.config.facts import NodeFacts
from kavip.agent.config.model import InstanceFault, LocalizedConfig, ParsedConfig
from kavip.api.address import Address, read_address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.vrrp.instances import LONE_PEER, NO_SOURCE

_SOURCE: Final = r"^ +@{node} unicast_src_ip (\S+)$"
_SOURCE_KEYWORD: Final = "unicast_src_ip"
_PEERS: Final = "    unicast_peer {"
_PEER: Final = re.compile(r" +([0-9A-Fa-f:.]+)")
_NOBODY: Final = frozenset((*NO_SOURCE.values(), *LONE_PEER.values()))


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
        block.name: InstanceFault(ProblemCode.SOURCE_ADDRESS_UNUSABLE, unusable[source])
        for block in split(text)
        for source in _values(block.lines, _SOURCE_KEYWORD)
        if block.name and source in unusable
    }


def running_addresses(text: str) -> tuple[frozenset[Address], frozenset[Address]]:
    """The addresses that keepalived with the localised *text* sends adverts from, and accepts them from."""
    lines = text.split("\n")
    sources, peers = _values(lines, _SOURCE_KEYWORD), _peers(lines)
    own, others = (frozenset(filter(None, map(read_address, each))) - _NOBODY for each in (sources, peers))
    return own, others


def _values(lines: Iterable[str], keyword: str) -> Iterator[str]:
    """The values that *lines* give to *keyword*."""
    for line in lines:
        found, _, value = line.strip().partition(" ")
        if found == keyword:
            yield value


def _peers(lines: Iterable[str]) -> Iterator[str]:
    """The peers in *lines*, as they are written."""
    is_in_peers = False
    for line in lines:
        is_in_peers = line == _PEERS or (is_in_peers and line.strip() != "}")
        if is_in_peers and (match := _PEER.match(line)):
            yield match[1]


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
    for block in split(text):
        interface = next(_values(block.lines, "interface"), "")
        source = next(_values(reversed(block.lines), _SOURCE_KEYWORD), "")  # the node's own; the first is of others
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
