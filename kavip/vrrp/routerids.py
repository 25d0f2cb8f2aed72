"""
Virtual router IDs (VRIDs): 255 numbers per segment, given once and kept.

A VRID that moves is an outage of its VIPs, so what stands in ``status.routerIDs`` is honoured as found; it is given up
only where it cannot be used. New ones are the lowest free numbers, in the order of the askers: the same objects give
the same answer, and when the numbers run out, only those who come last go without.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.names import MAX_ROUTER_ID, SPREAD_ANNOTATION
from kavip.vrrp import openshift

ALL: Final = frozenset(range(1, MAX_ROUTER_ID + 1))


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who has which VRID, by key; *overflow* are the keys for which none is left, in the order of asking."""

    ids: Mapping[str, int]
    overflow: tuple[str, ...] = ()


def assign(
    held: Mapping[str, int],
    wanted: Sequence[str],
    *,
    blacklist: AbstractSet[int],
    taken: AbstractSet[int],
    avoid: AbstractSet[int] = frozenset(),
) -> Assignment:
    """
    Give each of *wanted* a VRID.

    *held* is what is persisted; keys that are no longer wanted free theirs. Nobody gets one of *blacklist*, or of
    *taken*, the VRIDs of other groups of the segment: who holds one of these gets another. Those to *avoid* still run
    somewhere: new keys get them last.
    """
    usable = ALL - blacklist - taken
    kept: dict[str, int] = {}
    for key in sorted(set(wanted) & held.keys()):
        if held[key] in usable and held[key] not in kept.values():
            kept[key] = held[key]
    free = iter(sorted(usable - set(kept.values()), key=lambda number: (number in avoid, number)))
    overflow: list[str] = []
    for key in dict.fromkeys(wanted):
        if key in kept:
            continue
        number = next(free, None)
        if number is None:
            overflow.append(key)
        else:
            kept[key] = number
    return Assignment(dict(sorted(kept.items())), tuple(overflow))


def capacity(blacklist: AbstractSet[int], taken: AbstractSet[int]) -> int:
    """How many VRIDs a group may use at all."""
    return len(ALL - blacklist - taken)


def blacklist_of(spec: GroupSpec) -> frozenset[int]:
    """The VRIDs that a group never uses: its blacklist, and those of the OpenShift cluster that it names."""
    listed = frozenset(spec.blacklist_router_ids or ()) & ALL
    try:
        return listed | frozenset(openshift.router_ids(spec.openshift_cluster_name))
    except BadInput:  # absent, or malformed: check_group says so
        return listed


def needed(service: Service, group: KeepalivedGroup | None = None) -> int:
    """
    How many VRIDs *service* takes of *group*: one whatever its families, with ``spreadvips`` one per address.

    Addresses that it will still be given are counted. In Shared mode a Service takes none, unless
    ``externalTrafficPolicy: Local`` gives it instances of its own.
    """
    if group is not None and group.is_shared:
        return int(service.is_local)
    if service.metadata.annotation(SPREAD_ANNOTATION) != "true":
        return 1
    return max(1, len(service.virtual_ips), expected_addresses(service))


def expected_addresses(service: Service) -> int:
    """How many VIPs *service* has, those included that it will still be given."""
    external = set(service.external_addresses)
    if not service.is_load_balancer:
        return len(external)
    assigned = set(service.ingress_addresses)
    dual = service.spec.ip_family_policy in ("PreferDualStack", "RequireDualStack")
    families = len(service.spec.ip_families or ()) or (2 if dual else 1)
    return len(assigned | external) + max(0, families - len(assigned))
