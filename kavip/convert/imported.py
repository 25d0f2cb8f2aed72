"""
What an import makes: VIPPools and KeepalivedGroups as manifests, with remarks about what has no counterpart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kavip import names
from kavip.api.meta import LabelSelector, Requirement
from kavip.ipam.ranges import Range
from kavip.names import POD_SECURITY_LABEL

Json = dict[str, Any]

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label with the name of a namespace, which every namespace has."""
NO_COUNTERPART: Final = "has no counterpart in kavip"


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """What the user must know about *field* of *subject*, ``Kind ns/name``; *field* "": about all of it."""

    subject: str
    field: str
    text: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.subject}: {f'{self.field}: ' if self.field else ''}{self.text}"


@dataclass(frozen=True, slots=True)
class ImportedPool:
    """A VIPPool, and the key of the *group* that announces its addresses; "": none does."""

    name: str
    spec: Json
    ranges: tuple[Range, ...]
    group: str = ""

    @property
    def body(self) -> Json:
        """The manifest."""
        groups = {"groups": [self.group]} if self.group else {}
        version = f"{names.KAVIP_GROUP}/{names.VERSION}"
        return {
            "apiVersion": version,
            "kind": names.VIP_POOL,
            "metadata": {"name": self.name},
            "spec": {**self.spec, **groups},
        }


@dataclass(frozen=True, slots=True)
class ImportedGroup:
    """A KeepalivedGroup."""

    key: str
    spec: Json

    @property
    def body(self) -> Json:
        """The manifest."""
        namespace, _, name = self.key.partition("/")
        version = f"{names.REDHATCOP_GROUP}/{names.VERSION}"
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": version, "kind": names.KEEPALIVED_GROUP, "metadata": metadata, "spec": self.spec}


@dataclass(frozen=True, slots=True)
class Imported:
    """
    Everything that an import makes of the objects of another load balancer; *remarks* are sorted.

    *left*: the ranges by name of the pools that stay with it. *assigning*: the imported pools from which it
    still assigns by itself.
    """

    pools: tuple[ImportedPool, ...] = ()
    groups: tuple[ImportedGroup, ...] = ()
    remarks: tuple[Remark, ...] = ()
    left: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    assigning: tuple[str, ...] = ()

    def bodies(self) -> tuple[Json, ...]:
        """The manifests in the order in which they can be applied, with the namespaces of the groups."""
        namespaces = sorted({each.key.partition("/")[0] for each in self.groups})
        return (
            *(namespace_body(each) for each in namespaces),
            *(each.body for each in self.groups),
            *(each.body for each in self.pools),
        )


def namespace_body(name: str) -> Json:
    """A namespace in which the pods of a group may run: they use the host network."""
    metadata = {"name": name, "labels": {POD_SECURITY_LABEL: "privileged"}}
    return {"apiVersion": "v1", "kind": names.NAMESPACE, "metadata": metadata}


# --- selectors --------------------------------------------------------------------------------------------------------
def in_namespaces(namespaces: Iterable[str]) -> LabelSelector:
    """The selector of these namespaces."""
    return LabelSelector(match_expressions=[Requirement(NAME_LABEL, "In", sorted(set(namespaces)))])


def any_of(selectors: Sequence[LabelSelector]) -> LabelSelector | None:
    """
    One selector that matches where any of *selectors* does; None: no single selector can.

    Alternatives can be joined if each asks for values of the same label, as ``In`` or ``matchLabels``.
    """
    if len(selectors) == 1:
        return selectors[0]
    found = [_values(each) for each in selectors]
    keys = {each[0] for each in found if each}
    if len(keys) != 1 or None in found:
        return None
    values = {value for each in found if each for value in each[1]}
    return LabelSelector(match_expressions=[Requirement(keys.pop(), "In", sorted(values))])


def _values(selector: LabelSelector) -> tuple[str, frozenset[str]] | None:
    """The only label that *selector* asks for, and the values that match."""
    terms = [(key, frozenset((value,))) for key, value in (selector.match_labels or {}).items()]
    for each in selector.match_expressions or ():
        if each.operator != "In":
            return None
        terms.append((each.key, frozenset(each.values or ())))
    return terms[0] if len(terms) == 1 else None


def node_affinity(selectors: Iterable[LabelSelector]) -> Json:
    """The affinity that keeps pods to nodes which any of *selectors* matches."""
    terms = [{"matchExpressions": _expressions(each)} for each in selectors]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def _expressions(selector: LabelSelector) -> list[Json]:
    labels = [Requirement(key, "In", [value]) for key, value in sorted((selector.match_labels or {}).items())]
    return [
        {"key": each.key, "operator": each.operator, **({"values": list(each.values)} if each.values else {})}
        for each in (*labels, *(selector.match_expressions or ()))
    ]


def plain_labels(selectors: Sequence[LabelSelector]) -> Mapping[str, str] | None:
    """The labels of a single selector without expressions; None: it needs more than ``nodeSelector``."""
    if len(selectors) != 1 or selectors[0].match_expressions:
        return None
    return selectors[0].match_labels or {}
