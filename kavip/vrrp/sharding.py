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
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from kavip.api.address import BITS, Address
from kavip.api.group import KeepalivedGroup
from kavip.memo import KEEPS_NOTHING, Change, Memory, change_of, index_of
from kavip.vrrp.members import Member
from kavip.vrrp.virtualips import VirtualIP, host

Ordered = TypeVar("Ordered", str, VirtualIP)

_PREFIX: Final = "group"
_INSTANCE: Final = re.compile(rf"({_PREFIX}/[0-9]+)(\.[^/]+)?(/v6)?")
_KEY: Final = attrgetter("key")
_FAMILY: Final = attrgetter("address.family")

_Place = tuple[list[str], list[VirtualIP]]
"""The keys and the VIPs of Services on one interface."""
_NO_PLACE: Final[_Place] = ([], [])


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
    def instances_on_interfaces(self) -> tuple[str, ...]:
        """The Shared instances on other interfaces than the group's that these Services need."""
        found = ((each, shard) for shard, summary in self._summaries() for each in summary.interfaces)
        return tuple(instance_on(shard, interface) for interface, shard in sorted(found))

    @property
    def pool_interfaces(self) -> frozenset[str]:
        """The interfaces that pools name for addresses of these Services, except the group's."""
        return frozenset[str]().union(*(summary.pool_interfaces for _, summary in self._summaries()))

    @property
    def routed_by(self) -> frozenset[str]:
        """The pools that route replies of these Services."""
        return frozenset[str]().union(*(summary.routed_by for _, summary in self._summaries()))

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

    def get(self, key: str) -> Member | None:
        """The member *key*, if there is one."""
        shard = shard_of(key, self.count)
        return self.memory.last(_by_key, shard, self.members.get(shard, ())).get(key)

    def owners(self) -> Mapping[Address, Member]:
        """The member that owns each address: of several that have it the oldest."""
        parts = [self.memory.last(_owners, shard, some) for shard, some in self.members.items()]
        found = dict[Address, Member]()
        for each in parts:
            found.update(each)
        if len(found) < sum(map(len, parts)):  # some share an address
            return _owners(chain.from_iterable(each.values() for each in parts))
        return found

    def map(self, function: Callable[[Member], Member | None], keys: Collection[str]) -> "Shards":
        """The same with the results of *function* in place of the members *keys*; None removes a member."""
        found = dict(self.members)
        for shard in {shard_of(key, self.count) for key in keys} & found.keys():
            changed = (function(each) if each.key in keys else each for each in found[shard])
            found[shard] = tuple(each for each in changed if each)
        return replace(self, members=MappingProxyType(found))

    def _summaries(self) -> Sequence[tuple[str, "_Summary"]]:
        return self.memory.last(_summaries, "", self.members, self.memory)


class _Summary(NamedTuple):
    """
    What plans read of one shard, besides the Services that are special.

    *interfaces*: those on which it needs an instance; *pool_interfaces*: those of all its addresses.
    """

    interfaces: tuple[str, ...]
    pool_interfaces: frozenset[str]
    routed_by: frozenset[str]
    own: tuple[Member, ...]
    troubled: tuple[Member, ...]
    preferring: tuple[Member, ...]


def _by_key(members: Iterable[Member]) -> Mapping[str, Member]:
    return {each.key: each for each in members}


def _owners(members: Iterable[Member]) -> Mapping[Address, Member]:
    found = dict[Address, Member]()
    for each in members:
        for address in each.addresses:
            if address not in found or each.age_key < found[address].age_key:
                found[address] = each
    return found


def _summaries(members: Mapping[str, tuple[Member, ...]], memory: Memory) -> Sequence[tuple[str, _Summary]]:
    odd = ((shard, memory.follow(_odd, _odd_after, shard, some)) for shard, some in members.items())
    return [(shard, memory.last(_summarize, shard, some)) for shard, some in odd]


def _odd(members: Iterable[Member]) -> tuple[Member, ...]:
    """Those of *members* that matter to a summary, sorted by key."""
    found = (
        each for each in members if not each.is_plain or each.interfaces or each.routed_by or each.preferred_selector
    )
    return tuple(sorted(found, key=_KEY))


def _odd_after(before: tuple[Member, ...], change: Change[Member]) -> tuple[Member, ...]:
    return _exchange(before, _odd(change.left), _odd(change.come))


def _exchange(members: tuple[Member, ...], left: Collection[Member], come: Collection[Member]) -> tuple[Member, ...]:
    """*members*, which are sorted by key, without those that have *left*, and with those that have *come*."""
    if not (left or come):
        return members
    gone = set(map(id, left))
    return tuple(sorted([*(each for each in members if id(each) not in gone), *come], key=_KEY))


def _summarize(members: tuple[Member, ...]) -> _Summary:
    own = tuple(each for each in members if each.has_own_instances)
    placed = [each for each in members if each.interfaces]
    shared = {name for each in placed if not each.has_own_instances for name in each.addresses_by_interface()}
    return _Summary(
        tuple(sorted(shared - {""})),
        frozenset(interface for each in placed for _, interface in each.interfaces),
        frozenset[str]().union(*(each.routed_by for each in members)),
        own,
        tuple(each for each in members if each.problem),
        tuple(each for each in members if each.preferred_selector),
    )


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


def shard_of(key: str, count: int) -> str:
    """The Shared instance of the Service *key* among *count*: a hash, so it changes only with *count*; "" for 0."""
    return _shard_of(key, count) if count else ""


@lru_cache(2048)
def _shard_of(key: str, count: int) -> str:
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


def interface_of_instance(name: str) -> str:
    """The interface of the Shared instance *name*, if it is not the group's; else ""."""
    found = _INSTANCE.fullmatch(name)
    return (found[2] or "").removeprefix(".") if found else ""


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
    counts = memory.state(AddressCounts)
    counts.update(shards.members)
    special: dict[str, set[Address]] = {}
    for address in counts.repeated.union(filter(counts.shards.__contains__, reserved)):
        for shard in counts.shards[address]:
            special.setdefault(shard, set()).add(address)
    return {
        shard: memory.follow(_combine, _combine_after, shard, members, interface, frozenset(special.get(shard, ())))
        for shard, members in shards.members.items()
    }


def _combine(members: Iterable[Member], interface: str, shared: frozenset[Address]) -> Shard:
    """*members* as one shard; those with a *shared* address are special."""
    special, plain = _parted(members, shared)
    found = {name: _shared_vips(keys, vips) for name, (keys, vips) in _places(plain, interface).items()}
    return Shard(found, tuple(sorted(special, key=_KEY)))


def _combine_after(before: Shard, change: Change[Member], interface: str, shared: frozenset[Address]) -> Shard:
    """What :func:`_combine` returns after *change*."""
    (special_left, left), (special_come, come) = (_parted(some, shared) for some in change)
    lost, got, found = _places(left, interface), _places(come, interface), dict(before.on)
    for name in lost.keys() | got.keys():
        place = _edited(found.get(name, EMPTY), lost.get(name, _NO_PLACE), got.get(name, _NO_PLACE))
        found[name] = place
        if not place.services:
            del found[name]
    return Shard({name: found[name] for name in sorted(found)}, _exchange(before.special, special_left, special_come))


def _parted(members: Iterable[Member], shared: frozenset[Address]) -> tuple[list[Member], list[Member]]:
    """The special *members*, and the plain ones."""
    special: list[Member] = []
    plain: list[Member] = []
    for each in members:
        is_plain = each.is_plain and (not shared or shared.isdisjoint(each.addresses))
        (plain if is_plain else special).append(each)
    return special, plain


def _places(members: Iterable[Member], interface: str) -> dict[str, _Place]:
    """The keys and the VIPs of *members* by interface; "" is the group's."""
    found: dict[str, _Place] = {}
    for each in members:
        for name, addresses in each.addresses_by_interface().items():
            if addresses:
                keys, vips = found.setdefault(name, ([], []))
                keys.append(each.key)
                vips += map(host, _distinct(addresses), repeat(name or interface))
    return {name: found[name] for name in sorted(found)}


def _shared_vips(keys: Iterable[str], vips: Iterable[VirtualIP]) -> SharedVIPs:
    ordered = sorted(vips)  # in the order of names, which is often that of addresses
    return SharedVIPs(tuple(sorted(keys)), {family: tuple(some) for family, some in groupby(ordered, _FAMILY)})


def _edited(before: SharedVIPs, lost: _Place, got: _Place) -> SharedVIPs:
    """*before* without what is *lost*, and with what is *got*."""
    vips = {
        family: some
        for family in sorted(BITS)
        if (some := _merged(before.vips.get(family, ()), *(_of_family(each, family) for each in (lost[1], got[1]))))
    }
    return SharedVIPs(_merged(before.services, lost[0], got[0]), vips)


def _of_family(vips: Iterable[VirtualIP], family: int) -> list[VirtualIP]:
    return [each for each in vips if _FAMILY(each) == family]


def _merged(ordered: tuple[Ordered, ...], lost: Iterable[Ordered], got: Iterable[Ordered]) -> tuple[Ordered, ...]:
    """The values *ordered* without those that are *lost*, and with those that are *got*."""
    found = list(ordered)
    for each in lost:
        del found[index_of(found, each)]
    for each in got:
        insort(found, each)
    return tuple(found)


class AddressCounts:
    """The *shards* of the Services that have each address, and the addresses that are *repeated* in several."""

    def __init__(self) -> None:
        self.shards: dict[Address, tuple[str, ...]] = {}
        self.repeated: set[Address] = set()
        self._last: Mapping[str, tuple[Member, ...]] = {}

    def update(self, members: Mapping[str, tuple[Member, ...]]) -> None:
        """Count the addresses of *members* by shard: only those that have changed since the last time are read."""
        for shard in self._last.keys() | members.keys():
            before, now = self._last.get(shard, ()), members.get(shard, ())
            if before is not now:
                left, come = change_of(before, now)
                for address in _each_once(left):
                    places = list(self.shards[address])
                    places.remove(shard)
                    self._note(address, tuple(places))
                alone = (shard,)  # one object for almost all addresses of the shard
                for address in _each_once(come):
                    if (known := self.shards.get(address)) is None:
                        self.shards[address] = alone
                    else:
                        self._note(address, (*known, shard))
        self._last = members

    def _note(self, address: Address, places: tuple[str, ...]) -> None:
        self.shards[address] = places
        if not places:
            del self.shards[address]
        (self.repeated.add if len(places) > 1 else self.repeated.discard)(address)


def _each_once(members: Iterable[Member]) -> Iterator[Address]:
    """The addresses of *members*: of one member each once."""
    return chain.from_iterable(_distinct(each.addresses) for each in members)


def _distinct(addresses: tuple[Address, ...]) -> Iterable[Address]:
    """*addresses*, each once."""
    return addresses if len(addresses) == 1 else dict.fromkeys(addresses)
