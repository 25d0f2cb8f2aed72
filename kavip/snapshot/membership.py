"""
Which Services belong to which group, sorted by key; an event updates one entry only.

The members of a group are collected on the first request, because hundreds of thousands of Services arrive while
caches fill. From then on changed keys are noted, and evaluated on the next request. Members are returned in shares: a
share in which nothing has changed is the same tuple object as before, so that readers can compare it by identity.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Set
from types import MappingProxyType
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service

D = TypeVar("D")

ShareOf = Callable[[str], str]
"""Maps a key to its share; the result never changes."""

_PLAIN: Final = ""  # declared by Services that name no group
_WHOLE: Final = ""  # the only share of members that are not divided
_PARTS: Final = 64
_FEW: Final = 16
"""Changes of one share that are entered one by one; with more, it is sorted again."""
_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType({})


class _Members:
    """The results of the members of one group for *spec*; *stale*: the keys whose result may have changed."""

    def __init__(self, spec: object, keys: Iterable[str], share_of: ShareOf) -> None:
        self.spec = spec
        self.stale = set(keys)
        self._share_of = share_of
        self._made: dict[str, tuple[list[str], list[Any]]] = {}  # by share: its keys, sorted, and their results
        self._shares = _NOTHING

    def read(self, belongs: Callable[[str], bool], make: Callable[[str], Any]) -> Mapping[str, tuple[Any, ...]]:
        """All results in shares, each sorted by key. A returned value never changes."""
        if not self.stale:
            return self._shares
        found = ((key, make(key)) for key in self.stale if belongs(key))
        members = {key: made for key, made in found if made is not None}
        touched: defaultdict[str, set[str]] = defaultdict(set)
        for key in self.stale:
            touched[self._share_of(key)].add(key)
        shares = dict(self._shares)
        for share, keys in touched.items():
            there, results = self._made.setdefault(share, ([], []))
            if len(keys) > _FEW:
                made = dict(zip(there, results, strict=True))
                there[:] = sorted((made.keys() - keys) | (keys & members.keys()))
                made.update((key, members[key]) for key in keys & members.keys())
                results[:] = map(made.__getitem__, there)
            else:
                for key in keys:
                    _enter(key, members, there, results)
            shares[share] = tuple(results)
        self._shares = MappingProxyType({share: some for share, some in sorted(shares.items()) if some})
        self.stale.clear()
        return self._shares


class Membership:
    """The Services by the group that they declare, and the members of each group that was requested."""

    def __init__(self, services: MutableMapping[str, Service], home: Callable[[Service], str | None]) -> None:
        """Start empty. *home* returns the group that a Service belongs to now."""
        self._services, self._home = services, home
        self._declared: dict[str, str] = {}
        self._candidates: defaultdict[str, set[str]] = defaultdict(set)  # the inverse
        self._recorded: dict[str, str] = {}  # of those that declare none: the group that kavip chose
        self._choosers: defaultdict[str, set[str]] = defaultdict(set)  # the inverse
        self._members: dict[str, _Members] = {}
        self._parts: dict[str, _Members] = {}
        self._derived: dict[str, _Members] = {}
        self._default = ""  # the group of those that declare none

    def observe(self, key: str, declared: str | None, recorded: str = "") -> None:
        """
        Service *key* has changed: it declares group *declared* ("": none), or is no candidate (None).

        *recorded*: the group that kavip chose for a Service that declares none.
        """
        before = _move(key, declared, self._declared, self._candidates)
        chosen = _move(key, recorded or None, self._recorded, self._choosers)
        if not self._is_read:
            return
        names = {self._default if name == _PLAIN else name for name in (before, declared) if name is not None}
        for each in names | {chosen or "", recorded}:
            for rows in (self._members, self._parts, self._derived):
                if (row := rows.get(each)) is not None:
                    row.stale.add(key)

    @property
    def _is_read(self) -> bool:
        """Whether members of any group were requested: not while caches fill."""
        return bool(self._members or self._parts or self._derived)

    def choosers(self, group: str) -> tuple[str, ...]:
        """The Services that declare no group and for which kavip chose *group*, sorted."""
        return tuple(sorted(self._choosers.get(group, ())))

    def choosers_in(self, namespace: str = "") -> tuple[str, ...]:
        """The Services of *namespace* ("": of all) that declare no group and for which kavip chose one, sorted."""
        prefix = f"{namespace}/" if namespace else ""
        return tuple(sorted(key for key in self._recorded if key.startswith(prefix)))

    def invalidate_namespace(self, namespace: str) -> None:
        """The Services of *namespace* may belong to other groups now."""
        if self._is_read:
            self.invalidate([key for key in self._declared if key.startswith(f"{namespace}/")])

    def invalidate(self, keys: Iterable[str]) -> None:
        """The Services *keys* may belong to other groups now."""
        for key in keys:
            self.observe(key, self._declared[key], self._recorded.get(key, ""))

    def renew(self, keys: Set[str]) -> None:
        """The results for the Services *keys* have changed. They become new objects, by which readers compare."""
        for key in sorted(keys & self._declared.keys()):
            self._services[key] = msgspec.structs.replace(self._services[key])
            self.invalidate([key])

    def set_default_group(self, default: str) -> None:
        """Services that declare no group belong to *default* from now on, if *home* says so."""
        self.forget(self._default)
        self.forget(default)
        self._default = default

    def forget(self, group: str) -> None:
        """Drop the results for *group*."""
        for rows in (self._members, self._parts, self._derived):
            rows.pop(group, None)

    def candidates(self, declared: str) -> Collection[str]:
        """The keys of the Services that declare this group, in no order."""
        return self._candidates.get(declared, ())

    def members(self, group: str) -> tuple[Service, ...]:
        """The Services of *group*, sorted by key."""
        return self._read(self._members, group, None, lambda service: service, _whole).get(_WHOLE, ())

    def parts(self, group: str) -> Mapping[str, tuple[Service, ...]]:
        """The Services of *group*, in small shares."""
        return self._read(self._parts, group, None, lambda service: service, part_of)

    def derived(
        self, group: str, spec: object, make: Callable[[Service], D | None], share_of: ShareOf
    ) -> Mapping[str, tuple[D, ...]]:
        """
        The results of *make* for each Service of *group*, in shares; without results None.

        A result is kept until the Service, its namespace or *spec* changes; *make* must depend on nothing else.
        """
        return self._read(self._derived, group, spec, make, share_of)

    def _read(
        self,
        rows: dict[str, _Members],
        group: str,
        spec: object,
        make: Callable[[Service], D | None],
        share_of: ShareOf,
    ) -> Mapping[str, tuple[D, ...]]:
        row = rows.get(group)
        if row is None or row.spec is not spec:
            plain = self.candidates(_PLAIN) if group == self._default else ()
            keys = (*self.candidates(group), *self._choosers.get(group, ()), *plain)
            if not keys:  # admission reviews may ask for any group
                rows.pop(group, None)
                return _NOTHING
            row = rows[group] = _Members(spec, keys, share_of)
        return row.read(lambda key: self._belongs(key, group), lambda key: make(self._services[key]))

    def _belongs(self, key: str, group: str) -> bool:
        declared = self._declared.get(key)
        return bool(group) and (declared == group or (declared == _PLAIN and self._home(self._services[key]) == group))


def _enter(key: str, members: Mapping[str, Any], there: list[str], results: list[Any]) -> None:
    """Let the result of *key* be the one of *members*, if it is there, among the *results* of the keys *there*."""
    at = bisect_left(there, key)
    end = at + (there[at : at + 1] == [key])
    there[at:end] = [key] if key in members else []
    results[at:end] = [members[key]] if key in members else []


def _move(key: str, place: str | None, places: dict[str, str], inverse: defaultdict[str, set[str]]) -> str | None:
    """Move *key* to *place*, None: nowhere; returns where it was."""
    before = places.pop(key, None)
    if before is not None and before != place:
        inverse[before].discard(key)
        if not inverse[before]:
            del inverse[before]
    if place is not None:
        places[key] = place
        inverse[place].add(key)
    return before


def _whole(_key: str) -> str:
    return _WHOLE


def part_of(key: str) -> str:
    """The share of the Service *key* in :meth:`Membership.parts`."""
    return f"{crc32(key.encode()) % _PARTS}"


def reuse_equal_parts(group: KeepalivedGroup, before: KeepalivedGroup) -> KeepalivedGroup:
    """*group* with the same objects as *before* if they are equal, so that results derived from them stay valid."""
    if group.status.router_ids == before.status.router_ids:
        status = msgspec.structs.replace(group.status, router_ids=before.status.router_ids)
        group = msgspec.structs.replace(group, status=status)
    return msgspec.structs.replace(group, spec=before.spec) if group.spec == before.spec else group
