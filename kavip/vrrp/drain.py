"""
Which nodes of a group are drained: they rank behind all others that are well, so their VIPs move while they still run.

A node is drained by its annotation ``kavip.io/drain``, by the taint ``node.kubernetes.io/out-of-service``
(https://kubernetes.io/docs/concepts/architecture/nodes/#non-graceful-node-shutdown), and by what the group names in
``spec.drainOn``. Cordoning alone drains nothing by default: it only keeps new pods away.

Each drained node has the turn in which it was drained. Of drained nodes, the one that was drained last ranks first. So
VIPs that no undrained node can hold stay on the node that was drained last, and none goes back to one that was drained
before.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.names import DRAIN_ANNOTATION

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
EXCLUDE_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
CORDON, EXCLUDE = "Cordon", "ExcludeLabel"
SIGNALS: Final = (CORDON, EXCLUDE)
"""What ``spec.drainOn`` may name: ``kubectl cordon``, and the label :data:`EXCLUDE_LABEL`."""

Turns = Mapping[str, int]
"""The turn in which each drained node was drained, from 1; nodes that are not drained are absent."""

NO_TURNS: Final[Turns] = MappingProxyType({})
_NO: Final = ("", "false")


def drain_signal(node: Node, spec: GroupSpec) -> str:
    """What drains *node* for a group with *spec*; "" if nothing does."""
    signals = spec.drain_on or ()
    if node.metadata.annotation(DRAIN_ANNOTATION).strip().lower() not in _NO:
        return DRAIN_ANNOTATION
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints or ()):
        return OUT_OF_SERVICE
    if CORDON in signals and node.spec.unschedulable:
        return CORDON
    if EXCLUDE in signals and EXCLUDE_LABEL in (node.metadata.labels or {}):
        return EXCLUDE_LABEL
    return ""


def other_signals(node: Node) -> tuple[str, ...]:
    """What drains *node* besides the annotation, for all groups or for those whose ``spec.drainOn`` names it."""
    found = {
        OUT_OF_SERVICE: any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints or ()),
        CORDON: node.spec.unschedulable,
        EXCLUDE: EXCLUDE_LABEL in (node.metadata.labels or {}),
    }
    return tuple(signal for signal, is_given in found.items() if is_given)


def drained_among(nodes: Iterable[Node], spec: GroupSpec, before: Turns) -> Turns:
    """
    Those of *nodes* that are drained, where those *before* were in the text that was published last.

    Never all of them: the nodes that were drained last keep their rank and their VIPs.
    """
    every = {node.metadata.name: drain_signal(node, spec) for node in nodes}
    drained = sorted(name for name, signal in every.items() if signal)
    turn = 1 + max((before.get(name, 0) for name in drained), default=0)
    turns = {name: before.get(name, turn) for name in drained}
    undrained = undrained_among(every, turns)
    return {name: each for name, each in turns.items() if name not in undrained}


def undrained_among(nodes: Collection[str], turns: Turns) -> frozenset[str]:
    """Those of *nodes* that are not drained; if all are, those that were drained last."""
    last = max((turns.get(node, 0) for node in nodes), default=0)
    undrained = frozenset(node for node in nodes if node not in turns)
    return undrained or frozenset(node for node in nodes if turns[node] == last)
