"""
The order in which pods of keepalived-operator's are replaced.

One at a time, the next when the last one runs: first those that hold no VIP. When none such is left the new ones take
the VIPs from their holders (:class:`~kavip.vrrp.succession.Succession`), which are then replaced too. Whatever is not
as it should be stops it, and is told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api.cluster import Node, Pod
from kavip.controller.observed import FAULT, MASTER, NodeState
from kavip.controller.outcome import PodRemoval, Verdict
from kavip.controller.programmed import few
from kavip.controller.takeover import Takeover
from kavip.names import Reason
from kavip.vrrp.groups import has_password
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.succession import stranded

_STAYS: Final = frozenset({"nopreempt"})
"""With these an instance stays where it is until its holder goes."""


@dataclass(frozen=True, slots=True)
class Sighted:
    """A take-over with what decides its next step: the *nodes* of the group and the *states* that they tell."""

    takeover: Takeover
    nodes: Sequence[Node]
    states: Mapping[str, NodeState]

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
            down = [name for name in self.takeover.old if name not in candidates]
            return None, f"waiting for {few(down)}, which is not ready: its old pod goes when it is back"
        node = min(self._idle() or candidates, key=self._cost)
        pod = self.takeover.old[node]
        return PodRemoval(pod.metadata.key, pod.metadata.uid, self.takeover.group.key), f"replacing the pod on {node}"

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
        for other in self._ready(self.takeover.old):
            for sight in self.states[other].instances if other in self.states else ():
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
            if any(line.keyword in _STAYS for line in instance.lines):
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
        sight = next((each for each in self.states[node].instances if each.name == instance.name), None)
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


def verdict(sighted: Sighted, doing: str) -> Verdict:
    """What the group's ``Programmed`` says while it is being taken over."""
    take = sighted.takeover
    return Verdict(
        "False",
        Reason.PENDING,
        f"taking over from keepalived-operator, {len(take.new)} of {len(sighted.nodes)} nodes so far; {doing}; until "
        "all are taken over, changes reach the new pods only",
    )
