"""
The status of a group: who has which VRID, what its nodes run, and its conditions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.agent import ProblemCode
from kavip.api.cluster import Pod
from kavip.api.group import (
    GroupStatus,
    GroupVirtualIPStatus,
    InstanceStatus,
    KeepalivedGroup,
    NodesStatus,
)
from kavip.api.scheduling import fields_of
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.group.desired import Roster
from kavip.reconcile.observed.mastership import Mastership, VipOrInstance
from kavip.reconcile.observed.nodes import BACKUP, FAULT, MASTER, NodeState
from kavip.reconcile.plan import ConditionState, Unconfirmed
from kavip.reconcile.service import throttle
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot
from kavip.vrrp.instances import Instance

_MOST_INSTANCES: Final = 510
_ONE_POD: Final = re.compile(r'(?:pods|Pod) "[^"]*" is (forbidden|invalid)')  # the name changes with every attempt
_FOLDED: Final = "(combined from similar events): "
_POD_SECURITY: Final = "violates PodSecurity"
_LONGEST: Final = 1000
_WORST: Final = (FAULT, "INIT", BACKUP)


@dataclass(frozen=True, slots=True)
class View:
    """
    What a group's status is made from.

    *accepted*, the *config_hash* that it runs, who holds what (*mastership*) and what of that is told only if it lasts
    (*doubts*), the *complaint* of its DaemonSet. *taking_over*: what is to be said while pods of keepalived-operator's
    are replaced, *switching*: what of a change that all nodes make at one instant.
    """

    snapshot: Snapshot
    group: KeepalivedGroup
    roster: Roster
    states: Mapping[str, NodeState]
    pods: Sequence[Pod]
    accepted: ConditionState
    config_hash: str
    mastership: Mastership
    doubts: Mapping[str, Unconfirmed]
    complaint: str = ""
    taking_over: ConditionState | None = None
    switching: str = ""


def status_of(view: View, *, now: str) -> GroupStatus:
    """The whole status; whoever writes it sends only what has changed."""
    group, roster = view.group, view.roster
    fresh = {
        ConditionType.ACCEPTED: view.accepted,
        ConditionType.PROGRAMMED: _programmed(view),
        ConditionType.READY: _ready(view),
        **_predecessors(view.accepted),
    }
    entries = [verdict.condition(group.metadata, kind) for kind, verdict in fresh.items()]
    current = [node for node in roster.nodes if _runs(view, node.metadata.name)]
    return GroupStatus(
        conditions=conditions.merged(group.status.conditions, entries, now=now),
        router_ids=roster.router_ids or None,
        observed_generation=group.metadata.generation,
        instances=_instances(view) or None,
        virtual_ips=_virtual_ips(view) or None,
        nodes=NodesStatus(desired=len(roster.nodes), ready=len(_ready_nodes(view)), current=len(current)),
        config_hash=view.config_hash,
        metrics_port=roster.port,
    )


# --- conditions -------------------------------------------------------------------------------------------------------
def _predecessors(accepted: ConditionState) -> dict[ConditionType, ConditionState]:
    """keepalived-operator's two conditions; the one that does not hold is False, which the predecessor forgot."""
    is_fine = accepted.status == "True" or accepted.reason == Reason.DUPLICATE_DEFAULT
    return {
        ConditionType.RECONCILE_SUCCESS: ConditionState("True" if is_fine else "False", Reason.RECONCILE_SUCCEEDED, ""),
        ConditionType.RECONCILE_ERROR: ConditionState(
            "False" if is_fine else "True", Reason.RECONCILE_FAILED, "" if is_fine else accepted.message
        ),
    }


def _programmed(view: View) -> ConditionState:
    if not view.config_hash:
        return ConditionState("False", Reason.PENDING, f"no configuration yet: see {ConditionType.ACCEPTED}")
    if view.taking_over:
        return view.taking_over
    ready = [node.metadata.name for node in view.roster.nodes if node.is_ready]
    lagging = [name for name in ready if not _runs(view, name)]
    if ready and not lagging:
        if left_out := _left_out(view, ready):
            return ConditionState("False", Reason.REFUSED_BY_AGENT, left_out)
        if view.switching:
            return ConditionState("False", Reason.PENDING, view.switching)
        return ConditionState("True", Reason.PROGRAMMED, f"every node runs configuration {view.config_hash}")
    for name in lagging:
        if name in view.states and (why := view.states[name].refused):
            if view.states[name].refused_code is ProblemCode.PASSWORD_MISSING:
                return ConditionState(
                    "False", Reason.SECRET_MISSING, f"node {name}: {_secret_missing(view.group) or why}"
                )
            return ConditionState("False", Reason.REFUSED_BY_AGENT, f"node {name}: {why}")
    if view.switching:
        return ConditionState("False", Reason.PENDING, view.switching)
    progress = f"{len(ready) - len(lagging)} of {len(ready)} nodes run configuration {view.config_hash}"
    return ConditionState("False", Reason.PENDING, f"{progress}; waiting for {few(lagging) or 'nodes'}")


def _secret_missing(group: KeepalivedGroup) -> str:
    """Which Secret to make; the agent knows no names of the cluster. "" where the group asks for a password no more."""
    wanted = group.spec.password_auth
    if wanted is None or not wanted.secret_ref.name:
        return ""
    key = f"{group.metadata.namespace}/{wanted.secret_ref.name}"
    return f"Secret {key} (spec.passwordAuth) is not there, or lacks the key {wanted.secret_key}: create it"


def _left_out(view: View, ready: Sequence[str]) -> str:
    """Which instances nodes leave out, and why the first; "" where they leave out none."""
    found = sorted(
        (each.name, each.reason, node)
        for node in ready
        for each in (view.states[node].excluded if node in view.states else ())
    )
    if not found:
        return ""
    named = list(dict.fromkeys(name for name, _, _ in found))
    _, reason, node = found[0]
    return (
        f"every node runs configuration {view.config_hash} but for what it refuses: {few(named)}; node {node}: {reason}"
    )


def _ready(view: View) -> ConditionState:
    nodes = [node.metadata.name for node in view.roster.nodes]
    if not nodes:
        fields = fields_of(view.group.spec)
        return ConditionState("False", Reason.NO_NODES, f"no node matches {fields}: label one, or change it")
    missing = [name for name in nodes if name not in _ready_nodes(view)]
    if missing:
        message = f"{len(nodes) - len(missing)} of {len(nodes)} pods are ready; waiting for those on {few(missing)}"
        return ConditionState("False", Reason.PODS_NOT_READY, message + (_complaint(view) or _trouble(view)))
    if collision := _heard_collision(view) or _collision(view):
        return ConditionState("True", Reason.VRID_COLLISION, collision)
    return ConditionState("True", Reason.READY, "; ".join(("every pod is ready", *_note(view, nodes))))


def _note(view: View, nodes: Sequence[str]) -> Iterator[str]:
    """What is unusual on the first node that notes something, each with all the nodes where it is so."""
    said = {name: view.states[name].notes for name in nodes if name in view.states}
    noted = {name: [note.message for note in notes] for name, notes in said.items() if notes}
    where: dict[tuple[str, ...], list[str]] = {}
    for note in next(iter(noted.values()), []):
        where.setdefault(tuple(name for name, told in noted.items() if note in told), []).append(note)
    for same, told in where.items():
        yield f"{'node' if len(same) == 1 else 'nodes'} {few(same)}: {'; '.join(told)}"


def _complaint(view: View) -> str:
    """Why nodes have no pod, in the words of the DaemonSet, and the label that helps against Pod Security."""
    served = {pod.spec.node_name for pod in view.pods}
    if not view.complaint or all(node.metadata.name in served for node in view.roster.nodes):
        return ""  # every node has its pod: what was said before is over
    words = _ONE_POD.sub(r"pods are \1", view.complaint.removeprefix(_FOLDED)).rstrip(". ")[:_LONGEST]
    namespace, name = view.group.metadata.namespace, view.group.metadata.name
    remedy = f"; label namespace {namespace} with {names.POD_SECURITY_LABEL}=privileged"
    again = f"kubectl annotate daemonset {name} --namespace {namespace} --overwrite retried=$(date +%s)"
    return (
        f"; its DaemonSet says: {words}{remedy if _POD_SECURITY in words else ''}; "
        f"Kubernetes tries again ever more rarely, and at once after: {again}"
    )


def _trouble(view: View) -> str:
    """Why a pod does not start, the first by name; "" where none needs help."""
    for pod in sorted(view.pods, key=lambda each: each.metadata.name):
        if not pod.is_ready and not pod.metadata.deletion_timestamp and pod.trouble:
            where = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
            return f"; pod {pod.metadata.name}{where}: {pod.trouble.rstrip('. ')[:_LONGEST]}"
    return ""


def _heard_collision(view: View) -> str:
    """A VRID that somebody uses on the wire: another cluster, or what is not kavip at all."""
    found = sorted(
        (each, node.metadata.name)
        for node in view.roster.nodes
        if (state := view.states.get(node.metadata.name))
        for each in state.collisions
    )
    if not found:
        return ""
    first = found[0][0]
    nodes = list(dict.fromkeys(node for each, node in found if each.router_id == first.router_id))
    rest = len({each.router_id for each, _ in found}) - 1
    more = f" (and {rest} more)" if rest else ""
    return (
        f"VRID {first.router_id}{more} on {first.interface or view.group.spec.interface} is used by another router: "
        f"{few(nodes)} received adverts with {first.sign} for instance {first.instance}; add it to "
        "spec.blacklistRouterIDs of one of the two, so that its VIPs move to another VRID"
    )


def _collision(view: View) -> str:
    """
    A VRID that a group of another segment uses on the same interface.

    Groups without a segment have always been allowed to do that; it is wrong only where they are on one network.
    """
    group = view.group
    ids = set(view.roster.assignment.ids.values())
    for key, other in sorted(view.snapshot.groups.items()):
        if key == group.key or other.segment == group.segment or (group.spec.segment and other.spec.segment):
            continue
        same = ids & set((other.status.router_ids or {}).values())
        if same and other.spec.interface == group.spec.interface:
            return (
                f"VRID {min(same)} is used by KeepalivedGroup {key} on {group.spec.interface} too: give both groups "
                "the same spec.segment, or different ones if they are on different networks"
            )
    return ""


def _runs(view: View, node: str) -> bool:
    state = view.states.get(node)
    return state is not None and bool(view.config_hash) and state.config_hash == view.config_hash


def _ready_nodes(view: View) -> set[str]:
    wanted = {node.metadata.name for node in view.roster.nodes}
    return wanted & {pod.spec.node_name for pod in view.pods if pod.is_ready and not pod.metadata.deletion_timestamp}


# --- what the agents see ----------------------------------------------------------------------------------------------
def subjects_of(group: KeepalivedGroup | None, roster: Roster) -> Iterator[tuple[str, VipOrInstance]]:
    """What the status tells the master of, by the name under which it is doubted: instances, and the group's VIPs."""
    for instance in roster.model.instances[:_MOST_INSTANCES] if roster.model else ():
        yield f"instance {instance.name}", instance.name
    for address in group.virtual_ips if group else ():
        yield f"VIP {address}", address


@dataclass(frozen=True, slots=True)
class _Seat:
    """Where a VIP or an instance is, and in which state."""

    node: str
    state: str


def _seat(view: View, name: str, subject: VipOrInstance, before: _Seat | None) -> _Seat:
    """Where *subject* is; *before* as long as what is seen now may be a passing moment."""
    held, doubt = view.mastership.master_of(subject), view.doubts.get(name)
    if held.reason is None or (doubt is not None and throttle.seconds_to_confirm(doubt, view.mastership) > 0):
        return before or _Seat("", Reason.UNKNOWN)
    if held.reason == Reason.MASTER:
        return _Seat(held.nodes[0], MASTER)
    return _Seat("", held.reason)


def _instances(view: View) -> list[InstanceStatus]:
    """MASTER where one node is; the reason of the trouble where two are; else the worst that a node reports."""
    worst: dict[str, str] = {}
    for node in view.roster.nodes:
        state = view.states.get(node.metadata.name)
        for sight in state.instances if state else ():
            worst[sight.name] = min(sight.state, worst.get(sight.name, sight.state), key=_rank)
    before = {each.name: _Seat(each.node, each.state) for each in view.group.status.instances or ()}
    model = view.roster.model.instances if view.roster.model else ()
    return [_instance(view, each, before.get(each.name), worst.get(each.name, "")) for each in model[:_MOST_INSTANCES]]


def _instance(view: View, instance: Instance, before: _Seat | None, worst: str) -> InstanceStatus:
    seat = _seat(view, f"instance {instance.name}", instance.name, before or _Seat("", worst))
    if seat.state in throttle.UNCERTAIN:
        seat = _Seat("", worst)
    return InstanceStatus(
        name=instance.name,
        router_id=instance.router_id,
        family=instance.family,
        node=seat.node,
        state=seat.state,
        virtual_ips=len(instance.virtual_ips),
    )


def _rank(state: str) -> int:
    return _WORST.index(state) if state in _WORST else len(_WORST)


def _virtual_ips(view: View) -> list[GroupVirtualIPStatus]:
    before = {each.address: _Seat(each.node, each.state) for each in view.group.status.virtual_ips or ()}
    result = []
    for address in view.group.virtual_ips:
        seat = _seat(view, f"VIP {address}", address, before.get(str(address)))
        result.append(GroupVirtualIPStatus(address=str(address), node=seat.node, state=seat.state))
    return result
