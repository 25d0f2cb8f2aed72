"""
Whether a change may roll from node to node, or all nodes must make it at one instant.

Nodes that differ in what keepalived must agree on become two masters. So does a node that has an address in another
instance than its peers have. An address that changes its interface would be away while a node that lacks the new one is
master, so this change waits for all nodes too.
"""

from collections.abc import Mapping
from dataclasses import replace

from kavip.api.address import Address
from kavip.api.agentconfig import ReturnRoute
from kavip.reconcile.rollout.configmap import Revision
from kavip.reconcile.rollout.poollinks import PoolLinks, is_routed
from kavip.vrrp.identity import Identity, agree
from kavip.vrrp.running import RunningInstance


def may_roll(before: Revision, after: Revision) -> bool:
    """Whether a node with *before* and a node with *after* hear each other, and have the same way back of replies."""
    if (before.settings, before.renewed) != (after.settings, after.renewed):
        return False
    if rolled_links(before, after).routes != after.links.routes:
        return False
    one, other = before.running, after.running
    return all(agree(one[name].identity, other[name].identity) for name in one.keys() & other.keys()) and not (
        _moved_fields(one, other)
    )


def rolled_links(before: Revision, after: Revision) -> PoolLinks:
    """The links of *before* with what may roll from node to node of those of *after*."""

    def stays(route: ReturnRoute) -> bool:
        kept = frozenset[Address]().union(*(each.carried for each in before.running.values()))
        kept &= frozenset[Address]().union(*(each.carried for each in after.running.values()))
        return is_routed(kept, route)

    return before.links.rolled(after.links, stays)


def switched_fields(before: Revision, after: Revision) -> str:
    """What nodes that run *before* must switch together to run *after*, in the words of the group; "" for nothing."""
    return "" if may_roll(before, after) else describe(before, after)


def describe(before: Revision, after: Revision) -> str:
    """The same for a change of which it is known that it may not roll."""
    one, other, found = before.running, after.running, set[str]()
    for name in one.keys() & other.keys():
        found |= _changed_fields(one[name].identity, other[name].identity)
    found |= _moved_fields(one, other)
    if before.settings.interface_from_ip != after.settings.interface_from_ip:
        found.add("interfaceFromIP")
    unchanged = replace(after.settings, interface_from_ip=before.settings.interface_from_ip)
    if after.renewed or before.settings != unchanged:
        found.add("password")
    if rolled_links(before, after).routes != after.links.routes:
        found.add("routing")
    return ", ".join(sorted(found)) or "VRIDs"


def _changed_fields(one: Identity, other: Identity) -> set[str]:
    if agree(one, other):
        return set()
    fields = {
        "VRIDs": one.router_id != other.router_id,
        "interface": (one.interface, one.anchor.interface) != (other.interface, other.anchor.interface),
        "version": one.version != other.version,
        "interval": one.interval != other.interval,
        "multicast to unicast" if other.unicast else "unicast to multicast": one.unicast != other.unicast,
        "password": one.authenticated != other.authenticated,
        "advertised addresses": _advertised(one) != _advertised(other),
    }
    return {field for field, differs in fields.items() if differs}


def _moved_fields(before: Mapping[str, RunningInstance], after: Mapping[str, RunningInstance]) -> set[str]:
    """Whether *after* has an address in another instance, or on another interface, than *before*."""
    found: set[str] = set()
    if not _without(before, after).isdisjoint(_without(after, before)):
        found.add("the instances in which VIPs live")
    instances = (*before.values(), *after.values())
    if len(frozenset[str]().union(*(each.interfaces for each in instances))) > 1:
        interfaces = {vip.address: vip.interface for each in before.values() for vip in each.virtual_ips}
        vips = (vip for each in after.values() for vip in each.virtual_ips)
        if any(interfaces.get(vip.address, vip.interface) != vip.interface for vip in vips):
            found.add("interface")
    return found


def _without(one: Mapping[str, RunningInstance], other: Mapping[str, RunningInstance]) -> frozenset[Address]:
    """The addresses of instances of *one* that the same instance of *other* lacks: mostly few of thousands."""
    parts = (each.carried - other[name].carried if name in other else each.carried for name, each in one.items())
    return frozenset[Address]().union(*parts)


def _advertised(identity: Identity) -> list[Address]:
    return [identity.anchor.address, *sorted(vip.address for vip in identity.also)]
