"""
What a group should run: its members and nodes, their VRIDs, the port of its agents, and its configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.agentconfig import LocalTrack
from kavip.api.cluster import Node
from kavip.api.group import GroupStatus, KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.names import ConditionType
from kavip.reconcile import segmentids
from kavip.reconcile.group.configtemplate import apply_template
from kavip.reconcile.group.configuration import ConfigurationBuilder, GroupConfiguration
from kavip.reconcile.group.deadnodes import dead_nodes
from kavip.reconcile.group.detection import Detection, detection_of, without_unloaded
from kavip.reconcile.group.existing import Existing, awaits_agents
from kavip.reconcile.group.lackingnodes import lacking_interfaces
from kavip.reconcile.group.links import links_of
from kavip.reconcile.group.localpolicy import local_tracks
from kavip.reconcile.group.members import members_of
from kavip.reconcile.group.notation import notations_of
from kavip.reconcile.group.placedunits import placed_units
from kavip.reconcile.group.routerids import RouterIDs, assign_router_ids
from kavip.reconcile.group.successors import candidates_of
from kavip.reconcile.observed import neighbours
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.reported import reported_instances
from kavip.reconcile.plan import GroupReservation, ReconcileOptions
from kavip.reconcile.rollout.peers import is_final, next_peers, rollout_status
from kavip.reconcile.rollout.poollinks import PoolLinks
from kavip.snapshot import Snapshot
from kavip.vrrp import keys
from kavip.vrrp.configtemplate import RenderRequest
from kavip.vrrp.homes import PlacedUnits
from kavip.vrrp.members import Peer, turns_of
from kavip.vrrp.priorities import seed_of
from kavip.vrrp.running import NO_INSTANCES, RunningInstance, running_instances
from kavip.vrrp.sharding import Shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """
    What a group should run.

    *members*: its Services with their VIPs. *excluded*: by Service, why the configuration lacks it for now. *nodes*:
    those of the group. *leaving_nodes*: nodes that keep their pod, but would get no new one. *locals*: how the nodes
    learn where Services of policy ``Local`` have endpoints. *links*: what the nodes need of pools. *first_port*: where
    the ports of new groups begin.

    *is_persisted*: VRIDs and port stand in the status, so objects may use them. *is_rolling*: a node waits to join, to
    leave or to change its address. *awaits_groups*: a VIP waits until another group has given it up. *detection*: of
    address conflicts. *rendering*: the template to render now; with *is_held*, nothing else is done until then.
    *template_problem*: why the template of the configuration cannot be used. *awaits_agents*: this controller has only
    begun to ask what the nodes run.
    """

    members: Shards
    excluded: Mapping[str, Refusal]
    nodes: tuple[Node, ...]
    leaving_nodes: tuple[Node, ...]
    router_ids: RouterIDs
    port: int
    first_port: int
    configuration: GroupConfiguration
    locals: tuple[LocalTrack, ...]
    links: PoolLinks
    is_persisted: bool
    is_rolling: bool
    awaits_groups: bool
    detection: Detection
    rendering: RenderRequest | None = None
    is_held: bool = False
    template_problem: Refusal | None = None
    awaits_agents: bool = False

    @property
    def all_nodes(self) -> tuple[Node, ...]:
        """All nodes that run the group."""
        return (*self.nodes, *self.leaving_nodes)

    @property
    def is_moving(self) -> bool:
        """Whether instances are to move one after the other (:mod:`kavip.vrrp.moves`)."""
        model = self.configuration.final
        return bool(model and (model.unspread or (model.balance and model.balance.moves)))

    @property
    def reserved(self) -> GroupReservation:
        """The VRIDs and the port that no other group may take from now on."""
        model = self.configuration.model
        running = {instance.router_id for instance in model.instances} if model else set()
        return GroupReservation(frozenset({*self.router_ids.assigned.values(), *running}), self.port)


def desired_of(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    options: ReconcileOptions,
    now: datetime,
) -> Desired:
    """What *group* should run, after what is *existing*."""
    every = members_of(snapshot, group)
    running = _running(snapshot, group, existing, every, observed)
    others = neighbours.elsewhere_of(snapshot, observed.objects, group)
    coexistence = existing.takeover.coexistence
    members, withheld = neighbours.withhold(every, running, others)
    router_ids = assign_router_ids(
        snapshot, group, observed, members=members, running=running, others=others, coexistence=coexistence
    )
    members = keys.keep_shared(group, members, router_ids.assigned)
    port = port_of(snapshot, group, reserved=observed.records.reserved, first=options.agent_port)
    found = _participants(
        snapshot, group, observed, existing=existing, members=members, running=running, router_ids=router_ids, now=now
    )
    left = observed.records.group(group.key).notation_left
    notations = notations_of(snapshot, group, observed.agents, existing=existing, options=options, left=left)
    builder = ConfigurationBuilder(
        snapshot, group, found.peers, running, coexistence, found.placed, found.dead, found.candidates, notations
    )
    templated = apply_template(
        group,
        builder.build(members, router_ids),
        observed.templates,
        published=existing.running.content if existing.running else "",
        permissions=options.templates,
        memory=members.memory,
        now=now,
    )
    configuration = templated.configuration
    return Desired(
        members=members,
        excluded={**configuration.excluded, **withheld},
        nodes=found.nodes,
        leaving_nodes=found.leaving,
        router_ids=router_ids,
        port=port,
        first_port=options.agent_port,
        configuration=configuration,
        locals=local_tracks(snapshot, group, configuration.final) if configuration.final else (),
        links=links_of(snapshot, members),
        is_persisted=router_ids.is_settled and _is_port_persisted(group, port),
        is_rolling=found.is_rolling,
        awaits_groups=bool(withheld),
        detection=detection_of(
            snapshot, group, observed, existing=existing, configuration=configuration, memory=members.memory
        ),
        rendering=templated.request,
        is_held=templated.is_held,
        template_problem=templated.problem,
        awaits_agents=awaits_agents(snapshot, group, observed.agents, existing),
    )


class _Participants(NamedTuple):
    """
    The *nodes* of a group, those that are *leaving*, and the *peers* that the next text has.

    *placed*: the instances that keep their place. *candidates*: by instance, the nodes that may take over if its master
    is drained. *is_rolling*: a node waits to join, to leave or to change its address.
    """

    nodes: tuple[Node, ...]
    leaving: tuple[Node, ...]
    dead: frozenset[str]
    placed: PlacedUnits
    peers: tuple[Peer, ...]
    candidates: Mapping[str, frozenset[str]]
    is_rolling: bool


def _participants(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    members: Shards,
    running: Mapping[str, RunningInstance],
    router_ids: RouterIDs,
    now: datetime,
) -> _Participants:
    """The nodes that take part in the next text."""
    nodes = snapshot.group_nodes(group)
    status = rollout_status(snapshot, group, observed, running=existing.running, now=now)
    leaving = _leaving_nodes(snapshot, group, nodes, pods=status.pods)
    seeds = [seed_of(group.key, key) for key in router_ids.persisted]
    states, contacts = observed.agents.states_of(group.key), observed.agents.contacts_of(group.key)
    dead = dead_nodes(snapshot, group, observed.agents, existing.running)
    settled = not (status.behind or status.leaving or dead)
    placed = placed_units(group, existing.published, running.values(), states, contacts=contacts, is_settled=settled)
    homes = {seed_of(group.key, unit): node for unit, node in placed.homes.items()}
    lacking = lacking_interfaces(_pool_interfaces(members, existing), states, existing.running)
    every, memory = (*nodes, *leaving), members.memory
    peers = next_peers(every, status, seeds=seeds, homes=homes, spec=group.spec, lacking=lacking, memory=memory)
    is_rolling = not is_final(peers, every, status, group.spec, lacking=lacking, memory=memory)
    candidates = candidates_of(turns_of(peers), states, contacts)
    return _Participants(nodes, leaving, dead, placed, peers, candidates, is_rolling)


def _running(
    snapshot: Snapshot, group: KeepalivedGroup, existing: Existing, members: Shards, observed: Observed
) -> Mapping[str, RunningInstance]:
    """What the nodes of *group* run: by its published text, and if that is lost by what they report."""
    if existing.configmap is None or existing.is_lost:
        found = _reported(snapshot, group, members, observed)
    else:
        content = existing.running.content if existing.running else ""
        found = running_instances(content, snapshot.memory(group.key))
    return without_unloaded(found, existing, observed.agents, group)


def _reported(
    snapshot: Snapshot, group: KeepalivedGroup, members: Shards, observed: Observed
) -> Mapping[str, RunningInstance]:
    """What the nodes of *group*, whose ConfigMap is lost, report that they run."""
    if not (states := observed.agents.states_of(group.key)):
        return NO_INSTANCES

    def interface_of(address: Address) -> str:
        place = snapshot.interface_of(address)
        return place.interface if place else ""

    services = {each.key for each in members}
    taken = segmentids.taken_ids(snapshot, group, observed.records.reserved)
    return reported_instances(states, group, services=services, taken=taken, interface_of=interface_of)


def _pool_interfaces(members: Shards, existing: Existing) -> frozenset[str]:
    """The interfaces that pools name, and until a switch those that they named before."""
    running = existing.running
    return members.pool_interfaces.union(running.links.interfaces if running else ())


def _leaving_nodes(
    snapshot: Snapshot, group: KeepalivedGroup, nodes: tuple[Node, ...], *, pods: frozenset[str]
) -> tuple[Node, ...]:
    members = {node.metadata.name for node in nodes}
    return tuple(snapshot.nodes[name] for name in sorted((snapshot.keeping_nodes(group) & pods) - members))


# --- the port of the agents -------------------------------------------------------------------------------------------
def port_of(snapshot: Snapshot, group: KeepalivedGroup, *, reserved: Mapping[str, GroupReservation], first: int) -> int:
    """
    The port of the group's agents: the one in its spec, the one in its status, or the first free one on its nodes.

    Where two groups have the same port, the older group keeps it.
    """
    if group.spec.metrics_port:
        return group.spec.metrics_port
    taken: set[int] = set()
    older: set[int] = set()
    for other in snapshot.companions(group):
        ports = {other.spec.metrics_port or other.status.metrics_port, reserved.get(other.key, GroupReservation()).port}
        taken |= ports
        if other.spec.metrics_port or other.metadata.age_key < group.metadata.age_key:
            older |= ports
    held = group.status.metrics_port
    if held and held not in older:
        return held
    return next(port for port in chain(range(first, 2**16), range(first - 1, 1023, -1)) if port not in taken)


def _is_port_persisted(group: KeepalivedGroup, port: int) -> bool:
    return port in (group.spec.metrics_port, group.status.metrics_port) or _is_pruned(group.status)


def _is_pruned(status: GroupStatus) -> bool:
    """Whether the CRD is keepalived-operator's, which drops every status field that its schema lacks."""
    return conditions.find(status.conditions, ConditionType.PROGRAMMED) is not None and not status.observed_generation
