"""
How far a node is drained: which VIPs it holds, and which groups have drained it.

A VIP whose master is not known may be on any node of its group. While the status of a group does not name the node as
drained, no controller has acted on the annotation, and what the group says of its VIPs may be old.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kavip.api.cluster import Node
from kavip.api.service import Service
from kavip.cli.views.status import report
from kavip.names import Reason
from kavip.snapshot import Object
from kavip.vrrp.drain import CORDON, EXCLUDE, EXCLUDE_LABEL, OUT_OF_SERVICE, other_signals

_UNKNOWN: Final = (Reason.UNKNOWN, Reason.PENDING, Reason.SPLIT_BRAIN)


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """
    The VIPs of the groups of *node*, by address with its Service.

    *holders*: by VIP, the node that holds it, "" for none; *on_drained*: the VIPs whose holder is drained. *held*: the
    VIPs of the node; *unknown*: those that it may hold. *following*: those of *held* that follow endpoints.
    *undrained*: the groups that have not drained it. *messages*: what the groups of all these say, by group.
    """

    node: str
    holders: Mapping[str, str]
    on_drained: frozenset[str]
    held: tuple[str, ...]
    following: tuple[str, ...]
    unknown: tuple[str, ...]
    undrained: tuple[str, ...]
    messages: Mapping[str, str]

    @property
    def is_done(self) -> bool:
        """Whether the node is drained, and certainly holds no VIP."""
        return not (self.held or self.unknown or self.undrained)

    def place_of(self, vip: str) -> str:
        """Where *vip* is, for people."""
        holder = self.holders[vip]
        if not holder:
            return "on no node"
        return f"on {holder}, which is drained too" if vip in self.on_drained else f"on {holder}"

    @property
    def awaits_pods(self) -> bool:
        """Whether the node is drained, and nothing but pods keeps VIPs there: no time will help."""
        return bool(self.held) and self.held == self.following and not (self.unknown or self.undrained)

    @property
    def pods_needed(self) -> str:
        """What moves the VIPs that follow endpoints."""
        kept = ", ".join(self.following)
        remedy = "start a pod on another node, or let the pods leave this one"
        return f"externalTrafficPolicy: Local keeps {kept} on the node with a ready pod: {remedy}"

    def lines(self) -> Iterator[str]:
        """What is left to do, for people."""
        if self.held:
            yield f"{self.node} still holds {', '.join(self.held)}"
        if self.following:
            yield self.pods_needed
        if self.unknown:
            yield f"{self.node} may hold {', '.join(self.unknown)}: the master is not known"
        if self.undrained:
            groups = ", ".join(self.undrained)
            yield f"{self.node} is not drained in {groups}: no controller leads, or all nodes of the group are drained"
        for group, message in self.messages.items():
            yield f"KeepalivedGroup {group}: {message}"


def progress_of(objects: Iterable[Object], node: str) -> DrainProgress:
    """How far *node* is drained, by the status in *objects*."""
    objects = tuple(objects)
    found = report(objects)
    local = {each.key for each in objects if isinstance(each, Service) and each.is_local}
    own = next((row.groups for row in found.nodes if row.node == node), ())
    drained = {row.group: row.drained for row in found.groups}
    rows = [(row, f"{row.address} {row.service or row.group}") for row in found.virtual_ips if row.address]
    held = {name: row.group for row, name in rows if row.node == node}
    unknown = {name: row.group for row, name in rows if not row.node and row.state in _UNKNOWN and row.group in own}
    serving = {row.group for row, _ in rows if row.node} | {*unknown.values()}
    undrained = [
        row.group for row in found.groups if row.group in serving.intersection(own) and node not in row.drained
    ]
    concerned = {*held.values(), *unknown.values(), *undrained}
    return DrainProgress(
        node,
        {name: row.node for row, name in rows if name not in unknown},
        frozenset(name for row, name in rows if row.node in drained.get(row.group, ())),
        tuple(held),
        tuple(name for row, name in rows if row.node == node and row.service in local),
        tuple(unknown),
        tuple(undrained),
        {row.group: row.message for row in found.groups if row.group in concerned},
    )


def still_drained(node: Node) -> Iterator[str]:
    """What drains *node* without its annotation, for people."""
    name, signals = node.metadata.name, other_signals(node)
    if OUT_OF_SERVICE in signals:
        yield f"all groups still drain {name}: it has the taint {OUT_OF_SERVICE}"
    if CORDON in signals:
        yield f"groups with {CORDON} in spec.drainOn still drain {name}: run kubectl uncordon {name}"
    if EXCLUDE in signals:
        yield f"groups with {EXCLUDE} in spec.drainOn still drain {name}: it has the label {EXCLUDE_LABEL}"
