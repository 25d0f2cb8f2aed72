"""
What a group is to run: its members and nodes, their VRIDs, its port, the model and its text.

A VRID is rendered only once it stands in ``status.routerIDs``, so that no node ever runs one that could be forgotten.
A Service that has just come is therefore left out until its VRID is persisted; all others are served meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.agent import LocalTrack
from kavip.api.cluster import Node
from kavip.api.group import GroupStatus, KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.errors import UnsafeValue
from kavip.names import Condition, Reason
from kavip.reconcile import vrids
from kavip.reconcile.group.endpoints import locals_of, most_bytes
from kavip.reconcile.group.sizing import Fitted, fit
from kavip.reconcile.observed import neighbours as others
from kavip.reconcile.observed.neighbours import NOWHERE, Elsewhere
from kavip.reconcile.plan import ReconcileOptions, Reservation
from kavip.reconcile.rollout.peers import Scene, is_over, peers_of
from kavip.snapshot import Snapshot
from kavip.vrrp import config, instances, keys, routerids
from kavip.vrrp.coexistence import Coexistence
from kavip.vrrp.config import Config
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.members import Member, Peer, member_of
from kavip.vrrp.routerids import Assignment
from kavip.vrrp.running import RunningInstance, running_instances
from kavip.vrrp.sharding import Shards, shard_count, shard_of
from kavip.vrrp.staging import stage

_ALONE: Final = Coexistence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """
    One group, worked out.

    *is_settled*: no VRID that is in use changes, and the port is persisted, so that objects may be written. *model* and
    *config* may roll from node to node; *next* is what all nodes are to switch to, where that is another. They are None
    where *refusal* says why. *left_out*: by Service, why the text has no room for it, or waits for other groups, where
    *is_waiting*. *is_rolling*: nodes come, go or change their address, and wait for others to know.
    *staying*: nodes that keep a pod, though none would be made for them any more.
    """

    members: Shards
    nodes: tuple[Node, ...]
    assignment: Assignment
    router_ids: dict[str, int]
    port: int
    is_settled: bool
    model: Model | None
    config: Config | None
    next: Config | None
    refusal: Refusal | None
    left_out: Mapping[str, Refusal]
    is_rolling: bool = False
    is_waiting: bool = False
    followed: tuple[LocalTrack, ...] = ()
    staying: tuple[Node, ...] = ()

    @property
    def crew(self) -> tuple[Node, ...]:
        """All nodes that run the group for as long as can be seen."""
        return (*self.nodes, *self.staying)

    @property
    def reserved(self) -> Reservation:
        """What no other group may take from now on."""
        runs = {instance.router_id for instance in self.model.instances} if self.model else set()
        return Reservation(frozenset({*self.assignment.ids.values(), *runs}), self.port)


def roster_of(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    *,
    reserved: Mapping[str, Reservation],
    running: str,
    options: ReconcileOptions,
    scene: Scene | None = None,
    coexistence: Coexistence = _ALONE,
    elsewhere: Elsewhere = NOWHERE,
) -> Roster:
    """
    Work *group* out. *running* is the text that its nodes run now, as its ConfigMap says.

    *scene*: what its nodes do now. *elsewhere*: what other groups run. *coexistence*: what it owes to pods that ran
    before kavip's; the VRIDs in their text are theirs.
    """
    memory = snapshot.memory(group.key)
    held, identities = group.status.router_ids or {}, running_instances(running, memory)
    members, waiting = others.withhold(_members(snapshot, group), identities, elsewhere)
    nodes = snapshot.group_nodes(group)
    taken = vrids.taken(snapshot, group, reserved) | _used(snapshot, group, members=members, elsewhere=elsewhere)
    assignment = _assignment(group, members, identities, taken=taken, coexistence=coexistence)
    port = port_of(snapshot, group, reserved=reserved, first=options.agent_port)
    persisted = {key: number for key, number in assignment.ids.items() if held.get(key) == number}
    staying = _staying(snapshot, group, scene)
    crew = (*nodes, *staying)
    peers = peers_of(crew, scene, seeds=[instances.seed_of(group.key, key) for key in persisted])
    fitted, refusal = _fitted(
        snapshot, group, members=members, peers=peers, router_ids=persisted, running=identities, coexistence=coexistence
    )
    ahead = None
    if fitted and not refusal:
        ahead = _ahead(
            group,
            fitted,
            identities,
            members=members,
            peers=peers,
            assignment=assignment,
            persisted=persisted,
            coexistence=coexistence,
        )
    return Roster(
        members=members,
        nodes=nodes,
        assignment=assignment,
        router_ids=keys.status_router_ids(group, members, assignment.ids, held=held),
        port=port,
        is_settled=all(key in persisted or key not in held for key in assignment.ids) and _keeps(group, port),
        model=ahead.model if ahead else fitted.model if fitted else None,
        config=ahead.config if ahead else None,
        next=ahead.next if ahead else None,
        refusal=refusal,
        left_out={**(fitted.left_out if fitted else {}), **waiting},
        is_rolling=not is_over(crew, peers, scene),
        is_waiting=bool(waiting),
        followed=locals_of(snapshot, group, fitted.model) if fitted else (),
        staying=staying,
    )


def _used(snapshot: Snapshot, group: KeepalivedGroup, *, members: Shards, elsewhere: Elsewhere) -> frozenset[int]:
    """The VRIDs that others' nodes run still, where *group* needs another one."""
    held = group.status.router_ids or {}
    if held.keys() >= set(keys.wanted_keys(group, members)):
        return frozenset()
    return elsewhere.router_ids(snapshot.neighbours(group)) - set(held.values())


def _staying(snapshot: Snapshot, group: KeepalivedGroup, scene: Scene | None) -> tuple[Node, ...]:
    if scene is None:
        return ()
    members = {node.metadata.name for node in snapshot.group_nodes(group)}
    return tuple(snapshot.nodes[name] for name in sorted((snapshot.keeping_nodes(group) & scene.pods) - members))


def _assignment(
    group: KeepalivedGroup,
    members: Shards,
    running: Mapping[str, RunningInstance],
    *,
    taken: frozenset[int],
    coexistence: Coexistence,
) -> Assignment:
    """The VRIDs of *members*: those that stand in the status, those of old pods before them, and new ones."""
    wanted = keys.wanted_keys(group, members)
    return routerids.assign(
        coexistence.held_router_ids(group.status.router_ids or {}),
        wanted,
        blacklist=routerids.blacklist_of(group.spec),
        taken=taken | coexistence.reserved(wanted),
        avoid=frozenset(each.identity.router_id for each in running.values()),
    )


def port_of(snapshot: Snapshot, group: KeepalivedGroup, *, reserved: Mapping[str, Reservation], first: int) -> int:
    """
    The port of the group's agents: the one it names, the one it has, or the first that is free on its nodes.

    Of two groups found with the same port the older one keeps it.
    """
    if group.spec.metrics_port:
        return group.spec.metrics_port
    taken: set[int] = set()
    firm: set[int] = set()
    for other in snapshot.companions(group):
        ports = {other.spec.metrics_port or other.status.metrics_port, reserved.get(other.key, Reservation()).port}
        taken |= ports
        if other.spec.metrics_port or other.metadata.age_key < group.metadata.age_key:
            firm |= ports
    held = group.status.metrics_port
    if held and held not in firm:
        return held
    return next(port for port in range(first, 2**16) if port not in taken)


def _keeps(group: KeepalivedGroup, port: int) -> bool:
    return port in (group.spec.metrics_port, group.status.metrics_port) or _is_pruned(group.status)


def _is_pruned(status: GroupStatus) -> bool:
    """Whether the definition is keepalived-operator's: what was written beside the condition is not there."""
    return conditions.find(status.conditions, Condition.PROGRAMMED) is not None and not status.observed_generation


def _members(snapshot: Snapshot, group: KeepalivedGroup) -> Shards:
    """The Services that the group serves, each with the VIPs that are its own to hold here."""
    count = shard_count(group)

    def make(each: Service) -> Member | None:
        return member_of(each, group) if snapshot.allows(group, each.metadata.namespace) else None

    made = snapshot.derived(group.key, group.spec, make, lambda key: shard_of(key, count))
    found: dict[Address, frozenset[str] | None] = {}  # once for each address, however many share it
    members = Shards(group.key, count, made, snapshot.memory(group.key))
    return members.map(lambda each: _own(snapshot, group.key, each, found), snapshot.ledger.disputing())


def _own(snapshot: Snapshot, group: str, member: Member, found: dict[Address, frozenset[str] | None]) -> Member:
    for address in member.addresses:
        if address not in found:
            found[address] = _holders(snapshot, group, address)
    mine = tuple(each for each in member.addresses if (may := found[each]) is None or member.key in may)
    return member if mine == member.addresses else replace(member, addresses=mine)


def _holders(snapshot: Snapshot, group: str, address: Address) -> frozenset[str] | None:
    """
    The Services with which *address* may run in *group*; None: all that have it.

    None of them where a node or another group has it as its own, and only those that are older than the first Service
    of another group: the same VIP in two groups would be on two nodes at once.
    """
    owner = snapshot.ledger.owner(address)
    if owner:
        return None if owner == f"{names.KEEPALIVED_GROUP} {group}" else frozenset()
    older: set[str] = set()
    for terms in snapshot.ledger.claims.holders(address) or snapshot.ledger.claims.claimants(address):
        rival = snapshot.services.get(terms.key)
        if rival is not None and snapshot.group_of(rival) not in (None, group):
            return frozenset(older)
        older.add(terms.key)
    return None


def _fitted(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    *,
    members: Shards,
    peers: Sequence[Peer],
    router_ids: Mapping[str, int],
    running: Mapping[str, RunningInstance],
    coexistence: Coexistence,
) -> tuple[Fitted | None, Refusal | None]:
    anchors = {name: each.identity.anchor.address for name, each in running.items()}
    memory = members.memory

    def build(kept: Iterable[Member]) -> tuple[Model, Config]:
        model = instances.model_of(group, kept, peers, router_ids, anchors=anchors, memory=memory)
        model = coexistence.adapt(model, peers)
        return model, config.render(model, beside=most_bytes(snapshot, group, model), memory=memory)

    try:
        fitted = fit(members, build)
    except UnsafeValue as error:
        return None, Refusal.of(Reason.INVALID, error)
    return fitted, fitted.config.oversized


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What may roll from node to node, and what all nodes are to switch to; None where that is the same."""

    model: Model
    config: Config
    next: Config | None


def _ahead(
    group: KeepalivedGroup,
    fitted: Fitted,
    running: Mapping[str, RunningInstance],
    *,
    members: Shards,
    peers: Sequence[Peer],
    assignment: Assignment,
    persisted: Mapping[str, int],
    coexistence: Coexistence,
) -> _Ahead:
    """
    How to get from what is *running* to the *fitted* model; beside old pods that is decided by them.

    What is to move to an instance whose VRID is not *persisted* yet stays where it runs.
    """
    wanted = fitted.model
    if coexistence.old:
        return _Ahead(wanted, fitted.config, None)
    kept = members.map(lambda _: None, fitted.left_out.keys())
    goal = wanted
    if persisted.keys() != assignment.ids.keys():
        anchors = {name: each.identity.anchor.address for name, each in running.items()}
        goal = instances.model_of(group, kept, peers, assignment.ids, anchors=anchors, memory=members.memory)
        goal = coexistence.adapt(goal, peers)
    held = stage(goal, running, group=group, members=kept, peers=peers, memory=members.memory)
    if held is wanted:
        return _Ahead(wanted, fitted.config, None)
    held = coexistence.adapt(held, peers)
    there = tuple(each for each in held.instances if each.name in running or _key_of(each) in persisted)
    if there == wanted.instances:
        return _Ahead(wanted, fitted.config, None)
    model = replace(wanted, instances=there)
    text = config.render(model, memory=members.memory)
    is_whole = _addresses(goal) & frozenset[Address]().union(*(each.carried for each in running.values()))
    return _Ahead(model, text, fitted.config if is_whole <= _addresses(wanted) else None)


def _key_of(instance: Instance) -> str:
    return keys.unit_name(instance.name, instance.family)


def _addresses(model: Model) -> frozenset[Address]:
    return frozenset[Address]().union(*(each.carried for each in model.instances))
