"""
Which nodes of a group are drained: they rank behind all others that are well, so their VIPs move while they still run.

A node is drained by its annotation ``kavip.io/drain``, by the taint ``node.kubernetes.io/out-of-service``
(https://kubernetes.io/docs/concepts/architecture/nodes/#non-graceful-node-shutdown), and by what the group names in
``spec.drainOn``. Cordoning alone drains nothing by default: it only keeps new pods away.
"""

from collections.abc import Collection, Iterable
from typing import Final

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.names import DRAIN_ANNOTATION

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
EXCLUDE_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
CORDON, EXCLUDE = "Cordon", "ExcludeLabel"
SIGNALS: Final = (CORDON, EXCLUDE)
"""What ``spec.drainOn`` may name: ``kubectl cordon``, and the label :data:`EXCLUDE_LABEL`."""

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


def drained_among(nodes: Iterable[Node], spec: GroupSpec, before: Collection[str]) -> frozenset[str]:
    """
    The names of those of *nodes* that are drained, where those *before* were in the text that was published last.

    Never all of them: the nodes that were drained last keep their rank and their VIPs.
    """
    every = {node.metadata.name: drain_signal(node, spec) for node in nodes}
    drained = frozenset(name for name, signal in every.items() if signal)
    if len(drained) < len(every):
        return drained
    kept = drained.intersection(before)
    return kept if len(kept) < len(every) else frozenset()
