"""
The Services of a group by Shared instance: each Shared instance carries one shard of them.

An instance fails with each interface that it uses. So the VIPs of a shard whose pools name another interface than the
group's have an instance of their own for each interface, as soon as there is such a VIP.

A group has thousands of Services, and one changes at a time. A shard in which no Service has changed stays the same
object, and what was calculated for it stays valid, and its Services are not read again. The VIPs and names of *plain*
Services, which do not depend on each other, are combined once for each shard.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
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
_INSTANCE: Final = re.compile(rf"({_PREFIX}/[0-9]+)(\.[^/]+)?(/v6)?")
_KEY: Final = attrgetter("key")
_ADDRESSES: Final = attrgetter("addresses")
_FAMILY: Final = attrgetter("family")
_INTERFACES: Final = attrgetter("interfaces")
_ROUTED_BY: Final = attrgetter("routed_by")


@dataclass(frozen=True)
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
        """By Shared instance, the keys of the Services whose VIPs live there; of several instances the first counts."""
        return {
            instance_on(shard, interface): keys
            for shard, summary in self._summaries
            for interface, keys in summary.names.items()
        }

    @property
    def instances_on_interfaces(self) -> tuple[str, ...]:
        """The Shared instances on other interfaces than the group's that these Services need."""
        found = ((each, shard) for shard, summary in self._summaries for each in summary.interfaces)
        return tuple(instance_on(shard, interface) for interface, shard in sorted(found))

    @property
    def pool_interfaces(self) -> frozenset[str]:
        """The interfaces that pools name for addresses of these Services, except the group's."""
        return frozenset[str]().union(*(summary.pool_interfaces for _, summary in self._summaries))

    @property
    def routed_by(self) -> frozenset[str]:
        """The pools that route replies of these Services."""
        return frozenset[str]().union(*(summary.routed_by for _, summary in self._summaries))

    @property
    def own(self) -> tuple[Member, ...]:
        """The Services that have instances of their own, also in Shared mode."""
        return tuple(chain.from_iterable(summary.own for _, summary in self._summaries))

    @property
    def preferring(self) -> tuple[Member, ...]:
        """The Services that prefer some nodes."""
        return tuple(chain.from_iterable(summary.preferring for _, summary in self._summaries))

    @property
    def troubled(self) -> tuple[Member, ...]:
        """The Services whose own lines are refused."""
        return tuple(chain.from_iterable(summary.troubled for _, summary in self._summaries))

    def map(self, function: Callable[[Member], Member | None], keys: Collection[str]) -> "Shards":
        """The same with the results of *function* in place of the members *keys*; None removes a member."""
        found = dict(self.members)
        for shard in {shard_of(key, self.count) for key in keys} & found.keys():
            changed = (function(each) if each.key in keys else each for each in found[shard])
            found[shard] = tuple(each for each in changed if each)
        return replace(self, members=MappingProxyType(found))

    @cached_property
    def _summaries(self) -> tuple[tuple[str, "_Summary"], ...]:
        return tuple((shard, self.memory.last(_summarize, shard, members)) for shard, members in self.members.items())


class _Summary(NamedTuple):
    """
    What plans read of one shard, besides the Services that are special.

    *names*: by interface, the Services of each of its instances. *interfaces*: those on which it needs an instance;
    *pool_interfaces*: those of all its addresses.
    """

    names: Mapping[str, tuple[str, ...]]
    interfaces: tuple[str, ...]
    pool_interfaces: frozenset[str]
    routed_by: frozenset[str]
    own: tuple[Member, ...]
    troubled: tuple[Member, ...]
    preferring: tuple[Member, ...]


def _summarize(members: tuple[Member, ...]) -> _Summary:
    special = [each for each in members if not each.is_plain]
    own = tuple(each for each in special if each.has_own_instances)
    shared = members if not own else [each for each in members if not each.has_own_instances]
    names, interfaces = _by_interface(shared)
    return _Summary(
        names,
        interfaces,
        frozenset(interface for each in members for _, interface in each.interfaces),
        frozenset[str]().union(*filter(None, map(_ROUTED_BY, members))),
        own,
        tuple(each for each in special if each.problem),
        tuple(each for each in members if each.preferred_selector),
    )


def _by_interface(members: Collection[Member]) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """The keys of *members* by the interface of their first VIPs, and all their interfaces except the group's."""
    if not any(map(_INTERFACES, members)):
        return {"": tuple(map(_KEY, members))}, ()
    found: dict[str, list[str]] = {}
    every: set[str] = set()
    for each in members:
        own = tuple(each.addresses_by_interface()) or ("",)
        found.setdefault(own[0], []).append(each.key)
        every.update(own)
    return {interface: tuple(found[interface]) for interface in sorted(found)}, tuple(sorted(every - {""}))


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


def instance_on(shard: str, interface: str) -> str:
    """The name of the Shared instance of *shard* on *interface*; "": on that of the group."""
    return f"{shard}.{interface}" if interface else shard


def shard_of_instance(name: str) -> str:
    """The shard of the Shared instance *name*, of any interface and family; "" if it is no Shared instance."""
    found = _INSTANCE.fullmatch(name)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class SharedVIPs:
    """The sorted names of the plain *services* of one Shared instance, and their sorted *vips* by family."""

    services: tuple[str, ...] = ()
    vips: Mapping[int, tuple[VirtualIP, ...]] = field(default_factory=lambda: MappingProxyType({}))


EMPTY: Final = SharedVIPs()


class Shard(NamedTuple):
    """
    The Services of one shard, combined.

    *on*: by interface, what its instance carries; "": that of the group. Each of the *special* Services has to be
    decided by itself.
    """

    on: Mapping[str, SharedVIPs]
    special: tuple[Member, ...]


def combine(shards: Shards, *, interface: str, reserved: Collection[Address]) -> Mapping[str, Shard]:
    """
    Each of *shards*, combined, in a group with this *interface*.

    A Service with a *reserved* address, or one of several Services, is special.
    """
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
    if not any(map(_INTERFACES, plain)):
        holders = (each.key for each in plain if each.addresses)
        return Shard({"": _shared_vips(holders, _flat(plain), interface)}, special)
    found: dict[str, tuple[list[str], list[Address]]] = {}
    for each in plain:
        for name, addresses in each.addresses_by_interface().items():
            if addresses:
                keys, every = found.setdefault(name, ([], []))
                keys.append(each.key)
                every += addresses
    return Shard({name: _shared_vips(*found[name], name or interface) for name in sorted(found)}, special)


def _shared_vips(keys: Iterable[str], addresses: Iterable[Address], interface: str) -> SharedVIPs:
    ordered = sorted(dict.fromkeys(addresses))  # in the order of names, which is often that of addresses
    vips = {family: tuple(map(host, some, repeat(interface))) for family, some in groupby(ordered, _FAMILY)}
    return SharedVIPs(tuple(sorted(keys)), vips)


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
