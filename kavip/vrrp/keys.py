"""
The names under which VRIDs are kept, and which Service lives where.

``ns/name``, with ``spreadvips`` ``ns/name/ip``; Shared instances ``group/<n>``; the VIPs that a group names itself
``ns/name/virtualips``. Instances have the same names, the IPv6 one of two with ``/v6`` behind it.
"""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

from kavip.api.group import KeepalivedGroup
from kavip.vrrp.members import Member, is_name
from kavip.vrrp.shares import count_of, shares_of, slot_names

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
        own, members = list(slot_names(count_of(group))), shares_of(group, members).local
    else:
        own = [own_key(group)] if group.spec.virtual_ips else []
    return (*own, *(key for each in sorted(members, key=lambda each: each.age_key) for key in keys_of(group, each)))


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
    shares = shares_of(group, members)
    return shares.memory.last(_shown, "", shares.names, router_ids, held)


def _shown(
    services: Mapping[str, tuple[str, ...]], router_ids: Mapping[str, int], held: dict[str, int]
) -> dict[str, int]:
    every = {key: router_ids[slot] for slot, some in services.items() if slot in router_ids for key in some}
    shown = {**_fitting(every), **router_ids}
    return held if shown == held else {key: shown[key] for key in sorted(shown)}


def _fitting(services: dict[str, int]) -> dict[str, int]:
    if sum(map(len, services)) <= MOST_SHOWN:
        return services
    names = sorted(services)
    fits = zip(names, accumulate(map(len, names)), strict=True)
    return {key: services[key] for key, end in fits if end <= MOST_SHOWN}


def own_key(group: KeepalivedGroup) -> str:
    """The key of the group's own VIPs: three parts, so that no Service can have it, and the last is no address."""
    return f"{group.key}/{OWN_SUFFIX}"


def instance_name(unit: str, family: int) -> str:
    """The name of an instance: the IPv6 one of a spread address is told apart by the address itself."""
    return f"{unit}{_IPV6}" if family == 6 and ":" not in unit else unit


def unit_name(instance: str, family: int) -> str:
    """The unit of the *instance* of that name, which is the key of its VRID."""
    return instance.removesuffix(_IPV6) if family == 6 else instance
