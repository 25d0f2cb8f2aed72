"""
The Services of a group, shared out: by the Shared instance in which each would live.

Thousands of them change one at a time. A share in which none is another is the very same object as before, so that to
see that what was made of it still holds takes no look at any of them.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from kavip.api.group import KeepalivedGroup
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp.members import Member

SHARED_PREFIX: Final = "group"
_KEY: Final = attrgetter("key")


class _Notes(NamedTuple):
    """What plans ask of all Services: the names of those that live in the share, and who is not like the rest."""

    names: tuple[str, ...]
    local: tuple[Member, ...]
    troubled: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """The members of *group* by their instance, of *count* Shared ones; without any, all of them under ""."""

    group: str
    count: int
    members: Mapping[str, tuple[Member, ...]]
    memory: Memory = field(default=KEEPS_NOTHING, compare=False, repr=False)

    def __iter__(self) -> Iterator[Member]:
        """All members."""
        return chain.from_iterable(self.members.values())

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self.members.values()))

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """The keys of those that live in the instance of their share, by share."""
        return {share: notes.names for share, notes in self._notes()}

    @property
    def local(self) -> tuple[Member, ...]:
        """Those that follow their endpoints."""
        return tuple(chain.from_iterable(notes.local for _, notes in self._notes()))

    @property
    def troubled(self) -> tuple[Member, ...]:
        """Those with lines that are not served."""
        return tuple(chain.from_iterable(notes.troubled for _, notes in self._notes()))

    def map(self, made: Callable[[Member], Member | None], keys: Collection[str]) -> "Shares":
        """The same with what is *made* of those with *keys*; without those of which nothing is."""
        found = dict(self.members)
        for share in {share_of(key, self.count) for key in keys} & found.keys():
            some = (made(each) if each.key in keys else each for each in found[share])
            found[share] = tuple(each for each in some if each)
        return replace(self, members=MappingProxyType(found))

    def _notes(self) -> Iterator[tuple[str, _Notes]]:
        return ((share, self.memory.last(_noted, share, some)) for share, some in self.members.items())


def shares_of(group: KeepalivedGroup, members: Iterable[Member], memory: Memory = KEEPS_NOTHING) -> Shares:
    """*members* shared out as *group* wants it: as they are where they are so already."""
    count = count_of(group)
    if isinstance(members, Shares) and (members.group, members.count) == (group.key, count):
        return members
    found: dict[str, list[Member]] = {}
    for each in members:
        found.setdefault(share_of(each.key, count), []).append(each)
    return Shares(group.key, count, MappingProxyType({share: tuple(found[share]) for share in sorted(found)}), memory)


def count_of(group: KeepalivedGroup) -> int:
    """How many Shared instances *group* has."""
    return group.spec.instances.count if group.is_shared else 0


def share_of(key: str, count: int) -> str:
    """The share of the Service *key* among *count* Shared instances."""
    return slot_of(key, count) if count else ""


@lru_cache(16384)
def slot_of(key: str, count: int) -> str:
    """The Shared instance of the Service *key*: always the same while *count* is."""
    return slot_names(count)[int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % count]


@lru_cache
def slot_names(count: int) -> tuple[str, ...]:
    """The names of *count* Shared instances."""
    return tuple(f"{SHARED_PREFIX}/{number}" for number in range(count))


def _noted(members: tuple[Member, ...]) -> _Notes:
    special = [each for each in members if not each.is_plain]
    local = tuple(each for each in special if each.local)
    names = tuple(map(_KEY, members if not local else (each for each in members if not each.local)))
    return _Notes(names, local, tuple(each for each in special if each.problem))
