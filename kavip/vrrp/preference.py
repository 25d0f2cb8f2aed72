"""
Which nodes hold VIPs while they are up: the preference of a group, and that of a Service.

A node has a level for each instance: the sum of the weights of the group's terms that match its labels, and more than
all of these if the Service prefers it. Nodes of a higher level rank first (:mod:`kavip.vrrp.priorities`).
The VIPs of a Service with spread are spread over the preferred nodes while one of these is up
(:mod:`kavip.vrrp.spread`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kavip.api.cluster import Node
from kavip.api.group import GroupPlacement, KeepalivedGroup, PreferredNodes
from kavip.api.refusal import annotation_field
from kavip.api.selector import parse_selector
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.names import PREFERRED_NODES_ANNOTATION
from kavip.vrrp.members import Peer, has_own_instances

PREFERRED_NODES_FIELD: Final = annotation_field(PREFERRED_NODES_ANNOTATION)
MOST_TERMS: Final = 32
MOST_WEIGHT: Final = 100
_OWN_INSTANCES: Final = "spreadvips gives it instances of its own"
OF_SERVICE: Final = MOST_TERMS * MOST_WEIGHT + 1
"""What a node that the Service prefers has above all others."""


def preference_of(placement: GroupPlacement, labels: Mapping[str, str] | None) -> int:
    """The sum of the weights of the terms of *placement* that match *labels*, as of a PreferredSchedulingTerm."""
    held = (labels or {}).items()
    return sum(each.weight for each in _terms(placement) if (each.node_selector or {}).items() <= held)


def _terms(placement: GroupPlacement) -> Sequence[PreferredNodes]:
    """The terms that count: a longer list is refused, and costs no more."""
    return (placement.preferred or ())[:MOST_TERMS]


def unmatched(placement: GroupPlacement, nodes: Collection[Mapping[str, str] | None]) -> list[int]:
    """The indices of the terms of *placement* that match none of *nodes*, which are given by their labels."""
    held = [(labels or {}).items() for labels in nodes]
    terms = enumerate(_terms(placement))
    return [index for index, each in terms if not any((each.node_selector or {}).items() <= some for some in held)]


def matching(selector_text: str, nodes: Iterable[Node]) -> frozenset[str]:
    """The names of those of *nodes* that match *selector_text*, that of a Service; none if it cannot be read."""
    try:
        selector = parse_selector(selector_text, PREFERRED_NODES_FIELD)
    except BadInput:
        return frozenset()
    return frozenset(node.metadata.name for node in nodes if selector.matches(node.metadata.labels))


def note_of(service: Service, group: KeepalivedGroup, nodes: Collection[Node]) -> str:
    """Why ``kavip.io/preferred-nodes`` of *service* has no effect in *group* with *nodes*; "" if it has one."""
    selector_text = service.preferred_nodes
    if not selector_text:
        return ""
    if group.is_shared and not has_own_instances(service):
        return f"has no effect: the VIPs share instances of KeepalivedGroup {group.key}; {_OWN_INSTANCES}"
    try:
        parse_selector(selector_text, "")
    except BadInput as error:
        return str(error)
    return "" if not nodes or matching(selector_text, nodes) else f"matches no node of KeepalivedGroup {group.key}"


def levels_of(peers: Iterable[Peer], preferred: Collection[str] = ()) -> Mapping[str, int]:
    """The level of each of *peers* for a Service that prefers the nodes *preferred*; absent: 0."""
    return {peer.name: level for peer in peers if (level := _level(peer, preferred))}


def _level(peer: Peer, preferred: Collection[str]) -> int:
    return peer.preference + (OF_SERVICE if peer.name in preferred else 0)


def preferred_among(nodes: Collection[str], levels: Mapping[str, int]) -> frozenset[str]:
    """Those of *nodes* that the Service prefers; if there is none, those that the group prefers; else all."""
    own = frozenset(node for node in nodes if levels.get(node, 0) >= OF_SERVICE)
    return own or frozenset(node for node in nodes if levels.get(node)) or frozenset(nodes)
