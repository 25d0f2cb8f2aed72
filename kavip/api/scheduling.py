"""
The nodes on which Kubernetes runs the pods of a DaemonSet, from node selector, node affinity, taints and tolerations.

A group's nodes are those on which its DaemonSet runs. If kavip counted others, it would wait for pods that never come.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from kavip.api.cluster import Node, Taint
from kavip.api.group import GroupSpec
from kavip.api.meta import Requirement, Requirements, Wire, field

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
REQUIRED_TERMS: Final = "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
"""The path in an affinity."""

_NAME_FIELD: Final = "metadata.name"
_NUMERIC: Final = ("Gt", "Lt")
_LONGEST_INTEGER: Final = 20  # characters of a number of 64 bits
_NODE_TAINT: Final = "node.kubernetes.io/"
_ALWAYS_TOLERATED: Final = frozenset(
    {
        (f"{_NODE_TAINT}not-ready", NO_EXECUTE),
        (f"{_NODE_TAINT}unreachable", NO_EXECUTE),
        (f"{_NODE_TAINT}disk-pressure", NO_SCHEDULE),
        (f"{_NODE_TAINT}memory-pressure", NO_SCHEDULE),
        (f"{_NODE_TAINT}pid-pressure", NO_SCHEDULE),
        (f"{_NODE_TAINT}unschedulable", NO_SCHEDULE),
        (f"{_NODE_TAINT}network-unavailable", NO_SCHEDULE),
    }
)
"""The taints that the DaemonSet controller lets every pod with hostNetwork tolerate, in addition to its template."""

T = TypeVar("T")


class _Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Term(Wire, frozen=True):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class _Required(Wire, frozen=True):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Wire, frozen=True):
    required: _Required | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(Wire, frozen=True):
    node_affinity: _NodeAffinity | None = None


class _Tolerations:
    """The tolerations of a pod, compiled: a taint costs a few look-ups, however many there are."""

    def __init__(self, tolerations: Iterable[_Toleration]) -> None:
        found = list(tolerations)
        self._exists = {(each.key, each.effect) for each in found if each.operator == "Exists"}
        equal = (each for each in found if each.operator in ("", "Equal") and each.key)
        self._equal = {(each.key, each.effect, each.value) for each in equal}

    def cover(self, taint: Taint) -> bool:
        """Whether one of them covers *taint*; operator Exists without a key covers every taint."""
        effects = ("", taint.effect)
        return any(
            (taint.key, effect) in self._exists
            or ("", effect) in self._exists
            or (taint.key, effect, taint.value) in self._equal
            for effect in effects
        )


class _NodeTerm:
    """One of ``nodeSelectorTerms``, compiled; a node must satisfy every requirement."""

    def __init__(self, term: _Term) -> None:
        expressions = term.match_expressions or []
        self._labels = Requirements(None, (each for each in expressions if each.operator not in _NUMERIC))
        self._fields = Requirements(None, term.match_fields) if term.match_fields else None
        self._above: dict[str, int] = {}
        self._below: dict[str, int] = {}
        self._is_satisfiable = bool(expressions or term.match_fields)
        for each in expressions:
            if each.operator in _NUMERIC:
                self._add_bound(each)

    def matches(self, node: Node) -> bool:
        """Whether *node* satisfies the term; a term without requirements matches nothing."""
        labels = node.metadata.labels or {}
        return (
            self._is_satisfiable
            and self._labels.matches(labels)
            and (self._fields is None or self._fields.matches({_NAME_FIELD: node.metadata.name}))
            and self._is_within_bounds(labels)
        )

    def _add_bound(self, term: Requirement) -> None:
        bound = _integer((term.values or [""])[0])
        if bound is None:
            self._is_satisfiable = False
        elif term.operator == "Gt":
            self._above[term.key] = max(bound, self._above.get(term.key, bound))
        else:
            self._below[term.key] = min(bound, self._below.get(term.key, bound))

    def _is_within_bounds(self, labels: Mapping[str, str]) -> bool:
        if not (self._above.keys() <= labels.keys() and self._below.keys() <= labels.keys()):
            return False
        found = {key: _integer(labels[key]) for key in (*self._above, *self._below)}
        return all((value := found[key]) is not None and value > bound for key, bound in self._above.items()) and all(
            (value := found[key]) is not None and value < bound for key, bound in self._below.items()
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """The node constraints of a group's pods; *tolerations* are None if the pods tolerate every taint."""

    labels: Mapping[str, str]
    tolerations: _Tolerations | None
    terms: Sequence[_NodeTerm] | None

    def fits(self, node: Node) -> bool:
        """Whether *node* satisfies selector and affinity."""
        if not self.labels.items() <= (node.metadata.labels or {}).items():
            return False
        return self.terms is None or any(each.matches(node) for each in self.terms)

    def admits(self, node: Node) -> bool:
        """Whether Kubernetes creates a pod of the group on *node*, which fits."""
        return self._tolerates(node, (NO_SCHEDULE, NO_EXECUTE))

    def keeps(self, node: Node) -> bool:
        """Whether a pod that is on *node*, which fits, stays there."""
        return self._tolerates(node, (NO_EXECUTE,))

    def _tolerates(self, node: Node, effects: Collection[str]) -> bool:
        tolerations = self.tolerations
        if tolerations is None:
            return True
        relevant = (each for each in node.spec.taints or () if each.effect in effects)
        return all((each.key, each.effect) in _ALWAYS_TOLERATED or tolerations.cover(each) for each in relevant)


def placement_of(spec: GroupSpec) -> Placement:
    """The node constraints in *spec*; a value that the API server would refuse is left out."""
    tolerations = None
    if spec.tolerations is not None:
        tolerations = _Tolerations(found for each in spec.tolerations if (found := _read(each, _Toleration)))
    terms = _node_selector_terms(spec)
    return Placement(spec.node_selector or {}, tolerations, None if terms is None else [*map(_NodeTerm, terms)])


def count_node_selector_terms(spec: GroupSpec) -> int:
    """How many alternatives the node affinity in *spec* has; each node is compared with each."""
    return len(_node_selector_terms(spec) or ())


def placement_key(spec: GroupSpec) -> object:
    """What :func:`placement_of` reads, as a key: groups with equal keys are on the same nodes."""
    labels = frozenset((spec.node_selector or {}).items())
    if spec.tolerations is None and not spec.affinity:
        return labels
    return labels, msgspec.json.encode((spec.tolerations, spec.affinity), order="sorted")


def placement_fields(spec: GroupSpec) -> str:
    """The fields that constrain a group's nodes, for a message: ``spec.nodeSelector``, and others if they are set."""
    given = (("spec.affinity", bool(spec.affinity)), ("spec.tolerations", spec.tolerations is not None))
    return " or ".join(["spec.nodeSelector", *(name for name, is_given in given if is_given)])


def _node_selector_terms(spec: GroupSpec) -> list[_Term] | None:
    affinity = _read(spec.affinity or {}, _Affinity)
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return required.node_selector_terms if required else None


def _read(value: object, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _integer(text: str) -> int | None:
    """*text* as an integer of 64 bits or a little more; None if it is none."""
    try:
        return int(text) if len(text) <= _LONGEST_INTEGER else None
    except ValueError:
        return None
