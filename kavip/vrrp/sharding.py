"""
The Services of a group by Shared instance: each Shared instance carries one shard of them.

A group has thousands of Services, and one changes at a time. A shard in which no Service has changed stays the same
object, and what was calculated for it stays valid, and its Services are not read again. The VIPs and names of *plain*
Services, which do not depend on each other, are combined once for each shard.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp.members import Member
from kavip.vrrp.virtualips import VirtualIP, host

_PREFIX: Final = "group"
_KEY: Final = attrgetter("key")
_ADDRESSES: Final = attrgetter("addresses")
_FAMILY: Final = attrgetter("family")


@dataclass(frozen=True, slots=True)
class Shards:
    """
    The *members* of *group* by Shared instance, of which there are *count*.

    A group in the mode PerService has one shard with the name "". *memory* keeps what was calculated for each shard.
    """

    group: str
    count: int
    members: Mapping[str, tuple[Member, ...]]
    memory: Memory = field(default=KEEPS_NOTHING, compare=False, repr=False)

    def __iter__(self) -> Iterator[Member]:
        """All members."""
        return chain.from_iterable(self.members.values())

    def __len__(self) -> int:
        """The number of members."""
        return sum(map(len, self.members.values()))

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """By shard, the keys of the Services that live in its Shared instance."""
        return {shard: summary.names for shard, summary in self._summaries()}

    @property
    def own(self) -> tuple[Member, ...]:
        """The Services that have instances of their own, also in Shared mode."""
        return tuple(chain.from_iterable(summary.own for _, summary in self._summaries()))

    @property
    def preferring(self) -> tuple[Member, ...]:
        """The Services that prefer some nodes."""
        return tuple(chain.from_iterable(summary.preferring for _, summary in self._summaries()))

    @property
    def troubled(self) -> tuple[Member, ...]:
        """The Services whose own lines are refused."""
        return tuple(chain.from_iterable(summary.troubled for _, summary in self._summaries()))

    def map(self, function: Callable[[Member], Member | None], keys: Collection[str]) -> "Shards":
        """The same with the results of *function* in place of the members *keys*; None removes a member."""
        found = dict(self.members)
        for shard in {shard_of(key, self.count) for key in keys} & found.keys():
            changed = (function(each) if each.key in keys else each for each in found[shard])
            found[shard] = tuple(each for each in changed if each)
        return replace(self, members=MappingProxyType(found))

    def _summaries(self) -> Iterator[tuple[str, "_Summary"]]:
        return ((shard, self.memory.last(_summarize, shard, members)) for shard, members in self.members.items())


class _Summary(NamedTuple):
    """What plans read of one shard: the names of the Services in its instance, and the Services that are special."""

    names: tuple[str, ...]
    own: tuple[Member, ...]
    troubled: tuple[Member, ...]
    preferring: tuple[Member, ...]


def _summarize(members: tuple[Member, ...]) -> _Summary:
    special = [each for each in members if not each.is_plain]
    own = tuple(each for each in special if each.has_own_instances)
    names = tuple(map(_KEY, members if not own else (each for each in members if not each.has_own_instances)))
    preferring = tuple(each for each in members if each.preferred_selector)
    return _Summary(names, own, tuple(each for each in special if each.problem), preferring)


def shard_members(group: KeepalivedGroup, members: Iterable[Member], memory: Memory = KEEPS_NOTHING) -> Shards:
    """*members* by the Shared instances of *group*; the same object if they are sharded so already."""
    count = shard_count(group)
    if isinstance(members, Shards) and (members.group, members.count) == (group.key, count):
        return members
    found: dict[str, list[Member]] = {}
    for each in members:
        found.setdefault(shard_of(each.key, count), []).append(each)
    return Shards(group.key, count, MappingProxyType({shard: tuple(found[shard]) for shard in sorted(found)}), memory)


def shard_count(group: KeepalivedGroup) -> int:
    """The number of Shared instances of *group*; 0 in the mode PerService."""
    return group.spec.instances.count if group.is_shared else 0


@lru_cache(16384)
def shard_of(key: str, count: int) -> str:
    """The Shared instance of the Service *key* among *count*: a hash, so it changes only with *count*; "" for 0."""
    if not count:
        return ""
    return shared_instances(count)[int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % count]


@lru_cache
def shared_instances(count: int) -> tuple[str, ...]:
    """The names of *count* Shared instances."""
    return tuple(f"{_PREFIX}/{number}" for number in range(count))


@dataclass(frozen=True, slots=True)
class Shard:
    """
    The Services of one Shared instance, combined.

    *services* are the sorted names of the plain ones, *vips* their sorted VIPs by family. Each of the *special* ones
    has to be decided by itself.
    """

    members: tuple[Member, ...] = ()
    services: tuple[str, ...] = ()
    vips: Mapping[int, tuple[VirtualIP, ...]] = field(default_factory=lambda: MappingProxyType({}))
    special: tuple[Member, ...] = ()


EMPTY: Final = Shard()


def combine(shards: Shards, *, interface: str, reserved: Collection[Address]) -> Mapping[str, Shard]:
    """Each of *shards*, combined; a Service with a *reserved* address, or one of several Services, is special."""
    memory = shards.memory
    found = {shard: memory.last(_addresses, shard, members) for shard, members in shards.members.items()}
    counts = memory.state(AddressCounts)
    counts.update({shard: each.all for shard, each in found.items()})
    special = frozenset[Address]().union(
        counts.repeated, filter(counts.shards.__contains__, reserved), *(each.repeated for each in found.values())
    )
    return {
        shard: memory.last(_combine, shard, members, interface, special & found[shard].all if special else special)
        for shard, members in shards.members.items()
    }


def _combine(members: tuple[Member, ...], interface: str, shared: frozenset[Address]) -> Shard:
    """*members* as one shard; those with a *shared* address are special."""
    special = tuple(each for each in members if not each.is_plain or (shared and not shared.isdisjoint(each.addresses)))
    plain = members
    if special:
        apart = set(map(id, special))
        plain = tuple(each for each in members if id(each) not in apart)
    addresses = sorted(dict.fromkeys(_flat(plain)))  # in the order of names, which is often that of addresses
    vips = {family: tuple(map(host, some, repeat(interface))) for family, some in groupby(addresses, _FAMILY)}
    return Shard(members, tuple(sorted(each.key for each in plain if each.addresses)), vips, special)


class _ShardAddresses(NamedTuple):
    """The addresses of a shard, and those of them that several of its Services have."""

    all: frozenset[Address]
    repeated: frozenset[Address]


def _addresses(members: tuple[Member, ...]) -> _ShardAddresses:
    found = list(_flat(members))
    every = frozenset(found)
    if len(every) == len(found):
        return _ShardAddresses(every, frozenset())
    seen: set[Address] = set()
    repeated: set[Address] = set()
    for member in members:
        own = set(member.addresses)
        repeated |= seen & own
        seen |= own
    return _ShardAddresses(every, frozenset(repeated))


class AddressCounts:
    """In how many *shards* of a group each address is, and the addresses that are *repeated* in several."""

    def __init__(self) -> None:
        self.shards: dict[Address, int] = {}
        self.repeated: set[Address] = set()
        self._last: Mapping[str, frozenset[Address]] = {}

    def update(self, found: Mapping[str, frozenset[Address]]) -> None:
        """Count the addresses *found* by shard: from the last counts, so that only shards that changed are read."""
        none = frozenset[Address]()
        for shard in self._last.keys() | found.keys():
            before, now = self._last.get(shard, none), found.get(shard, none)
            if before is not now:
                self._count(before - now, -1)
                self._count(now - before, 1)
        self._last = found

    def _count(self, addresses: Iterable[Address], step: int) -> None:
        for address in addresses:
            number = self.shards[address] = self.shards.get(address, 0) + step
            if not number:
                del self.shards[address]
            (self.repeated.add if number > 1 else self.repeated.discard)(address)


def _flat(members: Iterable[Member]) -> Iterable[Address]:
    return chain.from_iterable(map(_ADDRESSES, members))
