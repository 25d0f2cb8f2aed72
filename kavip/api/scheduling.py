"""
The nodes on which Kubernetes runs the pods of a DaemonSet, from node selector, node affinity, taints and tolerations.

A group's nodes are those on which its DaemonSet runs. If kavip counted others, it would wait for pods that never come.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from kavip.api.cluster import Node, Taint
from kavip.api.group import GroupSpec
from kavip.api.meta import LabelSelector, Requirement, Wire, field

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"

_NAME_FIELD: Final = "metadata.name"
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

    def matches(self, taint: Taint) -> bool:
        """Whether this toleration covers *taint*; operator Exists without a key covers every taint."""
        if self.effect not in ("", taint.effect) or (self.key or taint.key) != taint.key:
            return False
        is_equal = self.operator in ("", "Equal") and bool(self.key) and self.value == taint.value
        return is_equal or self.operator == "Exists"


class _Term(Wire, frozen=True):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None

    def matches(self, node: Node) -> bool:
        """Whether *node* satisfies every requirement; a term without any matches nothing."""
        if not self.match_expressions and not self.match_fields:
            return False
        labels, fields = node.metadata.labels or {}, {_NAME_FIELD: node.metadata.name}
        return all(_satisfies(each, labels) for each in self.match_expressions or ()) and all(
            _satisfies(each, fields) for each in self.match_fields or ()
        )


class _Required(Wire, frozen=True):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Wire, frozen=True):
    required: _Required | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(Wire, frozen=True):
    node_affinity: _NodeAffinity | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The node constraints of a group's pods; *tolerations* are None if the pods tolerate every taint."""

    labels: Mapping[str, str]
    tolerations: Sequence[_Toleration] | None
    terms: Sequence[_Term] | None

    def admits(self, node: Node) -> bool:
        """Whether Kubernetes creates a pod of the group on *node*."""
        return self._fits(node) and self._tolerates_taints(node, (NO_SCHEDULE, NO_EXECUTE))

    def keeps(self, node: Node) -> bool:
        """Whether a pod that is on *node* stays there."""
        return self._fits(node) and self._tolerates_taints(node, (NO_EXECUTE,))

    def _fits(self, node: Node) -> bool:
        if not self.labels.items() <= (node.metadata.labels or {}).items():
            return False
        return self.terms is None or any(each.matches(node) for each in self.terms)

    def _tolerates_taints(self, node: Node, effects: Collection[str]) -> bool:
        if self.tolerations is None:
            return True
        relevant = (each for each in node.spec.taints or () if each.effect in effects)
        return all((each.key, each.effect) in _ALWAYS_TOLERATED or self._tolerates(each) for each in relevant)

    def _tolerates(self, taint: Taint) -> bool:
        return any(each.matches(taint) for each in self.tolerations or ())


def placement_of(spec: GroupSpec) -> Placement:
    """The node constraints in *spec*; a value that the API server would refuse is left out."""
    tolerations, terms = None, None
    if spec.tolerations is not None:
        tolerations = [found for each in spec.tolerations if (found := _read(each, _Toleration))]
    affinity = _read(spec.affinity or {}, _Affinity)
    if affinity and affinity.node_affinity and affinity.node_affinity.required:
        terms = affinity.node_affinity.required.node_selector_terms
    return Placement(spec.node_selector or {}, tolerations, terms)


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


def _read(value: object, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _satisfies(term: Requirement, values: Mapping[str, str]) -> bool:
    if term.operator not in ("Gt", "Lt"):
        return LabelSelector(match_expressions=[term]).matches(values)
    try:
        found, bound = int(values.get(term.key, "")), int((term.values or [""])[0])
    except ValueError:
        return False
    return found > bound if term.operator == "Gt" else found < bound
