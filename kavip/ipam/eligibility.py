"""
Which pools serve a request that names none, without evaluating every pool.

Pools with equal selectors form one audience. An index files each audience under the rarest property that it requires: a
group, a label of the namespace, or a label of the Service. A request without this property is certainly not served. So
a request is compared only with the audiences filed under its own properties, and with those that require none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kavip.ipam.pool import Pool
from kavip.ipam.request import Request

Property = tuple[str, str, str]
"""A property of a request that a pool may require: group, namespace label or Service label; key and value."""

_GROUP: Final = "group"
_NAMESPACE: Final = "namespace"
_SERVICE: Final = "service"
_NONE: Final = ("", "", "")  # for audiences that require nothing
_FEW: Final = 3  # comparing so many is faster than a lookup


class Audience(NamedTuple):
    """Pools with equal selectors, in the order in which they are tried; all of them serve the same requests."""

    pools: tuple[Pool, ...]

    def has(self, request: Request, namespace_labels: Mapping[str, str] | None) -> bool:
        """Whether the pools serve *request*."""
        return self.pools[0].serves(request.group, namespace_labels, request.labels)


def in_order(audiences: Sequence[Audience]) -> tuple[Pool, ...]:
    """The pools of *audiences*, in the order in which they are tried."""
    if len(audiences) == 1:
        return audiences[0].pools
    return tuple(sorted((pool for audience in audiences for pool in audience.pools), key=lambda pool: pool.rank))


class Audiences:
    """All audiences of some pools."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        """Group and index *pools*, which are in the order in which they are tried."""
        by_audience: defaultdict[object, list[Pool]] = defaultdict(list)
        for pool in pools:
            by_audience[pool.groups, _text(pool.namespaces), _text(pool.services)].append(pool)
        self.every = tuple(Audience(tuple(each)) for each in by_audience.values())
        required = [list(_required(audience.pools[0])) for audience in self.every]
        common = Counter(prop for each in required for properties in each for prop in properties)
        self._filed: defaultdict[Property, list[Audience]] = defaultdict(list)
        for audience, found in zip(self.every, required, strict=True):
            rarest = min(found, key=lambda properties: sum(common[prop] for prop in properties), default=(_NONE,))
            for prop in rarest:
                self._filed[prop].append(audience)

    def of(self, request: Request, namespace_labels: Mapping[str, str] | None) -> list[Audience]:
        """The audiences whose pools serve *request*."""
        found: Sequence[Audience] = self.every
        if len(found) > _FEW:
            properties = _properties(request, namespace_labels or {})
            found = [audience for prop in properties for audience in self._filed.get(prop, ())]
        return [audience for audience in found if audience.has(request, namespace_labels)]


def _properties(request: Request, namespace_labels: Mapping[str, str]) -> Iterator[Property]:
    """The properties of *request*."""
    yield _NONE
    yield _GROUP, request.group, ""
    for key, value in namespace_labels.items():
        yield _NAMESPACE, key, value
    for key, value in request.labels.items():
        yield _SERVICE, key, value


def _required(pool: Pool) -> Iterator[tuple[Property, ...]]:
    """The properties that *pool* requires: a request must have one of each tuple."""
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
    """A hashable text, equal for equal selectors."""
    return msgspec.json.encode(selector, order="deterministic")
