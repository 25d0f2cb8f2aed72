"""
The Services of each Shared instance, and what of them can be told without looking at any other Service.

Thousands of them change one at a time. Of those that have nothing special about them, the *plain* ones, VIPs and names
are put together once for each instance, and again where one of its Services is another.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Final

from kavip.api.address import Address
from kavip.memo import last
from kavip.vrrp import keys, virtualips
from kavip.vrrp.members import Member, is_name
from kavip.vrrp.virtualips import VirtualIP

_MOST: Final = 1024
_KEY: Final = attrgetter("key")

_Pick = Callable[[Sequence[Member]], tuple[Member, ...]]


@dataclass(frozen=True, slots=True)
class Lot:
    """
    The Services of one Shared instance.

    *services* and *vips* of the plain ones, sorted, the latter by family; the *rest* has to be decided one by one.
    """

    members: tuple[Member, ...] = ()
    services: tuple[str, ...] = ()
    vips: Mapping[int, tuple[VirtualIP, ...]] = field(default_factory=lambda: MappingProxyType({}))
    rest: tuple[Member, ...] = ()


NONE: Final = Lot()


def lots_of(
    group: str, members: Sequence[Member], *, count: int, interface: str, reserved: Collection[Address]
) -> Mapping[str, Lot]:
    """
    The lots of *group* with *count* Shared instances; an address that is *reserved*, or that several have, is special.
    """
    members = tuple(members)
    names = tuple(map(_KEY, members))
    shares = {slot: pick(members) for slot, pick in _picks(group, names, count).items()}
    addresses = {slot: _addresses((group, slot), some) for slot, some in shares.items()}
    special = _special(tuple(addresses.values()), reserved)
    return {
        slot: _lot((group, slot), some, interface, special & addresses[slot][0] if special else special)
        for slot, some in shares.items()
    }


@last(64)
def _picks(_group: str, names: Sequence[str], count: int) -> Mapping[str, _Pick]:
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(keys.slot_of(name, count), []).append(index)
    return {slot: _pick(indices) for slot, indices in places.items()}


def _pick(indices: Sequence[int]) -> _Pick:
    if len(indices) > 1:
        return itemgetter(*indices)
    (index,) = indices
    return itemgetter(slice(index, index + 1))


@last(_MOST)
def _addresses(_slot: tuple[str, str], members: Sequence[Member]) -> tuple[frozenset[Address], frozenset[Address]]:
    """All addresses of *members*, and those that several of them have."""
    seen: set[Address] = set()
    twice: set[Address] = set()
    for member in members:
        mine = set(member.addresses)
        twice |= seen & mine
        seen |= mine
    return frozenset(seen), frozenset(twice)


def _special(
    found: Sequence[tuple[frozenset[Address], frozenset[Address]]], reserved: Collection[Address]
) -> frozenset[Address]:
    every = frozenset[Address]().union(*(some for some, _ in found))
    special = frozenset[Address]().union(every.intersection(reserved), *(twice for _, twice in found))
    if len(every) == sum(len(some) for some, _ in found):
        return special
    seen: set[Address] = set()
    across: set[Address] = set()
    for some, _ in found:
        across |= seen & some
        seen |= some
    return special | across


@last(_MOST)
def _lot(_slot: tuple[str, str], members: Sequence[Member], interface: str, special: frozenset[Address]) -> Lot:
    plain: list[Member] = []
    rest: list[Member] = []
    for each in members:
        is_special = bool(special) and not special.isdisjoint(each.addresses)
        (plain if _is_plain(each) and not is_special else rest).append(each)
    vips: dict[int, list[VirtualIP]] = {}
    for address in sorted({address for each in plain for address in each.addresses}):
        vips.setdefault(address.family, []).append(virtualips.host(address, interface))
    return Lot(
        tuple(members),
        tuple(sorted(each.key for each in plain if each.addresses)),
        {family: tuple(some) for family, some in vips.items()},
        tuple(rest),
    )


def _is_plain(member: Member) -> bool:
    return not (member.local or member.lines or member.problem) and is_name(member.key)
