"""
The condition ``Programmed`` of a group: whether every node runs its configuration, and why not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kavip.api.agent import ProblemCode
from kavip.api.agentconfig import ReturnRoute
from kavip.api.group import KeepalivedGroup
from kavip.names import ConditionType, Reason
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.plan import ConditionState
from kavip.reconcile.rollout.switchover import Switchover
from kavip.reconcile.text import few, left_out, unrouted

_CONFLICT: Final = ProblemCode.ADDRESS_CONFLICT


def programmed(
    group: KeepalivedGroup,
    desired: Desired,
    *,
    config_hash: str,
    states: Mapping[str, NodeState],
    takeover: ConditionState | None,
    switchover: Switchover | None,
) -> ConditionState:
    """
    The verdict for the configuration with *config_hash*, "" for none, by the *states* of the nodes.

    *takeover*: the verdict while pods of keepalived-operator are replaced. *switchover*: what is published, and which
    change of it waits until all nodes make it at one instant.
    """
    if not config_hash:
        return ConditionState("False", Reason.PENDING, f"no configuration yet: see {ConditionType.ACCEPTED}")
    if takeover:
        return takeover
    ready = [node.metadata.name for node in desired.nodes if node.is_ready]
    lagging = [name for name in ready if not runs(states, name, config_hash)]
    if ready and not lagging:
        interfaces = desired.members.pool_interfaces
        if switchover:  # until a switch, nodes run what pools named before
            interfaces = interfaces.union(switchover.published.current.links.interfaces)
        if message := _exclusions(ready, states, config_hash, interfaces):
            return ConditionState("False", Reason.REFUSED_BY_AGENT, message)
        if switchover and switchover.message:
            return _not_switched(group, ready, states, message=switchover.message)
        if desired.router_ids.unavailable:
            return ConditionState("False", Reason.PENDING, "; ".join(desired.router_ids.unavailable))
        notes = [f"every node runs configuration {config_hash}", *_left_out(ready, states, interfaces)]
        notes += _unrouted(ready, states, desired.links.routes)
        return ConditionState("True", Reason.PROGRAMMED, "; ".join(notes))
    if refusal := _first_refusal(group, lagging, states):
        return refusal
    if switchover and switchover.message:
        return _not_switched(group, ready, states, message=switchover.message)
    progress = f"{len(ready) - len(lagging)} of {len(ready)} nodes run configuration {config_hash}"
    return ConditionState(
        "False", Reason.PENDING, f"{progress}; waiting for {few(lagging) or 'nodes'}", is_progress=True
    )


def runs(states: Mapping[str, NodeState], node: str, config_hash: str) -> bool:
    """Whether *node* runs the configuration with *config_hash*; no node runs ""."""
    state = states.get(node)
    return state is not None and bool(config_hash) and state.config_hash == config_hash


def _first_refusal(
    group: KeepalivedGroup, nodes: Sequence[str], states: Mapping[str, NodeState]
) -> ConditionState | None:
    for name in nodes:
        if name in states and (refused := states[name].refused):
            if states[name].refused_code is ProblemCode.PASSWORD_MISSING:
                return ConditionState(
                    "False", Reason.SECRET_MISSING, f"node {name}: {_missing_secret(group) or refused}"
                )
            return ConditionState("False", Reason.REFUSED_BY_AGENT, f"node {name}: {refused}")
    return None


def _not_switched(
    group: KeepalivedGroup, nodes: Sequence[str], states: Mapping[str, NodeState], *, message: str
) -> ConditionState:
    """The verdict while a switch waits, as *message* says; kubelet may not have mounted the Secret yet."""
    lacks = any(states[name].next_refused_code is ProblemCode.PASSWORD_MISSING for name in nodes if name in states)
    wanted = group.spec.password_auth
    if not lacks or wanted is None:
        return ConditionState("False", Reason.PENDING, message)
    secret = f"{group.metadata.namespace}/{wanted.secret_ref.name}, key {wanted.secret_key}"
    return ConditionState("False", Reason.SECRET_MISSING, f"{message}; it is Secret {secret}")


def _left_out(nodes: Sequence[str], states: Mapping[str, NodeState], interfaces: frozenset[str]) -> Iterator[str]:
    """Which of *nodes* hold no VIPs on which of *interfaces*, because they lack it."""
    for interface in sorted(interfaces):
        lacking = [node for node in nodes if node in states and interface in states[node].missing]
        if lacking:
            yield left_out(interface, lacking)


def _unrouted(nodes: Sequence[str], states: Mapping[str, NodeState], routes: Iterable[ReturnRoute]) -> Iterator[str]:
    """Which of *nodes* do not route replies as *routes* want; an earlier agent gives no reason among its warnings."""
    for route in routes:
        there = [node for node in nodes if node in states and route.interface not in states[node].missing]
        if lacking := [node for node in there if route.pool not in states[node].routed]:
            yield (
                f"{unrouted(route.pool, lacking)}: see {ConditionType.READY}, or replace pods with an agent of an "
                "earlier kavip"
            )


def _missing_secret(group: KeepalivedGroup) -> str:
    """Which Secret to create, because agents do not report its name; "" if the group has no password any more."""
    wanted = group.spec.password_auth
    if wanted is None or not wanted.secret_ref.name:
        return ""
    key = f"{group.metadata.namespace}/{wanted.secret_ref.name}"
    return f"Secret {key} (spec.passwordAuth) does not exist, or has no key {wanted.secret_key}: create it"


def _exclusions(
    nodes: Sequence[str], states: Mapping[str, NodeState], config_hash: str, interfaces: frozenset[str]
) -> str:
    """
    The instances that *nodes* exclude, and the reason of the first; "" for none.

    That a node lacks one of *interfaces*, which pools name, is no fault.
    """
    excluded = ((node, each) for node in nodes if node in states for each in states[node].excluded)
    # the configuration is right where another machine has a VIP: the Service reports that
    faulty = ((node, each) for node, each in excluded if each.code is not _CONFLICT)
    found = sorted((each.name, each.reason, node) for node, each in faulty if each.interface not in interfaces)
    if not found:
        return ""
    instances = list(dict.fromkeys(name for name, _, _ in found))
    _, reason, node = found[0]
    return f"nodes exclude {few(instances)} from configuration {config_hash}; node {node}: {reason}"
