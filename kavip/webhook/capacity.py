"""
How many virtual router IDs a group has left: 255, less its blacklist, less what is in use on its segment.

What counts is what Services need, not what is persisted: a Service that has no VRID yet has a claim to one, and a
leftover in ``status.routerIDs`` has none.
"""

from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from kavip.vrrp import keys, routerids

_MOST_ASKED: Final = 10  # groups of which it is counted whether they have room: each count looks at all their Services
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Usage:
    """
    The VRIDs of one group; *left* is negative where more are needed than there are.

    *leaving*: how many of those *in_use* are of Services in deletion.
    """

    blacklisted: int
    in_use: int
    where: str
    leaving: int = 0

    @property
    def left(self) -> int:
        """How many a further Service may take."""
        return names.MAX_ROUTER_ID - self.blacklisted - self.in_use

    def __str__(self) -> str:
        """Do the sum in words."""
        leaving = f" ({self.leaving} of Services that are being deleted)" if self.leaving else ""
        return f"{names.MAX_ROUTER_ID} - {self.blacklisted} blacklisted - {self.in_use} in use {self.where}{leaving}"


def usage(group: KeepalivedGroup, snapshot: Snapshot, *, without: str = "") -> Usage:
    """Count for *group*; *without* is the key of a Service that is left out, because it is the one that asks."""
    blacklist = routerids.blacklist_of(group.spec)
    taken: set[int] = set()
    waiting = 0
    for neighbour in snapshot.neighbours(group):
        ids = held(neighbour, snapshot)
        taken |= ids
        waiting += max(0, needs(neighbour, snapshot) - len(ids))
    left = routerids.capacity(blacklist, taken) - waiting - needs(group, snapshot, without=without)
    where = f'on segment "{group.spec.segment}"' if group.spec.segment else "by this group"
    leaving = 0
    if left < names.MAX_VIPS:  # there may not be enough of them: whoever is refused hears what will come free
        leaving = sum(_leaving(each, snapshot) for each in (group, *snapshot.neighbours(group)))
    return Usage(len(blacklist), names.MAX_ROUTER_ID - len(blacklist) - left, where, leaving)


def open_to(namespace: str, snapshot: Snapshot) -> list[KeepalivedGroup]:
    """The groups that Services of *namespace* may use, sorted by key."""
    return [
        group
        for _, group in sorted(snapshot.groups.items())
        if not group.metadata.deletion_timestamp and snapshot.allows(group, namespace)
    ]


def roomy(service: Service, snapshot: Snapshot) -> list[str]:
    """The first of the groups that may take *service* and have room for it, by key; those of shared instances first."""
    allowed = open_to(service.metadata.namespace, snapshot)
    found: list[str] = []
    for group in sorted(allowed, key=lambda group: not group.is_shared)[:_MOST_ASKED]:
        needed = routerids.needed(service, group)
        if not needed or needed <= usage(group, snapshot, without=service.key).left:
            found.append(group.key)
        if len(found) == _MOST_NAMED:
            break
    return found


def needs(group: KeepalivedGroup, snapshot: Snapshot, *, without: str = "") -> int:
    """How many VRIDs *group* and its Services take; those VIPs that it names itself share one."""
    own = group.spec.instances.count if group.is_shared else int(bool(group.spec.virtual_ips))
    members = snapshot.members(group.key)
    return own + sum(routerids.needed(member, group) for member in members if member.key != without)


def held(group: KeepalivedGroup, snapshot: Snapshot) -> set[int]:
    """The VRIDs that *group* has given to Services that are still there, to its own VIPs and its shared instances."""
    ids = group.status.router_ids or {}
    if group.is_shared:
        return set(ids.values())
    members = {member.key for member in snapshot.members(group.key)}
    own = keys.own_key(group) if group.spec.virtual_ips else ""
    return {number for key, number in ids.items() if key == own or _owner(key) in members}


def _leaving(group: KeepalivedGroup, snapshot: Snapshot) -> int:
    members = (member for member in snapshot.members(group.key) if member.metadata.deletion_timestamp)
    return sum(routerids.needed(member, group) for member in members)


def _owner(key: str) -> str:
    """``ns/name`` of ``ns/name/ip``."""
    return "/".join(key.split("/")[:2])
