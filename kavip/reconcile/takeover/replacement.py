"""
Deletes the pods of keepalived-operator: one at a time, the next one when its successor runs.

Old pods that hold no VIP go first. When none of them is left, the new pods take the VIPs from the old pods that hold
them (:class:`~kavip.vrrp.coexistence.Coexistence`); then these old pods go too. Old pods on nodes outside the group go
last, because no new pod follows there. Any deviation pauses the replacement, and the group's ``Programmed`` reports it.

:mod:`kavip.reconcile.group.reconcile` calls :mod:`kavip.reconcile.group.rollout`, which plans the replacement when the
objects of the group are current; the deletions are writes of the group's plan. Until the last old pod is gone, the
DaemonSet has ``OnDelete`` (:mod:`kavip.reconcile.group.objects`). Nothing is planned while keepalived-operator runs
(:mod:`kavip.reconcile.observed.operator`).
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from kavip import names
from kavip.api.scheduling import placement_fields
from kavip.names import Reason
from kavip.reconcile.observed.agentstates import FAULT, MASTER, NodeState
from kavip.reconcile.observed.records import RejectedObject, ReplacedPod
from kavip.reconcile.plan import ConditionState, PodRemoval
from kavip.reconcile.takeover.progress import Takeover
from kavip.reconcile.text import few
from kavip.vrrp.coexistence import stranded
from kavip.vrrp.groupspec import has_password
from kavip.vrrp.instances import Instance, Model

_STAYS: Final = frozenset({"nopreempt"})
"""Keywords with which an instance stays on its master until the master goes."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """
    The pod to delete now: one or none; and the group's ``Programmed`` while the take-over lasts.

    *recheck*: after how many seconds a refused deletion is tried again.
    """

    deletions: tuple[PodRemoval, ...] = ()
    programmed: ConditionState | None = None
    recheck: float | None = None


def plan_replacement(
    takeover: Takeover,
    *,
    config_hash: str,
    model: Model | None,
    last: ReplacedPod | None,
    is_written: bool,
    refused: RejectedObject | None,
    now: datetime,
) -> Replacement:
    """
    Choose the old pod to delete next.

    *last*: the pod that was deleted last. *is_written*: the group's objects are as desired; until then no pod goes.
    *refused*: what the API server refused last for pods of the group.
    """
    if not takeover.is_active:
        return Replacement()
    if not is_written:
        return Replacement((), _pending(takeover, "its objects are being written"))
    deletion, action = _next_deletion(takeover, config_hash, model)
    if deletion is not None and last is not None:
        deletion = _deletion_after(takeover, last, deletion)
    if deletion is not None and refused is not None and (delay := refused.delay(deletion.uid, now)):
        action = f"the API server refuses to delete a pod: {refused.message}"
        return Replacement((), _pending(takeover, action), delay)
    return Replacement((deletion,) if deletion else (), _pending(takeover, action))


def with_leaders(takeover: Takeover) -> Takeover:
    """
    *takeover* with the nodes that take the VIPs over from now on.

    There are none until no pod is left that can be replaced at no cost. Then they are the nodes with a new pod.
    """
    if takeover.leaders or not takeover.approved or not takeover.is_active:
        return takeover
    if takeover.unanswered or _unfinished(takeover, "") or _idle(takeover):
        return takeover
    new = (name for name in takeover.ready_nodes if name in takeover.new)
    return replace(takeover, leaders=frozenset(name for name in new if _is_known_to_old_pods(takeover, name)))


def _pending(takeover: Takeover, action: str) -> ConditionState:
    return ConditionState(
        "False",
        Reason.PENDING,
        f"taking over from keepalived-operator: {len(takeover.new)} of {len(takeover.nodes)} nodes are done; {action}; "
        "until all nodes are done, changes reach the new pods only",
    )


def _deletion_after(takeover: Takeover, last: ReplacedPod, deletion: PodRemoval) -> PodRemoval | None:
    """
    What may be deleted after the *last* pod: the same pod again, or nothing, until the watch shows that it is gone.

    Without this, *deletion* may choose a pod only because the watch still shows the last one: that would be one too
    many.
    """
    running = (pod.metadata for pod in takeover.old.values() if not pod.metadata.deletion_timestamp)
    shown = next((each for each in running if each.uid == last.uid), None)
    if shown is None:
        return deletion
    return None if last.is_done else PodRemoval(shown.key, shown.uid, takeover.group.key)


def _next_deletion(takeover: Takeover, config_hash: str, model: Model | None) -> tuple[PodRemoval | None, str]:
    """The pod to delete now, or None; and the current or pending step, as text."""
    if problem := _obstacle(takeover, config_hash, model):
        return None, problem
    candidates = takeover.ready_old
    if not candidates:
        return _next_orphan(takeover, model)
    node = min(_idle(takeover) or candidates, key=lambda name: (takeover.held(name), *_address(takeover, name)))
    return _delete(takeover, node), f"replacing the pod on {node}"


def _next_orphan(takeover: Takeover, model: Model | None) -> tuple[PodRemoval | None, str]:
    """The same for old pods that no new pod follows: each is deleted when it no longer has to hold anything."""
    fields = placement_fields(takeover.group.spec)
    if not takeover.orphaned:
        return None, f"waiting for {few(list(takeover.old))}, which is not ready: its old pod is deleted when it is"
    for node in sorted(takeover.orphaned):
        pod = takeover.old[node].metadata
        if pod.deletion_timestamp:
            return None, f"waiting for the old pod on {node} to end"
        if kept := _kept_instances(takeover, node, model):
            return None, (
                f"the old pod on {node}, which is outside the group ({fields}), holds {few(kept)}, and no new pod can "
                "take that over: add a node that can, or accept an outage with: "
                f"kubectl delete pod {pod.name} -n {pod.namespace}"
            )
    node = min(takeover.orphaned)
    return _delete(takeover, node), f"deleting the old pod on {node}, which is outside the group ({fields})"


def _kept_instances(takeover: Takeover, node: str, model: Model | None) -> list[str]:
    """The instances that the old pod on *node* has to keep. Without an answer it may hold all of them."""
    state = takeover.states.get(node)
    if not takeover.leaders:
        return [each.name for each in takeover.instances]
    holds = {(each.router_id, each.family) for each in takeover.instances_on(node) if each.state == MASTER}
    taken = {each.name for name in takeover.new for each in takeover.instances_on(name) if each.state == MASTER}
    return [
        each.name
        for each in (model.instances if model else ())
        if (state is None or not state.running or (each.router_id, each.family) in holds)
        and not (each.name in taken or _stays(each))
    ]


def _delete(takeover: Takeover, node: str) -> PodRemoval:
    pod = takeover.old[node]
    return PodRemoval(pod.metadata.key, pod.metadata.uid, takeover.group.key)


# --- what has to be waited for ----------------------------------------------------------------------------------------
def _obstacle(takeover: Takeover, config_hash: str, model: Model | None) -> str:
    """Why no pod may be deleted now; "" if one may."""
    if not takeover.approved:
        return (
            f'paused: annotate the group with {names.TAKE_OVER_ANNOTATION}: "true" again to go on, or start '
            "keepalived-operator to go back"
        )
    if model is None:
        return "there is no configuration"
    if lost := stranded(model, takeover.instances):
        return (
            f"the VIPs of {few(lost)} would be lost on the way: spreadvips, instances.mode or blacklistRouterIDs was "
            "changed after keepalived-operator stopped; change it back until all nodes are done"
        )
    if any(each.authenticated for each in takeover.instances) and not has_password(takeover.group.spec):
        return "the old pods use a password: set spec.passwordAuth as it was"
    if unanswered := takeover.unanswered:
        return f"asking {few(unanswered)} which VIPs they hold"
    return _unfinished(takeover, config_hash) or _untaken(takeover, model)


def _unfinished(takeover: Takeover, config_hash: str) -> str:
    """The step that is in progress on ready nodes; "" if there is none."""
    for node in takeover.ready_nodes:
        pod = takeover.new.get(node) or takeover.old.get(node)
        if pod is None or pod.metadata.deletion_timestamp:
            return f"waiting for a new pod on {node}"
        if node in takeover.old:
            continue
        state = takeover.states.get(node)
        if not pod.is_ready or state is None:
            return f"waiting for the pod on {node}: {state.refused if state and state.refused else 'it is starting'}"
        if not takeover.leaders and (problem := _two_masters(takeover, node, state)):
            return problem
        if config_hash and state.config_hash != config_hash:
            refused = f", which it refuses: {state.refused}" if state.refused else ""
            return f"waiting for {node} to run configuration {config_hash}{refused}"
    return ""


def _two_masters(takeover: Takeover, node: str, state: NodeState) -> str:
    """An instance that has two masters: the new pod on *node* and an old pod, which do not hear each other."""
    mine = {(sight.router_id, sight.family): sight.name for sight in state.instances if sight.state == MASTER}
    for other in (*takeover.ready_old, *sorted(takeover.orphaned)):
        for sight in takeover.instances_on(other):
            identity = sight.router_id, sight.family
            if sight.state == MASTER and identity in mine:
                return (
                    f"{node} and {other} are both master of {mine[identity]}, because they do not hear each other: "
                    f"compare {names.TAKE_OVER_KEY} with {names.CONFIG_KEY} in the ConfigMap"
                )
    return ""


def _untaken(takeover: Takeover, model: Model) -> str:
    """An instance that a leader must still take over, which takes seconds; "" if there is none."""
    for instance in model.instances:
        if _stays(instance):
            continue
        leaders = [each for each in takeover.coexistence.successors(instance) if each in takeover.ready_nodes]
        states = {each: _electable_state(takeover, each, instance) for each in leaders}
        able = [each for each in leaders if states[each]]
        if able and MASTER not in states.values():
            return f"waiting for {able[0]} to hold {instance.name}"
    return ""


def _electable_state(takeover: Takeover, node: str, instance: Instance) -> str:
    """
    The state of *instance* on *node*; "" if it cannot become master together with the old pods.

    A health check, or a missing endpoint, may have lowered its priority: then it wins only after the old master goes.
    """
    sight = next((each for each in takeover.instances_on(node) if each.name == instance.name), None)
    if sight is None or sight.state == FAULT:
        return ""
    identity = instance.router_id, instance.family
    old = (each.priority for each in takeover.instances if (each.router_id, each.family) == identity)
    return sight.state if sight.state == MASTER or sight.priority > max(old, default=0) else ""


def _stays(instance: Instance) -> bool:
    return any(line.keyword in _STAYS for line in instance.lines)


# --- which pod costs least --------------------------------------------------------------------------------------------
def _idle(takeover: Takeover) -> list[str]:
    """
    The nodes whose old pod holds no VIP; none once leaders take over.

    If no old pod reports, the node with the highest address counts as the master of all instances: with equal
    priorities, keepalived decides in this way.
    """
    if takeover.leaders:
        return []
    old = takeover.ready_old
    if not any(takeover.states[node].running for node in old if node in takeover.states):
        return sorted(old, key=lambda name: _address(takeover, name))[:-1]
    return [node for node in old if takeover.held(node) == 0]


def _address(takeover: Takeover, name: str) -> tuple[int, int]:
    return next(iter(takeover.node(name).host_addresses), (0, 0))


def _is_known_to_old_pods(takeover: Takeover, name: str) -> bool:
    """Whether the old pods send to node *name*. A node that joined later hears nothing, and must not lead."""
    node = takeover.node(name)
    return all(not each.peers or node.internal_ip(each.family) in each.peers for each in takeover.instances)
