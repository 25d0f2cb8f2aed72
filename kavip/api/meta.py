"""Metadata, conditions and selectors: what all kinds share."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec import field as field  # re-exported: wire names that camelCase does not give


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all wire types: frozen, camelCase on the wire, defaults left out."""


class OwnerReference(Wire, frozen=True):
    """``metadata.ownerReferences[]``."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class Identity(Wire, frozen=True):
    """The parts of ObjectMeta that name a version of an object. Their length is bounded."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``, or ``name`` of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Metadata(Identity, frozen=True):
    """The parts of ObjectMeta that kavip reads. Timestamps stay text: RFC 3339 in UTC sorts by time."""

    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def age_key(self) -> tuple[str, str]:
        """Sorts the older object first; ties by key. An object without a timestamp is the youngest."""
        return self.creation_timestamp or "~", self.key

    def annotation(self, key: str) -> str:
        """The annotation *key* without surrounding blanks; "" if it is absent: an empty value counts as absent."""
        return self.annotations.get(key, "").strip() if self.annotations else ""

    def label(self, key: str) -> str:
        """The label *key*, or ""."""
        return (self.labels or {}).get(key, "")


class Condition(Wire, frozen=True, gc=False, omit_defaults=False):
    """``metav1.Condition``; *observed_generation* 0 is left out by :func:`kavip.api.conditions.wire`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Requirement(Wire, frozen=True):
    """One of ``matchExpressions``."""

    key: str
    operator: str
    values: list[str] | None = None


class Requirements:
    """
    ``matchLabels`` and ``matchExpressions``, compiled: matching costs O(labels), however many terms and values.

    The terms about one key become one. An unknown operator matches nothing.
    """

    __slots__ = ("_absent", "_forbidden", "_has_terms", "_is_satisfiable", "_labels", "_present", "_values")

    def __init__(self, labels: Mapping[str, str] | None, terms: Iterable[Requirement] | None) -> None:
        """Compile both; in O(terms and values)."""
        self._labels = (labels or {}).items()
        self._values: dict[str, frozenset[str]] = {}
        self._present, self._absent = set[str](), set[str]()
        self._forbidden: set[tuple[str, str]] = set()
        self._is_satisfiable, self._has_terms = True, False
        for term in terms or ():
            self._add(term)

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether *labels* include the required ones and satisfy every term."""
        labels = labels or {}
        return self._labels <= labels.items() and (not self._has_terms or self._satisfies_terms(labels))

    def _satisfies_terms(self, labels: Mapping[str, str]) -> bool:
        return (
            self._is_satisfiable
            and self._present <= labels.keys()
            and labels.keys().isdisjoint(self._absent)  # iterates over the shorter of the two
            and all(labels[key] in values for key, values in self._values.items())
            and labels.items().isdisjoint(self._forbidden)
        )

    def _add(self, term: Requirement) -> None:
        self._has_terms, key, values = True, term.key, term.values or ()
        match term.operator:
            case "In":
                self._present.add(key)
                self._values[key] = self._values[key].intersection(values) if key in self._values else frozenset(values)
            case "NotIn":
                self._forbidden.update((key, value) for value in values)
            case "Exists":
                self._present.add(key)
            case "DoesNotExist":
                self._absent.add(key)
            case _:
                self._is_satisfiable = False


class LabelSelector(Wire, frozen=True, dict=True):
    """``metav1.LabelSelector``; an empty one matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether *labels* satisfy every term; an unknown operator matches nothing."""
        return self._compiled.matches(labels)

    @cached_property
    def _compiled(self) -> Requirements:
        return Requirements(self.match_labels, self.match_expressions)


Passthrough = dict[str, Any]
"""JSON that kavip passes to the API server without reading it, such as affinity and resources."""


class ManagedMetadata(Metadata, frozen=True):
    """``metadata`` with ``managedFields``, unchanged, because kavip writes them back."""

    managed_fields: list[Passthrough] | None = None


class ManagedObject(Wire, frozen=True):
    """The managers of an object's fields, of any kind of object."""

    metadata: ManagedMetadata = ManagedMetadata()
