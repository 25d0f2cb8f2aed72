"""
How many virtual router IDs (VRIDs) a group has left: 255, less its blacklist, less those in use on its segment.

The count goes by what Services need, not by what is persisted: a Service without a VRID needs one, and an obsolete
entry in ``status.routerIDs`` does not count.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from typing import Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from kavip.snapshot import Snapshot
from kavip.vrrp import keys, routerids
from kavip.vrrp.members import has_own_instances
from kavip.vrrp.sharding import instance_on, shard_of

_MAX_COUNTED: Final = 10  # groups whose usage is counted for a hint: each count reads all their Services
_MAX_NAMED: Final = 3
Need = Callable[[Service, KeepalivedGroup], int]
"""How many VRIDs a Service needs in a group."""


@dataclass(frozen=True, slots=True)
class RouterIDUsage:
    """
    The VRIDs of one group; *left* is negative if the Services need more than there are.

    *needed*: also by Services that have none yet. *leaving*: how many of these belong to Services in deletion.
    *platform*: those that OpenShift's keepalived uses and no group.
    """

    blacklisted: int
    needed: int
    where: str
    leaving: int = 0
    platform: int = 0

    @property
    def left(self) -> int:
        """How many a further Service may take."""
        return names.MAX_ROUTER_ID - self.blacklisted - self.platform - self.needed

    def __str__(self) -> str:
        """The numbers, for messages; without what is zero."""
        leaving = f" ({self.leaving} of Services that are being deleted)" if self.leaving else ""
        terms = {
            "blacklisted": self.blacklisted,
            "of OpenShift": self.platform,
            f"needed {self.where}{leaving}": self.needed,
        }
        used = (f"{number} {what}" for what, number in terms.items() if number)
        return ", ".join((f"{names.MAX_ROUTER_ID} in all", *used))


@dataclass(frozen=True, slots=True)
class _GroupCount:
    """The VRIDs that a group and its Services need, those that they hold, and what Services in deletion need."""

    needs: int
    held: set[int]
    leaving: int


class UsageCounter:
    """Counts for one decision: each group is counted once, also if several others share its segment."""

    def __init__(self, snapshot: Snapshot, *, without: str = "", need: Need = routerids.needed) -> None:
        """*without* is the key of a Service that is not counted: the one under review. *need*: of each other one."""
        self._snapshot, self._without, self._need = snapshot, without, need
        self._counts: dict[str, _GroupCount] = {}

    def usage(self, group: KeepalivedGroup) -> RouterIDUsage:
        """The usage of *group*."""
        blacklist = routerids.blacklist_of(group.spec)
        own, *others = [self._count(each) for each in (group, *self._snapshot.neighbours(group))]
        taken = set[int]().union(*(each.held for each in others))
        pending = sum(max(0, each.needs - len(each.held)) for each in others)
        platform = self._snapshot.platform_router_ids(group) - blacklist - taken - own.held
        left = routerids.capacity(blacklist | platform, taken) - pending - own.needs
        where = f'on segment "{group.spec.segment}"' if group.spec.segment else "by this group"
        leaving = own.leaving + sum(each.leaving for each in others)
        unusable = len(blacklist) + len(platform)
        return RouterIDUsage(len(blacklist), names.MAX_ROUTER_ID - unusable - left, where, leaving, len(platform))

    def usage_by_others(self, group: KeepalivedGroup) -> RouterIDUsage:
        """The usage of *group* without what the group and its Services need."""
        usage, own = self.usage(group), self._count(group)
        return replace(
            usage,
            needed=usage.needed - own.needs,
            where=f"by other groups {usage.where}",
            leaving=usage.leaving - own.leaving,
        )

    def groups_with_free_ids(self, service: Service) -> list[str]:
        """The keys of the first groups that *service* may use and that have room; those with shared instances first."""
        allowed = groups_for(service.metadata.namespace, self._snapshot)
        found: list[str] = []
        for group in sorted(allowed, key=lambda group: not group.is_shared)[:_MAX_COUNTED]:
            needed = routerids.needed(service, group) + len(new_instances(service, group, self._snapshot))
            if not needed or needed <= self.usage(group).left:
                found.append(group.key)
            if len(found) == _MAX_NAMED:
                break
        return found

    def _count(self, group: KeepalivedGroup) -> _GroupCount:
        found = self._counts.get(group.key)
        if found is None:
            members = self._snapshot.members(group.key)
            counted = [member for member in members if member.key != self._without]
            leaving = [member for member in counted if member.metadata.deletion_timestamp]
            needs = _group_needs(group) + sum(self._need(member, group) for member in counted)
            needs += len(instances_on_interfaces(group, self._snapshot))
            left_soon = sum(self._need(member, group) for member in leaving)
            found = self._counts[group.key] = _GroupCount(needs, set(_held(group, members).values()), left_soon)
        return found


def groups_for(namespace: str, snapshot: Snapshot) -> list[KeepalivedGroup]:
    """The groups that Services of *namespace* may use, sorted by key."""
    return [
        group
        for _, group in sorted(snapshot.groups.items())
        if not group.metadata.deletion_timestamp and snapshot.allows(group, namespace)
    ]


def needed_ids(group: KeepalivedGroup, snapshot: Snapshot) -> int:
    """How many VRIDs *group* and its Services require; virtual IPs of the group itself that pin none share one."""
    of_services = sum(routerids.required(member, group) for member in snapshot.members(group.key))
    return _group_needs(group) + len(instances_on_interfaces(group, snapshot)) + of_services


def instances_on_interfaces(group: KeepalivedGroup, snapshot: Snapshot) -> frozenset[str]:
    """The Shared instances of *group* on other interfaces than its own, which each need a VRID."""
    pools = snapshot.parsed_pools
    if not group.is_shared or not pools.interfaces:
        return frozenset()
    memory, layout = snapshot.memory(group.key), (group.spec.instances.count, group.spec.interface)
    parts = snapshot.parts(group.key)
    return frozenset[str]().union(*(memory.last(_instances_of, part, parts[part], pools, *layout) for part in parts))


def new_instances(service: Service, group: KeepalivedGroup, snapshot: Snapshot) -> frozenset[str]:
    """
    Those of them that *group* does not have yet, and that *service* needs.

    If it has an address yet to get, the pool that it names counts, else the first one that serves it.
    """
    pools = snapshot.parsed_pools
    if not group.is_shared or not pools.interfaces or has_own_instances(service):
        return frozenset()
    layout = group.spec.instances.count, group.spec.interface
    found, there = _instances_of((service,), pools, *layout), instances_on_interfaces(group, snapshot)
    if not service.is_load_balancer or service.ingress_addresses:
        return found - there
    request = read_request(service, group=group.key)[0]
    wanted = [place.interface for each in request.wanted if (place := pools.interface_of(each))]
    named = pools.get(request.pool) if request.pool else None
    serving = pools.eligible(request, snapshot.namespace_labels(service.metadata.namespace))[:1]
    likely = [pool.interface for pool in ((named,) if named else serving)] if not request.wanted else []
    return (found | _on(service.key, (*wanted, *likely), *layout)) - there


def _instances_of(services: Iterable[Service], pools: Pools, count: int, own: str) -> frozenset[str]:
    """The Shared instances on other interfaces than *own* for the addresses that *services* have."""
    shared = (each for each in services if not has_own_instances(each))
    places = ((each.key, [pools.interface_of(address) for address in each.virtual_ips]) for each in shared)
    return frozenset[str]().union(
        *(_on(key, (place.interface for place in some if place), count, own) for key, some in places if any(some))
    )


def _on(service: str, interfaces: Iterable[str], count: int, own: str) -> frozenset[str]:
    shard = shard_of(service, count)
    return frozenset(instance_on(shard, each) for each in interfaces if each not in ("", own))


def held_ids(group: KeepalivedGroup, snapshot: Snapshot) -> set[int]:
    """The VRIDs of *group* that existing Services, its own virtual IPs and its shared instances hold."""
    return set(held(group, snapshot).values())


def held(group: KeepalivedGroup, snapshot: Snapshot) -> dict[str, int]:
    """The same by key."""
    return _held(group, snapshot.members(group.key))


def _group_needs(group: KeepalivedGroup) -> int:
    return len(keys.own_keys(group)) + (group.spec.instances.count if group.is_shared else 0)


def _held(group: KeepalivedGroup, members: Iterable[Service]) -> dict[str, int]:
    ids = keys.holding_keys(group.status.router_ids or {})
    if group.is_shared:
        return ids
    existing = {member.key for member in members}
    own = keys.own_keys(group)
    return {key: number for key, number in ids.items() if key in own or _is_of(key, existing)}


def _is_of(key: str, services: Container[str]) -> bool:
    """Whether *key* is that of one of *services*: ``ns/name`` or ``ns/name/ip``."""
    return not keys.is_own_key(key) and "/".join(key.split("/")[:2]) in services
