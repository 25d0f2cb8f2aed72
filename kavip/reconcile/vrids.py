"""
Which VRIDs a group may use: what its neighbours on the segment have is theirs.

What a neighbour's status will say as soon as a write of ours is seen counts as well, so that two groups that are
planned one after the other never take one number. Where two are found with the same number, the older one keeps it.
"""

from collections.abc import Mapping

from kavip.api.group import KeepalivedGroup
from kavip.reconcile.plan import Reservation
from kavip.snapshot import Snapshot
from kavip.vrrp import routerids

NONE: Mapping[str, Reservation] = {}


def taken(snapshot: Snapshot, group: KeepalivedGroup, reserved: Mapping[str, Reservation] = NONE) -> frozenset[int]:
    """The VRIDs of the other groups of the segment, but for those that *group* had first."""
    held = _held(snapshot, group)
    result: set[int] = set()
    for other in snapshot.neighbours(group):
        theirs = _held(snapshot, other)
        if group.metadata.age_key < other.metadata.age_key:
            theirs -= held
        result |= theirs
        if other.key in reserved:
            result |= reserved[other.key].router_ids - held
    return frozenset(result)


def room(snapshot: Snapshot, group: KeepalivedGroup) -> int:
    """How many VRIDs *group* may still give, by what is persisted; never negative."""
    usable = routerids.ALL - routerids.blacklist_of(group.spec) - taken(snapshot, group)
    return len(usable - _held(snapshot, group))


def _held(snapshot: Snapshot, group: KeepalivedGroup) -> frozenset[int]:
    return snapshot.memory(group.key).last(_numbers, "", group.status.router_ids)


def _numbers(router_ids: Mapping[str, int] | None) -> frozenset[int]:
    return frozenset((router_ids or {}).values())
