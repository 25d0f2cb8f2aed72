"""
Whom pools serve without being named: pools with equal selectors have one audience, and a decision looks at few.

Each audience is filed under the rarest thing that it demands: a group, a label of the namespace, a label of the
Service. Who lacks that is surely not served, so a request is compared only with what its own group and labels lead to,
and with the audiences that demand nothing of the kind.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kavip.ipam.pool import Pool
from kavip.ipam.request import Request

Mark = tuple[str, str, str]
"""Something that a request has and a pool may demand: what it is, and, of a label, key and value."""

_GROUP: Final = "group"
_NAMESPACE: Final = "namespace"
_SERVICE: Final = "service"
_ANYBODY: Final = ("", "", "")
_FEW: Final = 3  # so many are compared sooner than looked up


class Audience(NamedTuple):
    """Pools with equal selectors, in the order in which they are tried: whoever is served by one is served by all."""

    pools: tuple[Pool, ...]

    def has(self, request: Request, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether the pools serve *request*."""
        return not self.pools[0].mismatch(request, namespace_labels)


class Audiences:
    """All audiences of some pools."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        """File the audiences of *pools*, which stand in the order in which they are tried."""
        alike: defaultdict[object, list[Pool]] = defaultdict(list)
        for pool in pools:
            alike[pool.groups, _text(pool.namespaces), _text(pool.services)].append(pool)
        self.every = tuple(Audience(tuple(each)) for each in alike.values())
        demands = [list(_demands(audience.pools[0])) for audience in self.every]
        common = Counter(mark for each in demands for marks in each for mark in marks)
        self._filed: defaultdict[Mark, list[Audience]] = defaultdict(list)
        for audience, found in zip(self.every, demands, strict=True):
            rarest = min(found, key=lambda marks: sum(common[mark] for mark in marks), default=(_ANYBODY,))
            for mark in rarest:
                self._filed[mark].append(audience)

    def of(self, request: Request, namespace_labels: Mapping[str, str] | None) -> list[Audience]:
        """The audiences that *request* belongs to."""
        found: Sequence[Audience] = self.every
        if len(found) > _FEW:
            marks = _marks(request, namespace_labels or {})
            found = [audience for mark in marks for audience in self._filed.get(mark, ())]
        return [audience for audience in found if audience.has(request, namespace_labels)]


def _marks(request: Request, namespace_labels: Mapping[str, str]) -> Iterator[Mark]:
    """What *request* has."""
    yield _ANYBODY
    yield _GROUP, request.group, ""
    for key, value in namespace_labels.items():
        yield _NAMESPACE, key, value
    for key, value in request.labels.items():
        yield _SERVICE, key, value


def _demands(pool: Pool) -> Iterator[tuple[Mark, ...]]:
    """What whoever draws from *pool* must have: one of each."""
    if pool.groups:
        yield tuple((_GROUP, group, "") for group in pool.groups)
    for what, selector in ((_NAMESPACE, pool.namespaces), (_SERVICE, pool.services)):
        if selector is not None:
            for key, value in (selector.match_labels or {}).items():
                yield ((what, key, value),)
            for term in selector.match_expressions or ():
                if term.operator == "In":
                    yield tuple((what, term.key, value) for value in dict.fromkeys(term.values or ()))


def _text(selector: object) -> bytes:
    """Equal for equal selectors; they cannot be hashed."""
    return msgspec.json.encode(selector, order="deterministic")
