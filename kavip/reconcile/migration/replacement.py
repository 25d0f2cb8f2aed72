"""
The order in which pods of keepalived-operator's are replaced.

One at a time, the next when the last one runs: first those that hold no VIP. When none such is left the new ones take
the VIPs from their holders (:class:`~kavip.vrrp.succession.Succession`), which are then replaced too. Old pods on nodes
where the group has none any more come last, for nobody follows them there. Whatever is not as it should be stops it,
and is told.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api.cluster import Node, Pod
from kavip.api.scheduling import fields_of
from kavip.names import Reason
from kavip.reconcile.migration.takeover import Takeover
from kavip.reconcile.observed.objects import FAULT, MASTER, NodeState, Sight
from kavip.reconcile.plan import PodRemoval, Verdict
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot
from kavip.vrrp.groups import has_password
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.succession import stranded

_STAYS: Final = frozenset({"nopreempt"})
"""With these an instance stays where it is until its holder goes."""


@dataclass(frozen=True, slots=True)
class Sighted:
    """
    A take-over with what decides its next step: the *nodes* of the group and the *states* that they tell.

    *strays*: other nodes that are ready and have an old pod, which stays where a taint has come after it.
    """

    takeover: Takeover
    nodes: Sequence[Node]
    states: Mapping[str, NodeState]
    strays: Collection[str] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, takeover: Takeover, states: Mapping[str, NodeState]) -> "Sighted":
        """What *snapshot* has of a take-over."""
        nodes = snapshot.group_nodes(takeover.group)
        others = takeover.old.keys() - {node.metadata.name for node in nodes}
        strays = [name for name in others if (node := snapshot.nodes.get(name)) is not None and node.is_ready]
        return cls(takeover, nodes, states, frozenset(strays))

    def leads(self) -> frozenset[str]:
        """
        The nodes that lead from now on.

        No node does until no pod is left that can be replaced at no cost; then those with a new pod do.
        """
        take = self.takeover
        if take.leads or not take.agreed or not take.goes_on or self._unseen() or self._restless(""):
            return take.leads
        return frozenset() if self._idle() else frozenset(filter(self._is_heard, self._ready(take.new)))

    def next(self, config_hash: str, model: Model | None) -> tuple[PodRemoval | None, str]:
        """The pod that is replaced next, if it is time, and what is waited for, if it is not."""
        if why := self._hindrance(config_hash, model):
            return None, why
        candidates = self._ready(self.takeover.old)
        if not candidates:
            return self._last(model)
        node = min(self._idle() or candidates, key=self._cost)
        return self._removal(node), f"replacing the pod on {node}"

    def _last(self, model: Model | None) -> tuple[PodRemoval | None, str]:
        """What becomes of the old pods that no new one follows: they go, if they need not hold anything any more."""
        take, fields = self.takeover, fields_of(self.takeover.group.spec)
        if not self.strays:
            return None, f"waiting for {few(list(take.old))}, which is not ready: its old pod goes when it is back"
        for node in sorted(self.strays):
            pod = take.old[node].metadata
            if pod.deletion_timestamp:
                return None, f"waiting for the old pod on {node} to end"
            if kept := self._kept(node, model):
                return None, (
                    f"the old pod on {node}, where the group has none any more ({fields}), holds {few(kept)}, and no "
                    "new pod is able to take that: let the group have one that is, or lose it for a moment with: "
                    f"kubectl delete pod {pod.name} -n {pod.namespace}"
                )
        node = min(self.strays)
        return self._removal(node), f"removing the old pod on {node}, where the group has none any more ({fields})"

    def _kept(self, node: str, model: Model | None) -> list[str]:
        """The instances that the old pod on *node* has to go on with; without a word from it all may be its own."""
        take, state = self.takeover, self.states.get(node)
        if not take.leads:
            return [each.name for each in take.instances]
        holds = {(each.router_id, each.family) for each in self._sights(node) if each.state == MASTER}
        led = {each.name for name in take.new for each in self._sights(name) if each.state == MASTER}
        return [
            each.name
            for each in (model.instances if model else ())
            if (state is None or not state.running or (each.router_id, each.family) in holds)
            and not (each.name in led or _stays(each))
        ]

    def _sights(self, node: str) -> Sequence[Sight]:
        return self.states[node].instances if node in self.states else ()

    def _removal(self, node: str) -> PodRemoval:
        pod = self.takeover.old[node]
        return PodRemoval(pod.metadata.key, pod.metadata.uid, self.takeover.group.key)

    def _hindrance(self, config_hash: str, model: Model | None) -> str:
        take = self.takeover
        if not take.agreed:
            return (
                f'paused: annotate the group with {names.TAKE_OVER_ANNOTATION}: "true" again to go on, or start '
                "keepalived-operator to go back"
            )
        if model is None:
            return "there is no configuration"
        if lost := stranded(model, take.instances):
            return (
                f"the VIPs of {few(lost)} would be lost on the way: spreadvips, instances.mode or blacklistRouterIDs "
                "was changed since keepalived-operator stopped; change it back until all is taken over"
            )
        if any(each.authenticated for each in take.instances) and not has_password(take.group.spec):
            return "the old pods use a password: set spec.passwordAuth as it was"
        if unseen := self._unseen():
            return f"asking {few(unseen)} which VIPs they hold"
        return self._restless(config_hash) or self._unled(model)

    def _restless(self, config_hash: str) -> str:
        """What is under way on nodes that are ready; "" where all is quiet."""
        take = self.takeover
        for node in self._names():
            pod = take.new.get(node) or take.old.get(node)
            if pod is None or pod.metadata.deletion_timestamp:
                return f"waiting for a new pod on {node}"
            if node in take.old:
                continue
            state = self.states.get(node)
            if not pod.is_ready or state is None:
                return f"waiting for the pod on {node}: {state.refused if state and state.refused else 'it starts'}"
            if not take.leads and (why := self._rivalry(node, state)):
                return why
            if config_hash and state.config_hash != config_hash:
                return f"waiting for {node} to run configuration {config_hash}" + (
                    f", which it refuses: {state.refused}" if state.refused else ""
                )
        return ""

    def _rivalry(self, node: str, state: NodeState) -> str:
        """Whether *node*, which is new and below all, is master beside an old one: they do not hear each other."""
        mine = {(sight.router_id, sight.family): sight.name for sight in state.instances if sight.state == MASTER}
        for other in (*self._ready(self.takeover.old), *sorted(self.strays)):
            for sight in self._sights(other):
                identity = sight.router_id, sight.family
                if sight.state == MASTER and identity in mine:
                    return (
                        f"{node} and {other} are both master of {mine[identity]}: they do not hear each other; "
                        f"compare {names.TAKE_OVER_KEY} with {names.CONFIG_KEY} in the ConfigMap"
                    )
        return ""

    def _unled(self, model: Model) -> str:
        """The instance that a node has still to take, which it does in seconds."""
        take = self.takeover
        ready = self._names()
        for instance in model.instances:
            if _stays(instance):
                continue
            heirs = [each for each in take.succession.heirs(instance) if each in ready]
            found = {each: self._able(each, instance) for each in heirs}
            able = [each for each in heirs if found[each]]
            if able and MASTER not in found.values():
                return f"waiting for {able[0]} to hold {instance.name}"
        return ""

    def _able(self, node: str, instance: Instance) -> str:
        """
        The state of *instance* on *node*; "" where it cannot become master beside the old pods.

        A check may have lowered it, or the want of an endpoint, so that it comes first only when its holder goes.
        """
        sight = next((each for each in self._sights(node) if each.name == instance.name), None)
        if sight is None or sight.state == FAULT:
            return ""
        identity = instance.router_id, instance.family
        old = (each.priority for each in self.takeover.instances if (each.router_id, each.family) == identity)
        return sight.state if sight.state == MASTER or sight.priority > max(old, default=0) else ""

    def _unseen(self) -> list[str]:
        return [node for node in self._ready(self.takeover.old) if node not in self.states]

    def _idle(self) -> list[str]:
        """
        Nodes with an old pod that holds no VIP.

        Where none of them says, the highest address is taken to hold all: so keepalived decides between equals.
        """
        olds = self._ready(self.takeover.old)
        if self.takeover.leads:
            return []
        if not any(self.states[node].running for node in olds if node in self.states):
            return sorted(olds, key=self._address)[:-1]
        return [node for node in olds if self._held(node) == 0]

    def _is_heard(self, name: str) -> bool:
        """Whether the old pods speak to the node: one that has joined since they were made is held out until then."""
        node = self._node(name)
        return all(not each.peers or node.internal_ip(each.family) in each.peers for each in self.takeover.instances)

    def _cost(self, node: str) -> tuple[int, int, int]:
        return (self._held(node), *self._address(node))

    def _held(self, node: str) -> int:
        """How many instances the old pod on *node* is master of; one that does not say may have all."""
        state = self.states.get(node)
        if state is None or not state.running:
            return len(self.takeover.instances)
        return sum(sight.state == MASTER for sight in state.instances)

    def _address(self, name: str) -> tuple[int, int]:
        return next(iter(self._node(name).host_addresses), (0, 0))

    def _node(self, name: str) -> Node:
        return next(each for each in self.nodes if each.metadata.name == name)

    def _names(self) -> list[str]:
        return [node.metadata.name for node in self.nodes if node.is_ready]

    def _ready(self, pods: Mapping[str, Pod]) -> list[str]:
        ready = self._names()
        return sorted(name for name in pods if name in ready)


def _stays(instance: Instance) -> bool:
    return any(line.keyword in _STAYS for line in instance.lines)


def verdict(sighted: Sighted, doing: str) -> Verdict:
    """What the group's ``Programmed`` says while it is being taken over."""
    take = sighted.takeover
    return Verdict(
        "False",
        Reason.PENDING,
        f"taking over from keepalived-operator, {len(take.new)} of {len(sighted.nodes)} nodes so far; {doing}; until "
        "all are taken over, changes reach the new pods only",
    )
