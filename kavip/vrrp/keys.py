"""
The names under which VRIDs are kept, and which Service lives where.

``ns/name``, with ``spreadvips`` ``ns/name/ip``; Shared instances ``group/<n>``; the VIPs that a group names itself
``ns/name/virtualips``. Instances have the same names, the IPv6 one of two with ``/v6`` behind it.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

from kavip.api.group import KeepalivedGroup
from kavip.memo import last
from kavip.vrrp.members import Member, is_name

SHARED_PREFIX: Final = "group"
OWN_SUFFIX: Final = "virtualips"
_IPV6: Final = "/v6"

MOST_SHOWN: Final = 800_000
"""Characters of Services that a Shared group's status shows: etcd takes 1.5 MB, and nothing hangs on what is shown."""


def wanted_keys(group: KeepalivedGroup, members: Iterable[Member]) -> tuple[str, ...]:
    """
    The keys that need a VRID, in the order in which they are served when VRIDs run out: the group's own, then by age.

    ``ns/name``, with ``spreadvips`` ``ns/name/ip``; in Shared mode ``group/<n>``, and what has instances of its own.
    """
    if group.is_shared:
        own = list(slot_names(group.spec.instances.count))
    else:
        own = [own_key(group)] if group.spec.virtual_ips else []
    some = [each for each in members if each.local] if group.is_shared else members
    return (*own, *(key for each in sorted(some, key=lambda each: each.age_key) for key in keys_of(group, each)))


def keys_of(group: KeepalivedGroup, member: Member) -> tuple[str, ...]:
    """The keys of *member* alone: at least one, except where it lives in a Shared instance."""
    if not is_name(member.key) or (group.is_shared and not member.local):
        return ()
    if member.spread and member.addresses and not group.is_shared:
        return tuple(f"{member.key}/{address}" for address in member.addresses)
    return (member.key,)


def published_ids(
    group: KeepalivedGroup, members: Iterable[Member], router_ids: Mapping[str, int], *, held: dict[str, int]
) -> dict[str, int]:
    """
    What ``status.routerIDs`` shows: *router_ids*, and in Shared mode each Service with the VRID of its instance.

    Of the Services as many as there is room for. Where that is what it shows already it is the same object, *held*.
    """
    if not group.is_shared:
        return dict(sorted(router_ids.items()))
    services = _fitting(tuple(member.key for member in members if not member.local))
    return _shown(group.key, services, group.spec.instances.count, router_ids, held)


def _fitting(services: tuple[str, ...]) -> tuple[str, ...]:
    if sum(map(len, services)) <= MOST_SHOWN:
        return services
    return tuple(key for key, end in zip(services, accumulate(map(len, services)), strict=True) if end <= MOST_SHOWN)


@last(64)
def _shown(
    _group: str, services: Sequence[str], count: int, router_ids: Mapping[str, int], held: dict[str, int]
) -> dict[str, int]:
    slots = ((key, slot_of(key, count)) for key in services)
    shown = {**{key: router_ids[slot] for key, slot in slots if slot in router_ids}, **router_ids}
    return held if shown == held else dict(sorted(shown.items()))


def own_key(group: KeepalivedGroup) -> str:
    """The key of the group's own VIPs: three parts, so that no Service can have it, and the last is no address."""
    return f"{group.key}/{OWN_SUFFIX}"


@lru_cache
def slot_names(count: int) -> tuple[str, ...]:
    """The names of *count* Shared instances."""
    return tuple(f"{SHARED_PREFIX}/{number}" for number in range(count))


@lru_cache(16384)  # the plan of a group asks for all of its Services
def slot_of(key: str, count: int) -> str:
    """The Shared instance of the Service *key*: always the same while *count* is."""
    return slot_names(count)[int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % count]


def instance_name(unit: str, family: int) -> str:
    """The name of an instance: the IPv6 one of a spread address is told apart by the address itself."""
    return f"{unit}{_IPV6}" if family == 6 and ":" not in unit else unit


def unit_name(instance: str, family: int) -> str:
    """The unit of the *instance* of that name, which is the key of its VRID."""
    return instance.removesuffix(_IPV6) if family == 6 else instance
