"""
How far a group is taken over from keepalived-operator.

Everything follows from what is observed: the group's annotation, its ConfigMap, its pods and their answers. So kavip
may be restarted, and the take-over paused, at any moment. While an old pod exists, the key ``keepalived.conf`` of the
ConfigMap stays as it was found, and the new pods read ``kavip.conf``.

This module only observes. :mod:`~kavip.reconcile.takeover.replacement` deletes the old pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kavip import names
from kavip.api.agentconfig import decode_config
from kavip.api.cluster import Node, Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap, controller_of
from kavip.reconcile.observed.agentstates import MASTER, InstanceState, NodeState
from kavip.snapshot import Snapshot
from kavip.vrrp import operatorconfig
from kavip.vrrp.coexistence import Coexistence
from kavip.vrrp.operatorconfig import OperatorInstance

_OLD_CONTAINERS: Final = frozenset({names.KEEPALIVED_CONTAINER, names.OLD_AGENT_CONTAINER})
"""Containers of a pod of keepalived-operator. A pod of kavip has the first one too, and its agent."""


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """
    The progress of one group.

    *approved*: the group has the annotation. *begun*: the ConfigMap holds kavip's text and the old one. *old* and
    *new*: the pods of keepalived-operator and of kavip, by node. *instances*: what the old pods run. *leaders*: the
    nodes that take the VIPs over (:class:`Coexistence`). *config_lost*: the ConfigMap is gone, so what the old pods run
    is unknown. *evicted*: the nodes whose old pods Kubernetes would delete, all at once, if kavip applied the
    DaemonSet.

    *nodes*: those of the group. *orphaned*: other ready nodes with an old pod, which a later taint does not end.
    *states*: the last answer from each node.
    """

    group: KeepalivedGroup
    approved: bool
    begun: bool
    old: Mapping[str, Pod]
    new: Mapping[str, Pod]
    instances: tuple[OperatorInstance, ...]
    leaders: frozenset[str]
    config_lost: bool = False
    evicted: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    orphaned: frozenset[str] = frozenset()
    states: Mapping[str, NodeState]

    @property
    def may_begin(self) -> bool:
        """Whether it is approved, and its beginning loses no VIP."""
        return self.approved and (self.begun or not self.evicted)

    @property
    def is_active(self) -> bool:
        """Whether kavip's text must stay compatible with old pods."""
        return bool(self.old) and (self.may_begin or self.begun)

    @property
    def is_blocked(self) -> bool:
        """Whether old pods run that kavip may not replace."""
        stays = any(not pod.metadata.deletion_timestamp for pod in self.old.values())
        return stays and (self.config_lost or not self.is_active)

    @property
    def coexistence(self) -> Coexistence:
        """What the model must keep for the old pods. It holds before the approval too: VRIDs are persisted already."""
        return Coexistence(self.instances, self.leaders)

    @cached_property
    def ready_nodes(self) -> tuple[str, ...]:
        """The names of the group's nodes that are ready."""
        return tuple(node.metadata.name for node in self.nodes if node.is_ready)

    @property
    def ready_old(self) -> list[str]:
        """The ready nodes of the group with an old pod, sorted."""
        return sorted(name for name in self.old if name in self.ready_nodes)

    @property
    def unanswered(self) -> list[str]:
        """Those that have not answered yet."""
        return [name for name in self.ready_old if name not in self.states]

    def node(self, name: str) -> Node:
        """The node of the group with that *name*."""
        return next(each for each in self.nodes if each.metadata.name == name)

    def instances_on(self, node: str) -> Sequence[InstanceState]:
        """The instances that *node* reports."""
        return self.states[node].instances if node in self.states else ()

    def held(self, node: str) -> int:
        """The number of instances that the old pod on *node* is master of: all if it does not report."""
        state = self.states.get(node)
        if state is None or not state.running:
            return len(self.instances)
        return sum(sight.state == MASTER for sight in state.instances)


def takeover_of(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    *,
    configmap: ConfigMap | None,
    pods: Sequence[Pod],
    states: Mapping[str, NodeState],
) -> Takeover:
    """
    The current take-over of *group*, with the leaders that ``agent.json`` names.

    *configmap* is the one that the group controls, *pods* are those with its label.
    """
    data = (configmap.data if configmap else None) or {}
    approved = group.metadata.annotation(names.TAKE_OVER_ANNOTATION) == "true"
    begun = names.TAKE_OVER_KEY in data
    old, new = dict[str, Pod](), dict[str, Pod]()
    for pod in pods:
        (old if is_old(pod, group) else new)[pod.spec.node_name] = pod
    is_operators = begun or (configmap is not None and names.AGENT_KEY not in data)
    nodes = snapshot.group_nodes(group)
    return Takeover(
        group=group,
        approved=approved,
        begun=begun,
        old=dict(sorted(old.items())),
        new=new,
        instances=operatorconfig.read_instances(data.get(names.CONFIG_KEY, "")) if is_operators and old else (),
        leaders=_recorded_leaders(data.get(names.AGENT_KEY, "")) if approved or (begun and old) else frozenset(),
        config_lost=configmap is None,
        evicted=_evicted(snapshot, group, old),
        nodes=nodes,
        orphaned=frozenset(_ready(snapshot, old.keys() - {node.metadata.name for node in nodes})),
        states=states,
    )


def is_old(pod: Pod, group: KeepalivedGroup) -> bool:
    """Whether *pod* was made from keepalived-operator's template; its DaemonSet may be gone."""
    containers = pod.spec.containers
    if containers is None or not {each.name for each in containers} >= _OLD_CONTAINERS:
        return False
    owner = controller_of(pod.metadata)
    return owner is None or (owner.kind, owner.name) == (names.DAEMON_SET, group.metadata.name)


def _evicted(snapshot: Snapshot, group: KeepalivedGroup, old: Mapping[str, Pod]) -> tuple[str, ...]:
    running = {node for node, pod in old.items() if not pod.metadata.deletion_timestamp}
    return tuple(_ready(snapshot, running - snapshot.keeping_nodes(group)))


def _ready(snapshot: Snapshot, nodes: set[str]) -> list[str]:
    return sorted(name for name in nodes if (node := snapshot.nodes.get(name)) is not None and node.is_ready)


def _recorded_leaders(text: str) -> frozenset[str]:
    config = decode_config(text)
    return frozenset(config.leads) if config else frozenset()
