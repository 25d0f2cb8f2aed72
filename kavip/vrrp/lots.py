"""
The Services of each Shared instance, and what of them can be told without looking at any other Service.

Thousands of them change one at a time. Of those that have nothing special about them, the *plain* ones, VIPs and names
are put together once for each instance, and again where one of its Services is another.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.vrrp.members import Member
from kavip.vrrp.shares import Shares
from kavip.vrrp.virtualips import VirtualIP, host

_ADDRESSES: Final = attrgetter("addresses")
_FAMILY: Final = attrgetter("family")


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


def lots_of(shares: Shares, *, interface: str, reserved: Collection[Address]) -> Mapping[str, Lot]:
    """The lots of *shares*; an address that is *reserved*, or that several have, is special."""
    memory = shares.memory
    found = {slot: memory.last(_addresses, slot, some) for slot, some in shares.members.items()}
    tally = memory.state(Tally)
    tally.see({slot: each.every for slot, each in found.items()})
    special = frozenset[Address]().union(
        tally.several, filter(tally.shares.__contains__, reserved), *(each.twice for each in found.values())
    )
    return {
        slot: memory.last(_lot, slot, some, interface, special & found[slot].every if special else special)
        for slot, some in shares.members.items()
    }


class _Addresses(NamedTuple):
    """All addresses of a share, and those that several of its members have."""

    every: frozenset[Address]
    twice: frozenset[Address]


def _addresses(members: tuple[Member, ...]) -> _Addresses:
    found = list(_flat(members))
    every = frozenset(found)
    if len(every) == len(found):
        return _Addresses(every, frozenset())
    seen: set[Address] = set()
    twice: set[Address] = set()
    for member in members:
        mine = set(member.addresses)
        twice |= seen & mine
        seen |= mine
    return _Addresses(every, frozenset(twice))


class Tally:
    """In how many *shares* of one group each address is, and which are in *several*, as they were seen last."""

    def __init__(self) -> None:
        self.shares: dict[Address, int] = {}
        self.several: set[Address] = set()
        self._seen: Mapping[str, frozenset[Address]] = {}

    def see(self, found: Mapping[str, frozenset[Address]]) -> None:
        """The shares have these addresses now: count on from what they had."""
        none = frozenset[Address]()
        for slot in self._seen.keys() | found.keys():
            before, now = self._seen.get(slot, none), found.get(slot, none)
            if before is not now:
                self._count(before - now, -1)
                self._count(now - before, 1)
        self._seen = found

    def _count(self, addresses: Iterable[Address], step: int) -> None:
        for address in addresses:
            number = self.shares[address] = self.shares.get(address, 0) + step
            if not number:
                del self.shares[address]
            (self.several.add if number > 1 else self.several.discard)(address)


def _lot(members: tuple[Member, ...], interface: str, special: frozenset[Address]) -> Lot:
    rest = tuple(each for each in members if not each.is_plain or (special and not special.isdisjoint(each.addresses)))
    plain = members
    if rest:
        apart = set(map(id, rest))
        plain = tuple(each for each in members if id(each) not in apart)
    addresses = sorted(dict.fromkeys(_flat(plain)))  # from the order of names, which is often theirs
    vips = {family: tuple(map(host, some, repeat(interface))) for family, some in groupby(addresses, _FAMILY)}
    return Lot(members, tuple(sorted(each.key for each in plain if each.addresses)), vips, rest)


def _flat(members: Iterable[Member]) -> Iterable[Address]:
    return chain.from_iterable(map(_ADDRESSES, members))
