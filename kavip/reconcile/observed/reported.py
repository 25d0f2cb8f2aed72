"""
What the nodes of a group run, as their agents report it: for a group whose published text is lost.

The agents keep the last configuration, so VIPs stay up although the ConfigMap is gone. The text would follow from the
objects and the status alone, but if a VIP waits for a switch, that text has it in another instance. Nodes that read it
one after the other would hold the VIP twice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from kavip.api.address import BITS, Address
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.names import MAX_ROUTER_ID
from kavip.reconcile.observed.agentstates import MASTER, InstanceState, NodeState
from kavip.vrrp import virtualips
from kavip.vrrp.groupspec import has_password, vrrp_interface_of
from kavip.vrrp.identity import Identity
from kavip.vrrp.running import RunningInstance
from kavip.vrrp.sharding import interface_of_instance, shard_of_instance
from kavip.vrrp.timing import timing_of
from kavip.vrrp.virtualips import VirtualIP

InterfaceOf = Callable[[Address], str]
"""The interface on which an address lives; "": that of the group."""

_ROUTER_IDS: Final = range(1, MAX_ROUTER_ID + 1)


def reported_instances(
    states: Mapping[str, NodeState],
    group: KeepalivedGroup,
    *,
    services: Collection[str],
    taken: Collection[int],
    interface_of: InterfaceOf,
) -> Mapping[str, RunningInstance]:
    """
    The Shared instances of *group* and those of *services* that nodes run by their *states*, by name.

    An answer has no more of an instance's identity than its VRID, VIPs and anchor; the rest is what the spec says. A
    VRID that is *taken* by another group is not believed. If nodes disagree, the master of a VIP is right.
    """
    found: dict[str, RunningInstance] = {}
    anchors = _anchors(states)
    vips: dict[tuple[str, int], list[VirtualIP]] = {}
    for address, name in _places(states).items():
        vip = virtualips.host(address, interface_of(address) or group.spec.interface)
        vips.setdefault((name, address.family), []).append(vip)
    for _, state in sorted(states.items()):
        for each in state.instances:
            own = sorted(vips.get((each.name, each.family), ()))
            is_of_service = own and "/".join(each.name.split("/")[:2]) in services
            is_known = shard_of_instance(each.name) or is_of_service
            is_possible = each.router_id in _ROUTER_IDS and each.router_id not in taken and each.family in BITS
            if each.name not in found and is_known and is_possible:
                found[each.name] = _running(group.spec, each, own, anchors[each.name])
    return MappingProxyType(found)


def _places(states: Mapping[str, NodeState]) -> Mapping[Address, str]:
    """The instance of each VIP."""
    found: dict[Address, str] = {}
    for _, state in sorted(states.items()):
        for address, name in state.instance_of.items():
            if address not in found or address in state.masters:
                found[address] = name
    return found


def _anchors(states: Mapping[str, NodeState]) -> Mapping[str, Sequence[str]]:
    """The anchors that nodes report of each instance, that of its master first."""
    found: dict[str, list[tuple[bool, str]]] = {}
    for _, state in sorted(states.items()):
        for each in state.instances:
            found.setdefault(each.name, []).append((each.state != MASTER, each.anchor))
    return {name: [anchor for _, anchor in sorted(some, key=itemgetter(0))] for name, some in found.items()}


def _running(
    spec: GroupSpec, reported: InstanceState, vips: list[VirtualIP], anchors: Sequence[str]
) -> RunningInstance:
    """The instance *reported* with *vips*; *anchors*: those that nodes report."""
    name, timing = reported.name, timing_of(spec, reported.family)
    by_text = {str(each.address): each for each in vips}
    anchor = (
        virtualips.anchor(reported.family, reported.router_id, interface_of_instance(name) or spec.interface)
        if shard_of_instance(name)
        else next((by_text[each] for each in anchors if each in by_text), vips[0])
    )
    identity = Identity(
        reported.router_id,
        vrrp_interface_of(spec),
        timing.version,
        timing.seconds,
        bool(spec.unicast_enabled),
        timing.version == 2 and has_password(spec),
        anchor,
    )
    return RunningInstance(name, identity, tuple(vips), virtualips.addresses_of(vips))
