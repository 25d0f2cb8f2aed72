"""
Which nodes rank first for the instances of a group, where this differs from the hash order.

A Service that asks for spread has a unit for each VIP. Its VIPs are spread over the nodes that can hold them: those
that the text lists, that send adverts of the family, that have the interfaces of its VIPs, and that have an endpoint
where the Service's policy is ``Local``. If no such node has an endpoint, all of them count. Of these, preferred nodes
hold the VIPs while there is one.
"""

from collections.abc import Iterable, Mapping, Sequence

from kavip.api.address import BITS
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp.drain import undrained_among
from kavip.vrrp.members import Peer, lacking_of, turns_of
from kavip.vrrp.preference import levels_of
from kavip.vrrp.priorities import NO_HOMES, seed_of
from kavip.vrrp.spread import Lead, SpreadVIP, leads
from kavip.vrrp.units import Unit


def leads_of(
    group: str,
    units: Iterable[Unit],
    peers: Sequence[Peer],
    *,
    unicast: bool,
    dead: frozenset[str] = frozenset(),
    homes: Mapping[str, str] = NO_HOMES,
    memory: Memory = KEEPS_NOTHING,
) -> Mapping[str, Lead]:
    """
    The nodes that rank before all others for the *units* of *group*, by unit, while nodes are *dead*.

    Drained nodes count as dead, unless all that can hold the VIPs are drained: then only those that were drained before
    the others. *homes*: by unit. A unit that follows the hash, or has its home first, is absent.
    """
    services: dict[str, list[Unit]] = {}
    for unit in units:
        if unit.spread:
            services.setdefault(unit.spread, []).append(unit)
    nodes, turns = nodes_of(peers, unicast=unicast) if services else {}, turns_of(peers)
    found: dict[str, Lead] = {}
    for service, some in sorted(services.items()):
        names = {seed_of(group, unit.name): unit.name for unit in some}
        vips = tuple(
            sorted(SpreadVIP(seed_of(group, unit.name), vip.address.family) for unit in some for vip in unit.vips)
        )
        every = {
            family: eligible(each, some[0].endpoints, _lacking(peers, some, family)) for family, each in nodes.items()
        }
        drained = turns.keys() - frozenset[str]().union(*(undrained_among(each, turns) for each in every.values()))
        levels = levels_of(peers, some[0].preferred)
        own = {seed_of(group, unit.name): homes[unit.name] for unit in some if unit.name in homes}
        chosen = memory.last(leads, (service, bool(dead)), vips, every, dead | drained, levels, own)
        found |= {names[seed]: lead for seed, lead in chosen.items()}
    return found


def nodes_of(peers: Sequence[Peer], *, unicast: bool) -> dict[int, frozenset[str]]:
    """By family, the nodes that can become master."""
    return {
        family: frozenset(peer.name for peer in peers if peer.is_listed and (peer.address(family) or not unicast))
        for family in BITS
    }


def eligible(nodes: frozenset[str], endpoints: frozenset[str], lacking: frozenset[str]) -> frozenset[str]:
    """Those of *nodes* that are not *lacking* the interface, and of these the ones with *endpoints*; all if none is."""
    there = nodes - lacking or nodes
    return there & endpoints or there


def _lacking(peers: Sequence[Peer], units: Iterable[Unit], family: int) -> frozenset[str]:
    """The nodes that do not have all interfaces of *units* of *family*."""
    if not any(peer.lacking for peer in peers):
        return frozenset()
    vips = (vip for unit in units for vip in unit.vips)
    return lacking_of(peers, {vip.interface for vip in vips if vip.address.family == family})
