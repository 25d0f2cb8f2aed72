"""
The VIPs of one Service and the group that serves them: what its conditions are evaluated on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.reconcile import segmentids
from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.readynodes import ReadyNodes
from kavip.snapshot import Snapshot
from kavip.vrrp import members
from kavip.vrrp.sharding import shard_count, shard_of
from kavip.vrrp.units import UnitBuilder

Sharers = frozenset[str] | None
"""The Services that may have an address; None: every Service that has it."""


@dataclass(frozen=True, slots=True)
class ServingGroup:
    """
    What all Services of the group *key* have in common.

    *group*: None if it does not exist. *ready*: its nodes that are ready. *states*: what its agents reported.
    """

    snapshot: Snapshot
    key: str
    group: KeepalivedGroup | None
    has_nodes: bool
    ready: ReadyNodes
    states: Mapping[str, NodeState]

    @classmethod
    def of(cls, snapshot: Snapshot, key: str, observed: Observed) -> "ServingGroup":
        """The group *key*, as it serves now."""
        group, states = snapshot.groups.get(key), observed.agents.states_of(key)
        if group is None:
            return cls(snapshot, key, None, has_nodes=False, ready=ReadyNodes(), states=states)
        # A node that is down would keep every new Service pending for as long as it takes to repair it.
        placed = snapshot.placed(group)
        ready = ReadyNodes.of(placed.ready, states, snapshot.memory(key))
        return cls(snapshot, key, group, bool(placed.nodes), ready, states)

    @property
    def has_free_router_id(self) -> bool:
        """Whether the group has a VRID left."""
        return self.group is not None and segmentids.count_free_ids(self.snapshot, self.group) > 0

    def mastership(self, observed: Observed) -> Mastership:
        """Which node is master of what."""
        pods = observed.objects.pods_of(self.key)
        nodes, may_hold = self._reporting_nodes(pods), self.has_nodes or bool(pods)
        return Mastership.of(self.group, nodes, observed.agents, key=self.key, has_nodes=may_hold)

    def _reporting_nodes(self, pods: Iterable[Pod]) -> tuple[str, ...]:
        """The nodes whose agents must answer: the ready ones, and former ones that still run one of *pods*."""
        former = {pod.spec.node_name for pod in pods}.difference(self.ready.names, [""])
        return (*self.ready.names, *sorted(name for name in former if not self._is_down(name)))

    def _is_down(self, node: str) -> bool:
        known = self.snapshot.nodes.get(node)
        return known is not None and not known.is_ready


@dataclass(frozen=True, slots=True)
class ServiceVIPs:
    """
    One Service with the VIPs that it should have.

    *problem*: why the configuration of its group does not contain it. *surplus*: the number of its VIPs that are not
    served because it has too many.
    """

    service: Service
    addresses: tuple[Address, ...]
    problem: Refusal | None
    serving: ServingGroup
    surplus: int = 0

    @classmethod
    def of(
        cls,
        service: Service,
        assigned: Iterable[Address],
        serving: ServingGroup,
        *,
        problems: Mapping[str, Refusal] | None = None,
    ) -> "ServiceVIPs":
        """
        The VIPs of *service*, which has the addresses *assigned* from pools.

        *problems*: by Service, those of the group's configuration; without them, *service* is evaluated alone.
        """
        every = tuple(dict.fromkeys((*assigned, *service.validated_external_ips)))
        vips = members.served(every)
        problem = problem_of(service, vips, serving) if problems is None else problems.get(service.key)
        unread = max(0, len(service.spec.external_ips or ()) - names.MAX_EXTERNAL_IPS)
        return cls(service, vips, problem, serving, len(every) - len(vips) + unread)

    @property
    def pool_interfaces(self) -> frozenset[str]:
        """The interfaces that the pools of its VIPs name, except that of the group."""
        snapshot, group = self.serving.snapshot, self.serving.group
        if not snapshot.parsed_pools.interfaces or group is None:
            return frozenset()
        found = {place.interface for each in self.addresses if (place := snapshot.interface_of(each))}
        return frozenset(found - {group.spec.interface})

    @property
    def left_out(self) -> Mapping[str, str]:
        """The ready nodes that hold none of its VIPs, because they lack an interface that a pool names; and which."""
        nodes = self.serving.ready.lacking
        if not nodes or not (interfaces := self.pool_interfaces):
            return {}
        return {name: min(missing) for name, state in nodes if (missing := state.missing & interfaces)}

    @property
    def unrouted(self) -> Mapping[str, Sequence[str]]:
        """By pool, the ready nodes that report that they cannot route replies of its VIPs by its gateway."""
        snapshot, failing = self.serving.snapshot, self.serving.ready.failing
        if not failing or not snapshot.parsed_pools.interfaces:
            return {}
        places = {place for each in self.addresses if (place := snapshot.interface_of(each)) and place.is_routed}
        found = {
            place.pool: [
                name
                for name, state in failing
                if place.pool not in state.routed and place.interface not in state.missing
            ]
            for place in sorted(places)
        }
        return {pool: nodes for pool, nodes in found.items() if nodes}


def _may_have(serving: ServingGroup, service: Service, address: Address) -> bool:
    """Whether *service* is one of the :func:`sharers_of` *address*; without a walk through those that share it."""
    snapshot = serving.snapshot
    claims = snapshot.ledger.claims
    if not snapshot.ledger.owner(address):
        if len(claims.of(address)) < 2:
            return True
        if claims.is_shared(address):  # all of them are in one group, if any group serves them
            oldest = snapshot.services.get(claims.holders(address)[0].key)
            if oldest is not None and snapshot.group_of(oldest) == serving.key:
                return True
    among = sharers_of(snapshot, serving.key, address)
    return among is None or service.key in among


def sharers_of(snapshot: Snapshot, group: str, address: Address) -> Sharers:
    """
    The Services that may have *address* in *group*.

    There are none if a node or another group has the address itself. If a Service of another group has it too,
    they are those that are older than it.
    """
    owner = snapshot.ledger.owner(address)
    if owner:
        return None if owner == f"{names.KEEPALIVED_GROUP} {group}" else frozenset()
    older: set[str] = set()
    for terms in snapshot.ledger.claims.holders(address) or snapshot.ledger.claims.claimants(address):
        service = snapshot.services.get(terms.key)
        if service is not None and snapshot.group_of(service) not in (None, "", group):
            return frozenset(older)
        older.add(terms.key)
    return None


def problem_of(service: Service, vips: tuple[Address, ...], serving: ServingGroup) -> Refusal | None:
    """Why a configuration of *service* alone, with *vips*, would not contain it."""
    group = serving.group
    if group is None:
        return None
    own = tuple(vip for vip in vips if _may_have(serving, service, vip))
    member = members.member_of(service, group, serving.snapshot.interface_of, vips=own)
    router_ids, unit = group.status.router_ids or {}, shard_of(member.key, shard_count(group)) or member.key
    if member.is_plain and not member.interfaces and unit in router_ids:
        return None  # most Services
    builder = UnitBuilder(group, (), router_ids)
    builder.add_member(member)
    return member.problem or builder.problems.get(service.key)  # first what the owner of the Service can correct
