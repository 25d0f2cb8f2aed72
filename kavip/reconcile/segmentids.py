"""
The VRIDs that the other groups of a segment take, and how many are left.

A group's reservation counts like its status: it has the VRIDs of a status write that no watch has shown yet. So two
groups that are planned one after the other never take the same VRID. If two groups have the same one, the older keeps
it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kavip.api.group import KeepalivedGroup
from kavip.reconcile.plan import GroupReservation
from kavip.snapshot import Snapshot
from kavip.vrrp import routerids

NO_RESERVATIONS: Final[Mapping[str, GroupReservation]] = MappingProxyType({})


def taken_ids(
    snapshot: Snapshot, group: KeepalivedGroup, reserved: Mapping[str, GroupReservation] = NO_RESERVATIONS
) -> frozenset[int]:
    """The VRIDs of the other groups of the segment, without those that *group* had first."""
    held = _held(snapshot, group)
    result: set[int] = set()
    for other in snapshot.neighbours(group):
        ids = _held(snapshot, other)
        if group.metadata.age_key < other.metadata.age_key:
            ids -= held
        result |= ids
        if other.key in reserved:
            result |= reserved[other.key].router_ids - held
    return frozenset(result)


def count_free_ids(snapshot: Snapshot, group: KeepalivedGroup) -> int:
    """How many VRIDs *group* can still assign, by the status of all groups."""
    usable = routerids.ALL - routerids.blacklist_of(group.spec) - taken_ids(snapshot, group)
    return len(usable - snapshot.platform_router_ids(group) - _held(snapshot, group))


def _held(snapshot: Snapshot, group: KeepalivedGroup) -> frozenset[int]:
    return snapshot.memory(group.key).last(_numbers, "", group.status.router_ids)


def _numbers(router_ids: Mapping[str, int] | None) -> frozenset[int]:
    return frozenset((router_ids or {}).values())
