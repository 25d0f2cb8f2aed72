"""
Which Services belong to which group: rows, sorted by key, of which an event makes only one place anew.

A row is filled when somebody asks for it, for Services come by the hundred thousand when caches fill; from then on what
is changed is noted, and looked at when somebody asks again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from kavip.api.service import Service

D = TypeVar("D")

_PLAIN: Final = ""  # what Services declare that name no group


class _Row:
    """What was made of each member of one group for *spec*; *stale*: the keys of those of which that may be another."""

    def __init__(self, spec: object, keys: Iterable[str]) -> None:
        self.spec = spec
        self.stale = set(keys)
        self._made: dict[str, Any] = {}  # in the order of its keys

    def read(self, belongs: Callable[[str], bool], make: Callable[[str], Any]) -> tuple[Any, ...]:
        """All of it, sorted by key."""
        members = {key for key in self.stale if belongs(key)}
        for key in self.stale - members:
            self._made.pop(key, None)
        in_order = members <= self._made.keys()
        self._made |= {key: make(key) for key in members}
        if not in_order:
            self._made = {key: self._made[key] for key in sorted(self._made)}
        self.stale.clear()
        return tuple(self._made.values())


class Rows:
    """The *services* by the group that they declare, and the row of each group that was asked for."""

    def __init__(self, services: Mapping[str, Service], home: Callable[[Service], str | None]) -> None:
        """Nothing is declared; *home* says which group a Service belongs to, as things are."""
        self._services, self._home = services, home
        self._declared: dict[str, str] = {}
        self._candidates: defaultdict[str, set[str]] = defaultdict(set)  # the inverse
        self._rows: dict[str, _Row] = {}
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
            for row in (self._rows.get(each), self._derived.get(each)):
                if row is not None:
                    row.stale.add(key)

    def adopt(self, default: str) -> None:
        """Those that declare none belong to the group *default* from now on, if to any: *home* says who does."""
        self.forget(self._default)
        self.forget(default)
        self._default = default

    def forget(self, group: str) -> None:
        """Keep nothing for *group*."""
        self._rows.pop(group, None)
        self._derived.pop(group, None)

    def candidates(self, declared: str) -> Collection[str]:
        """The keys of those that declare this group, in no order."""
        return self._candidates.get(declared, ())

    def members(self, group: str) -> tuple[Service, ...]:
        """The Services of *group*, sorted by key."""
        return self._read(self._rows, group, None, lambda service: service)

    def derived(self, group: str, spec: object, make: Callable[[Service], D]) -> tuple[D, ...]:
        """What *make* makes of each of them for *spec*: again only of a Service or for a spec that is new."""
        return self._read(self._derived, group, spec, make)

    def _read(self, rows: dict[str, _Row], group: str, spec: object, make: Callable[[Service], D]) -> tuple[D, ...]:
        row = rows.get(group)
        if row is None or row.spec is not spec:
            plain = self.candidates(_PLAIN) if group == self._default else ()
            keys = (*self.candidates(group), *plain)
            if not keys:  # reviews may ask for any group
                rows.pop(group, None)
                return ()
            row = rows[group] = _Row(spec, keys)
        return row.read(lambda key: self._belongs(key, group), lambda key: make(self._services[key]))

    def _belongs(self, key: str, group: str) -> bool:
        declared = self._declared.get(key)
        return bool(group) and (declared == group or (declared == _PLAIN and self._home(self._services[key]) == group))
