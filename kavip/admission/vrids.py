"""
How many virtual router IDs a group has left: 255, less its blacklist, less what is in use on its segment.

What counts is what Services need, not what is persisted: a Service that has no VRID yet has a claim to one, and a
leftover in ``status.routerIDs`` has none.
"""

from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class _Tally:
    """The VRIDs that a group and its Services need, those that they have, and what Services in deletion need."""

    needs: int
    held: set[int]
    leaving: int


class Census:
    """The counts of one decision: each group is counted once, however many others share its segment."""

    def __init__(self, snapshot: Snapshot, *, without: str = "") -> None:
        """*without* is the key of a Service that is left out, because it is the one that asks."""
        self._snapshot, self._without = snapshot, without
        self._tallies: dict[str, _Tally] = {}

    def usage(self, group: KeepalivedGroup) -> Usage:
        """Count for *group*."""
        blacklist = routerids.blacklist_of(group.spec)
        own, *others = [self._tally(each) for each in (group, *self._snapshot.neighbours(group))]
        taken = set[int]().union(*(each.held for each in others))
        waiting = sum(max(0, each.needs - len(each.held)) for each in others)
        left = routerids.capacity(blacklist, taken) - waiting - own.needs
        where = f'on segment "{group.spec.segment}"' if group.spec.segment else "by this group"
        leaving = own.leaving + sum(each.leaving for each in others)
        return Usage(len(blacklist), names.MAX_ROUTER_ID - len(blacklist) - left, where, leaving)

    def roomy(self, service: Service) -> list[str]:
        """The first groups that may take *service* and have room for it, by key; those of shared instances first."""
        allowed = open_to(service.metadata.namespace, self._snapshot)
        found: list[str] = []
        for group in sorted(allowed, key=lambda group: not group.is_shared)[:_MOST_ASKED]:
            needed = routerids.needed(service, group)
            if not needed or needed <= self.usage(group).left:
                found.append(group.key)
            if len(found) == _MOST_NAMED:
                break
        return found

    def _tally(self, group: KeepalivedGroup) -> _Tally:
        found = self._tallies.get(group.key)
        if found is None:
            members = self._snapshot.members(group.key)
            asking = [member for member in members if member.key != self._without]
            leaving = [member for member in asking if member.metadata.deletion_timestamp]
            needed = _own(group) + _needed(asking, group)
            found = self._tallies[group.key] = _Tally(needed, _held(group, members), _needed(leaving, group))
        return found


def open_to(namespace: str, snapshot: Snapshot) -> list[KeepalivedGroup]:
    """The groups that Services of *namespace* may use, sorted by key."""
    return [
        group
        for _, group in sorted(snapshot.groups.items())
        if not group.metadata.deletion_timestamp and snapshot.allows(group, namespace)
    ]


def needs(group: KeepalivedGroup, snapshot: Snapshot) -> int:
    """How many VRIDs *group* and its Services take; those VIPs that it names itself share one."""
    return _own(group) + _needed(snapshot.members(group.key), group)


def held(group: KeepalivedGroup, snapshot: Snapshot) -> set[int]:
    """The VRIDs that *group* has given to Services that are still there, to its own VIPs and its shared instances."""
    return _held(group, snapshot.members(group.key))


def _own(group: KeepalivedGroup) -> int:
    return group.spec.instances.count if group.is_shared else int(bool(group.spec.virtual_ips))


def _needed(members: Iterable[Service], group: KeepalivedGroup) -> int:
    return sum(routerids.needed(member, group) for member in members)


def _held(group: KeepalivedGroup, members: Iterable[Service]) -> set[int]:
    ids = group.status.router_ids or {}
    if group.is_shared:
        return set(ids.values())
    there = {member.key for member in members}
    own = keys.own_key(group) if group.spec.virtual_ips else ""
    return {number for key, number in ids.items() if key == own or _owner(key) in there}


def _owner(key: str) -> str:
    """``ns/name`` of ``ns/name/ip``."""
    return "/".join(key.split("/")[:2])
