"""
Replaces the nodes in the text of a group, without the model from which the text was rendered.

The agents of a static group do this: they have the text of a file, and keep its nodes current by themselves. The
outcome is the text that :mod:`kavip.vrrp.config` renders for the same nodes, so both ways run the same on a node. The
agent does not import the templates' engine for it, which takes megabytes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kavip.vrrp import keys
from kavip.vrrp.instances import LONE_PEER, NO_SOURCE
from kavip.vrrp.members import Peer
from kavip.vrrp.preference import levels_of
from kavip.vrrp.priorities import TOP, priorities, seed_of

_OPEN: Final = re.compile(r"vrrp_instance (\S+) \{")
_HOME: Final = re.compile(r"# kavip: home (\S+) (\S+)")
_PRIORITY: Final = re.compile(r"    @\S+ priority \d+")
_PRIORITY_OF_OTHERS: Final = "    priority "
_SOURCE: Final = re.compile(r"    @\S+ unicast_src_ip \S+")
_NO_SOURCES: Final = frozenset(f"    unicast_src_ip {address}" for address in NO_SOURCE.values())
_PEERS: Final = "    unicast_peer {"
_CLOSE: Final = "    }"
_VIPS: Final = "    virtual_ipaddress {"


def with_nodes(text: str, group: str, peers: Sequence[Peer], *, first: str = "") -> str:
    """
    *text* of *group* with *peers* in place of its nodes; all of them are listed.

    The node *first* ranks before all others. The numbers of the others do not depend on it, so that none of them
    reloads when it goes.
    """
    homes = {match[1]: match[2] for line in text.split("\n") if (match := _HOME.fullmatch(line))}
    found = list[str]()
    block: list[str] = []
    for line in text.split("\n"):
        if block or _OPEN.fullmatch(line):
            block.append(line)
            if line == "}":
                found += _block(block, group, peers, homes=homes, first=first)
                block = []
        else:
            found.append(line)
    return "\n".join([*found, *block])


def _block(
    lines: Sequence[str], group: str, peers: Sequence[Peer], *, homes: Mapping[str, str], first: str
) -> Iterator[str]:
    family = 6 if _VIPS in lines and ":" in lines[lines.index(_VIPS) + 1] else 4
    unit = keys.unit_name(lines[0].split()[1], family)
    is_in_peers = False
    for line in lines:
        if is_in_peers and line != _CLOSE:
            continue
        if _PRIORITY.fullmatch(line) or _SOURCE.fullmatch(line):
            continue
        is_in_peers = line == _PEERS
        yield line
        if line.startswith(_PRIORITY_OF_OTHERS):
            yield from _priorities(seed_of(group, unit), peers, home=homes.get(unit, ""), first=first)
        elif line in _NO_SOURCES:
            for peer in sorted(peers, key=lambda each: each.name):
                if address := peer.address(family):
                    yield f"    @{peer.name} unicast_src_ip {address}"
        elif is_in_peers:
            yield from _peers(peers, family)


def _priorities(seed: str, peers: Sequence[Peer], *, home: str, first: str) -> Iterator[str]:
    names = [peer.name for peer in peers]
    found = dict(priorities(seed, names, preference=levels_of(peers), home=home))
    if first in found:
        found[first] = max(found[first], min(TOP, max(found.values())) + 1)
    for node, priority in sorted(found.items()):
        yield f"    @{node} priority {priority}"


def _peers(peers: Sequence[Peer], family: int) -> Iterator[str]:
    addresses = [(peer.name, address) for peer in peers for address in peer.addresses if address.family == family]
    if len({name for name, _ in addresses}) < 2:  # keepalived falls back to multicast without any peer
        yield f"        {LONE_PEER[family]} min_ttl 255"
    for name, address in sorted(addresses):
        yield f"        @^{name} {address} min_ttl 255"
