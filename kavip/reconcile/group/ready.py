"""
The condition ``Ready`` of a group: whether a ready pod runs on every node, and why not.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from kavip import names
from kavip.api.cluster import Node, Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.scheduling import placement_fields
from kavip.names import Reason
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.plan import ConditionState
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot
from kavip.vrrp.drain import drain_signal, undrained_among
from kavip.vrrp.groupspec import vrrp_interface_of
from kavip.vrrp.instances import Model

_POD_NAME: Final = re.compile(r'(?:pods|Pod) "[^"]*" is (forbidden|invalid)')  # it changes with every attempt
_COMBINED: Final = "(combined from similar events): "
_POD_SECURITY: Final = "violates PodSecurity"
_LONGEST: Final = 1000


def ready(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    desired: Desired,
    *,
    pods: Sequence[Pod],
    mastership: Mastership,
    failure: str,
) -> ConditionState:
    """The verdict; *failure*: why the DaemonSet cannot create pods."""
    states = mastership.states
    nodes = [node.metadata.name for node in desired.nodes]
    if not nodes:
        fields = placement_fields(group.spec)
        return ConditionState("False", Reason.NO_NODES, f"no node matches {fields}: label a node, or change the field")
    with_pod = nodes_with_ready_pod(desired.nodes, pods)
    if missing := [name for name in nodes if name not in with_pod]:
        message = f"{len(nodes) - len(missing)} of {len(nodes)} pods are ready; waiting for those on {few(missing)}"
        cause = _creation_failure(group, nodes, pods, failure) or _start_failure(pods)
        drained = "".join(f"; {note}" for note in _drained(group, desired))
        return ConditionState("False", Reason.PODS_NOT_READY, message + cause + drained)
    if collision := (
        _heard_collision(group, nodes, states)
        or _group_collision(snapshot, group, desired)
        or _platform_collision(snapshot, group, desired)
    ):
        return ConditionState("True", Reason.VRID_COLLISION, collision)
    notes = (
        *_conflicts(group, mastership),
        *_drained(group, desired),
        *_spread(desired),
        *_balance(group, desired),
        *_port(group, desired),
        *_warnings(nodes, states),
    )
    return ConditionState("True", Reason.READY, "; ".join(("every pod is ready", *notes)))


def nodes_with_ready_pod(nodes: Collection[Node], pods: Sequence[Pod]) -> set[str]:
    """The names of those of *nodes* that have a ready pod."""
    found = {pod.spec.node_name for pod in pods if pod.is_ready and not pod.metadata.deletion_timestamp}
    return found & {node.metadata.name for node in nodes}


# --- pods -------------------------------------------------------------------------------------------------------------
def _creation_failure(group: KeepalivedGroup, nodes: Sequence[str], pods: Sequence[Pod], failure: str) -> str:
    """Why nodes have no pod, by the DaemonSet's Event; with the label that Pod Security needs."""
    if not failure or {pod.spec.node_name for pod in pods}.issuperset(nodes):
        return ""  # an old Event: every node has its pod
    namespace, name = group.metadata.namespace, group.metadata.name
    cause = _POD_NAME.sub(r"pods are \1", failure.removeprefix(_COMBINED)).rstrip(". ")[:_LONGEST]
    remedy = f"; label namespace {namespace} with {names.POD_SECURITY_LABEL}=privileged"
    retry = f"kubectl annotate daemonset {name} --namespace {namespace} --overwrite retried=$(date +%s)"
    return (
        f"; the DaemonSet reports: {cause}{remedy if _POD_SECURITY in cause else ''}; "
        f"Kubernetes retries at growing intervals, and at once after: {retry}"
    )


def _start_failure(pods: Sequence[Pod]) -> str:
    """Why the first pod, by name, does not start and needs help; "" if none does."""
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        if not pod.is_ready and not pod.metadata.deletion_timestamp and pod.problem:
            where = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
            return f"; pod {pod.metadata.name}{where}: {pod.problem.rstrip('. ')[:_LONGEST]}"
    return ""


# --- where VIPs go ----------------------------------------------------------------------------------------------------
def _drained(group: KeepalivedGroup, desired: Desired) -> Iterator[str]:
    """The drained nodes, those that keep their VIPs all the same, and why."""
    signals = {node.metadata.name: drain_signal(node, group.spec) for node in desired.nodes}
    signals = {name: signal for name, signal in signals.items() if signal}
    if not signals:
        return
    yield f"drained: {few([f'{name} ({signal})' for name, signal in signals.items()])}"
    final = desired.configuration.final
    if len(signals) == len(desired.nodes):
        last = sorted(signals.keys() - dict(final.drained if final else ()).keys())
        yield f"all nodes are drained, so {few(last)} {'keeps its' if len(last) == 1 else 'keep their'} VIPs"
    for needs, kept in sorted(_kept(final).items()) if final else ():
        nodes = f"{few(sorted(kept))} {'keeps' if len(kept) == 1 else 'keep'}"
        yield f"no undrained node has {needs}, so {nodes} the VIPs that need it"


def _kept(model: Model) -> Mapping[str, frozenset[str]]:
    """
    The drained nodes that keep VIPs because no undrained node can hold these, by what the undrained ones do not have.
    """
    turns, found = dict(model.drained), dict[str, frozenset[str]]()
    lacked = {interface for _, interface in model.lacking}
    kinds = {(each.interfaces & lacked, each.family): each for each in model.instances} if turns else {}
    for (interfaces, family), instance in kinds.items():
        nodes = {node for node, _ in instance.priorities}
        sending = nodes & {node for node, _ in instance.sources} if instance.sources else nodes
        able = sending - {node for node, interface in model.lacking if interface in interfaces}
        if kept := undrained_among(able, turns) & turns.keys():
            needs = [*sorted(interfaces), *(() if sending - turns.keys() else (f"an IPv{family} address",))]
            found[" and ".join(needs)] = found.get(" and ".join(needs), frozenset()) | kept
    return found


def _spread(desired: Desired) -> Iterator[str]:
    """The VIPs that move one after the other, because an earlier version of kavip did not spread them."""
    if unspread := desired.configuration.final.unspread if desired.configuration.final else ():
        yield f"spreading the VIPs of Services with spreadvips: {_moves(unspread)}"


def _balance(group: KeepalivedGroup, desired: Desired) -> Iterator[str]:
    """How far the group is that asks for balance."""
    if group.metadata.annotation(names.REBALANCE_ANNOTATION) != "true":
        return
    if group.spec.no_preempt:
        yield f"with noPreempt {names.REBALANCE_ANNOTATION} moves nothing"
    balance = desired.configuration.final.balance if desired.configuration.final else None
    if balance is None:
        return
    what = f"{balance.highest} of {balance.units} instances"
    if balance.moves:
        yield f"rebalancing: one node ranks first for {what}; {_moves(balance.moves)}"
    elif balance.highest > balance.most:
        yield f"as balanced as preferences and spread allow: one node ranks first for {what}"
    else:
        yield f"balanced: no node ranks first for more than {what}"


def _port(group: KeepalivedGroup, desired: Desired) -> Iterator[str]:
    """That a running group keeps its port, because another one replaces its pods: so an owner of the group decides."""
    if group.spec.metrics_port is None and desired.port < desired.first_port:
        yield (
            f"its agents keep port {desired.port}: agent.port {desired.first_port} is for new groups; set "
            f"spec.metricsPort to {desired.first_port} or higher to change it, which replaces the pods"
        )


def _moves(moves: Sequence[tuple[str, str]]) -> str:
    """How many *moves* are left, and what the next one waits for."""
    unit, node = moves[0]
    return f"moves left: {len(moves)}, next {unit} to {node}, when every instance is on its first node"


# --- the VIPs of the group itself -------------------------------------------------------------------------------------
def _conflicts(group: KeepalivedGroup, mastership: Mastership) -> Iterator[str]:
    """The VIPs in ``spec.virtualIPs`` that another machine has; those of Services are in their own conditions."""
    found = ((each, foreign) for each in sorted(group.virtual_ips) if (foreign := mastership.foreign_claim(each)))
    for address, foreign in islice(found, 1):
        what = "is held, and another" if foreign.claim.is_held else "is not announced: another"
        yield (
            f"virtual IP {address} {what} machine on the LAN has it, {foreign.claim.hardware}, as node "
            f"{foreign.node} hears on {foreign.claim.interface}"
        )


# --- warnings ---------------------------------------------------------------------------------------------------------
def _warnings(nodes: Sequence[str], states: Mapping[str, NodeState]) -> Iterator[str]:
    """The warnings of the first node that has any, each with all the nodes that report it."""
    reported = {name: [each.message for each in states[name].notes] for name in nodes if name in states}
    reported = {name: messages for name, messages in reported.items() if messages}
    by_nodes: dict[tuple[str, ...], list[str]] = {}
    for warning in next(iter(reported.values()), []):
        by_nodes.setdefault(tuple(name for name, each in reported.items() if warning in each), []).append(warning)
    for same, warnings in by_nodes.items():
        yield f"{'node' if len(same) == 1 else 'nodes'} {few(same)}: {'; '.join(warnings)}"


# --- VRIDs that collide -----------------------------------------------------------------------------------------------
def _heard_collision(group: KeepalivedGroup, nodes: Sequence[str], states: Mapping[str, NodeState]) -> str:
    """A VRID that another router uses: of another cluster, or not of kavip at all; "" for none."""
    found = sorted((each, name) for name in nodes if name in states for each in states[name].collisions)
    if not found:
        return ""
    first = found[0][0]
    where = list(dict.fromkeys(name for each, name in found if each.router_id == first.router_id))
    rest = len({each.router_id for each, _ in found}) - 1
    more = f" (and {rest} more)" if rest else ""
    return (
        f"VRID {first.router_id}{more} on {first.interface or vrrp_interface_of(group.spec)} is used by another "
        f"router: {few(where)} received adverts with {first.sign} for instance {first.instance}; add it to "
        "spec.blacklistRouterIDs of one of the two, so that its VIPs move to another VRID"
    )


def _group_collision(snapshot: Snapshot, group: KeepalivedGroup, desired: Desired) -> str:
    """
    A VRID that a group of another segment uses on the same interface of VRRP; "" for none.

    Groups without a segment may do that. It is wrong only where both are on one network.
    """
    ids, interface = set(desired.router_ids.assigned.values()), vrrp_interface_of(group.spec)
    for key, other in sorted(snapshot.groups.items()):
        if key == group.key or other.segment == group.segment or (group.spec.segment and other.spec.segment):
            continue
        same = ids & set((other.status.router_ids or {}).values())
        if same and vrrp_interface_of(other.spec) == interface:
            return (
                f"VRID {min(same)} is used by KeepalivedGroup {key} on {interface} too: give both groups "
                "the same spec.segment, or different ones if they are on different networks"
            )
    return ""


def _platform_collision(snapshot: Snapshot, group: KeepalivedGroup, desired: Desired) -> str:
    """A VRID that OpenShift's own keepalived uses too: the group had it before kavip knew; "" for none."""
    if not (same := snapshot.platform_router_ids(group).intersection(desired.router_ids.assigned.values())):
        return ""
    numbers = ", ".join(map(str, sorted(same)))
    return (
        f"VRID {numbers} is used by OpenShift's own keepalived: add it to spec.blacklistRouterIDs, so that its VIPs "
        "move to another VRID, or choose another spec.segment if the group is on another network"
    )
