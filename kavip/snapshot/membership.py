"""
Which Services belong to which group: rows, sorted by key, of which an event makes only one place anew.

A row is filled when somebody asks for it, for Services come by the hundred thousand when caches fill; from then on what
is changed is noted, and looked at when somebody asks again. Rows come in shares: one in which nothing has changed is
the very same tuple as before, which readers see at a glance.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar
from zlib import crc32

from kavip.api.service import Service

D = TypeVar("D")

ShareOf = Callable[[str], str]
"""The share of a key: always the same."""

_PLAIN: Final = ""  # what Services declare that name no group
_WHOLE: Final = ""  # the one share of a row that is not divided
_PARTS: Final = 64
_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType({})


class _Row:
    """What was made of each member of one group for *spec*; *stale*: the keys of those of which that may be another."""

    def __init__(self, spec: object, keys: Iterable[str], share_of: ShareOf) -> None:
        self.spec = spec
        self.stale = set(keys)
        self._share_of = share_of
        self._made: dict[str, dict[str, Any]] = {}  # by share, in the order of its keys
        self._shares = _NOTHING

    def read(self, belongs: Callable[[str], bool], make: Callable[[str], Any]) -> Mapping[str, tuple[Any, ...]]:
        """All of it, each share sorted by key; what was handed out never changes."""
        if not self.stale:
            return self._shares
        found = ((key, make(key)) for key in self.stale if belongs(key))
        members = {key: made for key, made in found if made is not None}
        touched: defaultdict[str, set[str]] = defaultdict(set)
        for key in self.stale:
            touched[self._share_of(key)].add(key)
        shares = dict(self._shares)
        for share, keys in touched.items():
            made = self._made.setdefault(share, {})
            in_order = all(key in made for key in keys & members.keys())
            for key in keys - members.keys():
                made.pop(key, None)
            made.update((key, members[key]) for key in keys & members.keys())
            if not in_order:
                made = self._made[share] = {key: made[key] for key in sorted(made)}
            shares[share] = tuple(made.values())
        self._shares = MappingProxyType({share: some for share, some in sorted(shares.items()) if some})
        self.stale.clear()
        return self._shares


class Rows:
    """The *services* by the group that they declare, and the rows of each group that was asked for."""

    def __init__(self, services: Mapping[str, Service], home: Callable[[Service], str | None]) -> None:
        """Nothing is declared; *home* says which group a Service belongs to, as things are."""
        self._services, self._home = services, home
        self._declared: dict[str, str] = {}
        self._candidates: defaultdict[str, set[str]] = defaultdict(set)  # the inverse
        self._members: dict[str, _Row] = {}
        self._parts: dict[str, _Row] = {}
        self._derived: dict[str, _Row] = {}
        self._default = ""  # the group of those that declare none

    def see(self, key: str, declared: str | None) -> None:
        """The Service *key* is another, or gone: it is to have the group *declared* ("": the default one), or none."""
        before = self._declared.pop(key, None)
        if before is not None and before != declared:
            self._candidates[before].discard(key)
            if not self._candidates[before]:
                del self._candidates[before]
        if declared is not None:
            self._declared[key] = declared
            self._candidates[declared].add(key)
        for each in {self._default if name == _PLAIN else name for name in (before, declared) if name is not None}:
            for rows in (self._members, self._parts, self._derived):
                if (row := rows.get(each)) is not None:
                    row.stale.add(key)

    def doubt(self, namespace: str) -> None:
        """Where the Services of *namespace* belong may be another."""
        if self._members or self._parts or self._derived:  # not while caches fill
            for key in [key for key in self._declared if key.startswith(f"{namespace}/")]:
                self.see(key, self._declared[key])

    def adopt(self, default: str) -> None:
        """Those that declare none belong to the group *default* from now on, if to any: *home* says who does."""
        self.forget(self._default)
        self.forget(default)
        self._default = default

    def forget(self, group: str) -> None:
        """Keep nothing for *group*."""
        for rows in (self._members, self._parts, self._derived):
            rows.pop(group, None)

    def candidates(self, declared: str) -> Collection[str]:
        """The keys of those that declare this group, in no order."""
        return self._candidates.get(declared, ())

    def members(self, group: str) -> tuple[Service, ...]:
        """The Services of *group*, sorted by key."""
        return self._read(self._members, group, None, lambda service: service, _whole).get(_WHOLE, ())

    def parts(self, group: str) -> Mapping[str, tuple[Service, ...]]:
        """The Services of *group*, in so many shares that each is small."""
        return self._read(self._parts, group, None, lambda service: service, _part)

    def derived(
        self, group: str, spec: object, make: Callable[[Service], D | None], share_of: ShareOf
    ) -> Mapping[str, tuple[D, ...]]:
        """
        What *make* makes of each for *spec*, shared out: again only of a Service or for a spec that is new.

        Without those of which it makes nothing; beside these two it may depend on what their namespace is.
        """
        return self._read(self._derived, group, spec, make, share_of)

    def _read(
        self, rows: dict[str, _Row], group: str, spec: object, make: Callable[[Service], D | None], share_of: ShareOf
    ) -> Mapping[str, tuple[D, ...]]:
        row = rows.get(group)
        if row is None or row.spec is not spec:
            plain = self.candidates(_PLAIN) if group == self._default else ()
            keys = (*self.candidates(group), *plain)
            if not keys:  # reviews may ask for any group
                rows.pop(group, None)
                return _NOTHING
            row = rows[group] = _Row(spec, keys, share_of)
        return row.read(lambda key: self._belongs(key, group), lambda key: make(self._services[key]))

    def _belongs(self, key: str, group: str) -> bool:
        declared = self._declared.get(key)
        return bool(group) and (declared == group or (declared == _PLAIN and self._home(self._services[key]) == group))


def _whole(_key: str) -> str:
    return _WHOLE


def _part(key: str) -> str:
    return f"{crc32(key.encode()) % _PARTS}"
