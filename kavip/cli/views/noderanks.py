"""In which order the nodes of a group hold the VIPs of a Service, as far as the objects of the API tell."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from kavip.vrrp import preference
from kavip.vrrp.drain import drain_signal
from kavip.vrrp.members import has_own_instances


class NodeRank(NamedTuple):
    """
    Nodes of one rank, sorted: of these, kavip chooses one for each VIP, so that the VIPs of the group are spread.

    *drained_by*: what drains them. *turn*: when they were drained; the last ones rank before the others.
    *is_preferred*: the Service prefers them. *weight*: the sum of ``spec.placement.preferred``.
    """

    nodes: tuple[str, ...]
    drained_by: str = ""
    turn: int = 0
    is_preferred: bool = False
    weight: int = 0


def ranks_of(service: Service, group: KeepalivedGroup, snapshot: Snapshot) -> tuple[NodeRank, ...]:
    """The nodes of *group*, best first; health and, with ``Local``, the pods of *service* decide among them too."""
    nodes, found = snapshot.group_nodes(group), defaultdict[NodeRank, list[str]](list)
    has_choice = service.preferred_nodes and (not group.is_shared or has_own_instances(service))
    preferred = preference.matching(service.preferred_nodes, nodes) if has_choice else frozenset[str]()
    turns = {name: turn for turn, name in enumerate(group.status.drained_nodes or (), start=1)}
    for node in nodes:
        name, signal = node.metadata.name, drain_signal(node, group.spec)
        weight = preference.preference_of(group.spec.placement, node.metadata.labels)
        rank = NodeRank((), signal, turns.get(name, 0) if signal else 0, name in preferred, weight)
        found[rank].append(name)
    return tuple(rank._replace(nodes=tuple(sorted(found[rank]))) for rank in sorted(found, key=_order))


def _order(rank: NodeRank) -> tuple[object, ...]:
    return bool(rank.drained_by), -rank.turn, not rank.is_preferred, -rank.weight, rank.drained_by


def sentence(ranks: Sequence[NodeRank]) -> str:
    """*ranks* in words, best first."""
    return ", then ".join(f"{' or '.join(rank.nodes)}{_why(rank)}" for rank in ranks)


def _why(rank: NodeRank) -> str:
    reasons = (
        "preferred by the Service" if rank.is_preferred else "",
        f"weight {rank.weight}" if rank.weight else "",
        f"drained: {rank.drained_by}" if rank.drained_by else "",
    )
    given = ", ".join(filter(None, reasons))
    return f" ({given})" if given else ""
