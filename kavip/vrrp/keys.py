"""
The keys under which VRIDs are persisted, and the names of instances.

The key of a Service is ``ns/name``, with ``spreadvips`` ``ns/name/ip`` for each address. Shared instances have
``group/<n>``, on another interface than the group's ``group/<n>.<interface>``, and the VIPs that a group itself names
``ns/name/virtualips``, those with a pinned VRID ``ns/name/virtualips/<VRID>``. An instance has the name of its key. If
a key has two instances, the name of the IPv6 instance has the suffix ``/v6``. No Service has a key of a Shared instance
(:func:`~kavip.vrrp.members.is_name`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.vrrp.members import Member, is_name
from kavip.vrrp.sharding import Shards, shard_count, shard_members, shard_of_instance, shared_instances

OWN_SUFFIX: Final = "virtualips"
_IPV6: Final = "/v6"


def wanted_keys(group: KeepalivedGroup, members: Iterable[Member]) -> tuple[str, ...]:
    """
    The keys that need a VRID, in the order in which they get one: the group's own, then those of Services, by age.

    In Shared mode the Shared instances need one, those on other interfaces than the group's only while they have a
    Service, and the Services with instances of their own.
    """
    own = own_keys(group)
    if group.is_shared:
        shards = shard_members(group, members)
        own, members = (*own, *shared_instances(shard_count(group)), *shards.instances_on_interfaces), shards.own
    return (*own, *(key for each in sorted(members, key=lambda each: each.age_key) for key in keys_of(group, each)))


def keys_of(group: KeepalivedGroup, member: Member) -> tuple[str, ...]:
    """The keys of *member*: at least one, but none if it is in a Shared instance."""
    if not is_name(member.key) or (group.is_shared and not member.has_own_instances):
        return ()
    if member.spread and member.addresses:
        return tuple(address_key(member.key, address) for address in member.addresses)
    return (member.key,)


def address_key(service: str, address: Address) -> str:
    """The key of the instance of one *address* of a Service with ``spreadvips``."""
    return f"{service}/{address}"


def is_address_key(key: str) -> bool:
    """Whether *key* is of one address of a Service with ``spreadvips``: three parts, the last one not the group's."""
    return key.count("/") == 2 and not is_own_key(key)


def keep_shared(group: KeepalivedGroup, members: Shards, router_ids: Mapping[str, int]) -> Shards:
    """
    *members*, those with ``spreadvips`` with the addresses for which *router_ids* has no VRID.

    Such an address stays in the Shared instance, because a VIP that is not spread is better than none. With
    ``externalTrafficPolicy: Local`` no Shared instance follows the endpoints.
    """
    if not group.is_shared:
        return members
    lacking = {
        member.key: replace(member, shared=without)
        for member in members.own
        if not member.local
        if (without := tuple(each for each in member.addresses if address_key(member.key, each) not in router_ids))
    }
    return members.map(lambda member: lacking[member.key], lacking.keys()) if lacking else members


def holding_keys(router_ids: Mapping[str, int]) -> dict[str, int]:
    """
    *router_ids* of a status without the entries that hold nothing.

    kavip 0.1 also named each Service of a Shared instance, with the VRID of that instance.
    """
    shared = {number for key, number in router_ids.items() if shard_of_instance(key)}
    if not shared:
        return dict(router_ids)
    return {key: number for key, number in router_ids.items() if number not in shared or shard_of_instance(key)}


def own_key(group: KeepalivedGroup, router_id: int | None = None) -> str:
    """
    The key of the VIPs that the group itself names, of those that pin *router_id*.

    No Service has it, for its third part is no address.
    """
    return "/".join((group.key, OWN_SUFFIX, *(() if router_id is None else (str(router_id),))))


def own_keys(group: KeepalivedGroup) -> tuple[str, ...]:
    """
    The keys of the instances of the group's own VIPs.

    In Shared mode, VIPs that pin no VRID are in a Shared instance, as those of Services.
    """
    ids = {entry.router_id: None for entry in group.spec.virtual_ips or ()}
    return tuple(own_key(group, each) for each in ids if each is not None or not group.is_shared)


def pinned_ids(group: KeepalivedGroup) -> dict[str, int]:
    """By key, the VRIDs that the group's own VIPs pin."""
    return {own_key(group, number): number for number in pinned_fields(group)}


def pinned_fields(group: KeepalivedGroup) -> dict[int, str]:
    """The pinned VRIDs, each with the path of the first field that has it."""
    found: dict[int, str] = {}
    for index, entry in enumerate(group.spec.virtual_ips or ()):
        if entry.router_id is not None:
            found.setdefault(entry.router_id, f"spec.virtualIPs[{index}].routerID")
    return found


def is_own_key(key: str) -> bool:
    """Whether *key* is of VIPs that a group itself names."""
    return key.split("/", 3)[2:3] == [OWN_SUFFIX]


def instance_name(unit: str, family: int) -> str:
    """The name of the instance of *unit* for *family*; if the unit is one IPv6 address, the key is enough."""
    return f"{unit}{_IPV6}" if family == 6 and ":" not in unit else unit


def unit_name(instance: str, family: int) -> str:
    """The unit of *instance*: the key of its VRID."""
    return instance.removesuffix(_IPV6) if family == 6 else instance
