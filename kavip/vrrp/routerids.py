"""
Virtual router IDs (VRIDs): 255 numbers per segment, assigned once and kept.

A VRID that changes interrupts its VIPs, so the VRIDs in ``status.routerIDs`` are kept unless they cannot be used. New
ones are the lowest free numbers, in the order of the keys: the same objects give the same result, and when the numbers
run out, only the last keys get none.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final

from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.names import MAX_ROUTER_ID
from kavip.vrrp import openshift
from kavip.vrrp.members import has_own_instances

ALL: Final = frozenset(range(1, MAX_ROUTER_ID + 1))
NO_IDS: Final[Mapping[str, int]] = MappingProxyType({})


def assign(
    held: Mapping[str, int],
    wanted: Sequence[str],
    *,
    blacklist: AbstractSet[int],
    taken: AbstractSet[int],
    avoid: AbstractSet[int] = frozenset(),
    reserved: AbstractSet[int] = frozenset(),
    pinned: Mapping[str, int] = NO_IDS,
) -> Mapping[str, int]:
    """
    A VRID for each of the keys *wanted*, in their order, until none is left.

    *held* are the persisted VRIDs; keys that are no longer wanted free theirs. VRIDs of *blacklist* and *taken*, those
    of other groups of the segment, are never used: a key that holds one gets another. VRIDs to *avoid* still run
    somewhere; new keys get them last, and those of *reserved* not at all. A key in *pinned* gets its VRID, although
    another key holds it, or none.
    """
    usable = ALL - blacklist - taken
    kept = {key: number for key, number in pinned.items() if key in wanted and number in usable}
    unused = set(usable).difference(kept.values())
    for key in sorted(set(wanted) & held.keys() - pinned.keys()):
        if held[key] in unused:
            kept[key] = held[key]
            unused.discard(held[key])
    if others := [key for key in dict.fromkeys(wanted) if key not in kept and key not in pinned]:
        free = sorted(unused - reserved, key=lambda number: (number in avoid, number))
        kept |= zip(others, free, strict=False)
    return dict(sorted(kept.items()))


def capacity(blacklist: AbstractSet[int], taken: AbstractSet[int]) -> int:
    """The number of VRIDs that a group may use."""
    return len(ALL - blacklist - taken)


def blacklist_of(spec: GroupSpec) -> frozenset[int]:
    """The VRIDs that a group never uses: its blacklist, and the VRIDs of the OpenShift cluster that it names."""
    listed = frozenset(spec.blacklist_router_ids or ()) & ALL
    try:
        return listed | frozenset(openshift.router_ids(spec.openshift_cluster_name))
    except BadInput:  # absent, or malformed: check_group reports it
        return listed


def needed(service: Service, group: KeepalivedGroup | None = None) -> int:
    """
    The number of VRIDs that *service* needs in *group*: one for both families, with ``spreadvips`` one per address.

    Addresses that it has yet to get are counted. In Shared mode a Service needs none, except with ``spreadvips`` or
    ``externalTrafficPolicy: Local``, which give it instances of its own.
    """
    if group is not None and group.is_shared and not has_own_instances(service):
        return 0
    if not service.is_spread:
        return 1
    return max(1, len(service.virtual_ips), expected_addresses(service))


def required(service: Service, group: KeepalivedGroup) -> int:
    """The number of VRIDs without which *service* has VIPs that no instance of *group* can carry."""
    return 0 if group.is_shared and not service.is_local else needed(service, group)


def expected_addresses(service: Service) -> int:
    """
    The number of VIPs of *service*, including those that it has yet to get.

    An external IP that it also requests by name becomes the assigned address, so it counts once.
    """
    external = set(service.external_addresses).difference(service.requested_addresses)
    if not service.is_load_balancer:
        return len(external)
    assigned = set(service.ingress_addresses)
    dual = service.spec.ip_family_policy in ("PreferDualStack", "RequireDualStack")
    requested = len(service.spec.ip_families or ()) or (2 if dual else 1)
    if service.address_count is not None:  # it keeps no more than these
        return len(external - assigned) + requested * service.address_count
    return len(external - assigned) + max(requested, len(assigned))
