"""
Snapshot: everything that a decision may read.

Informers, files and tests fill it with :meth:`Snapshot.put` and :meth:`Snapshot.drop`; the webhook, the controller and
the offline commands read it, and differ in nothing else. The indexes, the parsed pools and the ledger change with the
objects, so after each call they agree, whatever the order of the objects. No question scans all Services. Readers hold
a view, not a copy: decisions are synchronous, so nothing changes while one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Infrastructure, Namespace, Network, Node, ServiceCIDR
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import PoolInterface, VIPPool
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.nodeaddresses import ReportedAddresses, addresses_of
from kavip.ipam.pools import Pools
from kavip.ipam.record import read_record
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.snapshot.changes import Changes
from kavip.snapshot.clusterranges import PodRanges, rejected_ranges, service_ranges
from kavip.snapshot.deletion import LeavingObjects
from kavip.snapshot.endpoints import EndpointIndex
from kavip.snapshot.groupchoice import choose_group, is_candidate, scope_of
from kavip.snapshot.membership import Membership, ShareOf, reuse_equal_parts
from kavip.snapshot.objects import KINDS, Object
from kavip.snapshot.placement import GroupNodes, GroupNodesIndex
from kavip.vrrp import openshift

D = TypeVar("D")


class Snapshot:
    """The cluster as kavip reads it. Change it only with :meth:`put`, :meth:`put_all` and :meth:`drop`."""

    def __init__(self, group_namespaces: Collection[str] = ()) -> None:
        """Start empty. *group_namespaces*: the namespaces whose groups kavip serves; none: all."""
        self.group_namespaces = frozenset(group_namespaces)
        self.services: dict[str, Service] = {}
        """Of those in deletion, only with the external IPs that they hold (:mod:`kavip.snapshot.deletion`)."""
        self.groups: dict[str, KeepalivedGroup] = {}
        """Of those in deletion, only with the virtual IPs that they hold."""
        self.outside: dict[str, KeepalivedGroup] = {}
        """The groups of other namespaces: kavip does not serve them; only their VRIDs and ports count as in use."""
        self.pools: dict[str, VIPPool] = {}
        self.nodes: dict[str, Node] = {}
        """With their own addresses only, without VIPs that they report (:mod:`kavip.ipam.nodeaddresses`)."""
        self.namespaces: dict[str, Namespace] = {}
        self.changes = Changes()
        self.networks: dict[str, Network] = {}
        self.infrastructures: dict[str, Infrastructure] = {}
        self.slices: dict[str, EndpointSlice] = {}
        self.service_ranges: dict[str, ServiceCIDR] = {}
        self.followed: set[str] = set()
        """The Services whose VIPs follow their EndpointSlices, because kube-proxy has no health port for them."""
        self.ledger = Ledger()
        self.parsed_pools = Pools()
        """The pools as ipam reads them; the ledger is configured with them."""
        self._membership = Membership(self.services, self.group_of)
        self._default: KeepalivedGroup | None = None
        self._reported = ReportedAddresses(self._holders)
        self._group_nodes = GroupNodesIndex(self.nodes)
        self.pod_ranges = PodRanges()
        self.api_server_addresses: frozenset[Address] = frozenset()
        self._endpoints = EndpointIndex(self.slices)
        self._memories: dict[str, Memory] = {}  # by group
        self._leaving = LeavingObjects(self)
        self._stores: dict[str, dict[str, Any]] = {
            names.SERVICE: self.services,
            names.KEEPALIVED_GROUP: self.groups,
            names.VIP_POOL: self.pools,
            names.NODE: self.nodes,
            names.NAMESPACE: self.namespaces,
            names.NETWORK: self.networks,
            names.INFRASTRUCTURE: self.infrastructures,
            names.ENDPOINT_SLICE: self.slices,
            names.SERVICE_CIDR: self.service_ranges,
        }

    @classmethod
    def from_objects(cls, objects: Iterable[Object], *, group_namespaces: Collection[str] = ()) -> Snapshot:
        """A Snapshot of *objects*, in any order."""
        snapshot = cls(group_namespaces)
        snapshot.put_all(objects)
        return snapshot

    # --- filling --------------------------------------------------------------------------------------------------
    def put(self, obj: Object) -> None:
        """Add *obj*, or replace the object of its kind and key."""
        self.put_all((obj,))

    def put_all(self, objects: Iterable[Object]) -> None:
        """Put *objects*, in any order; the pools are parsed once."""
        if any([self._enter(each) for each in objects]):  # noqa: C419 - every one is entered
            self._configure_pools()

    def _enter(self, obj: Object) -> bool:
        """Store and index *obj*; whether the pools must be parsed again."""
        key = obj.metadata.key
        if isinstance(obj, KeepalivedGroup) and not self.has_groups(obj.metadata.namespace):
            self.outside[key] = obj
            self._choose_again(self._membership.choosers(key))
            return False
        store = self._stores[KINDS[type(obj)]]
        before = store.get(key)
        if isinstance(obj, Service | KeepalivedGroup):
            obj = self._leaving.held_part(obj)
        if isinstance(obj, KeepalivedGroup) and isinstance(before, KeepalivedGroup):
            obj = reuse_equal_parts(obj, before)
        store[key] = obj
        match obj:
            case Service():
                self._index_service(key, obj)
                self._update_nodes(self._reported.reporting(before, obj))
            case VIPPool():
                self.ledger.cooldown.learn(key, obj.status.cooling)
                return _without_status(before) != _without_status(obj)
            case Network():
                return True
            case ServiceCIDR():
                return not isinstance(before, ServiceCIDR) or before.spec != obj.spec
            case Namespace() if not isinstance(before, Namespace) or before.metadata.labels != obj.metadata.labels:
                self._membership.invalidate_namespace(key)
                self._choose_again(self._membership.choosers_in(key))
            case Node():
                self._reported.observe(key, obj)
                self._update_node(key)
                self.pod_ranges.observe(key, obj)
            case EndpointSlice():
                self._index_slice(key, before if isinstance(before, EndpointSlice) else None, obj)
            case KeepalivedGroup():
                self.ledger.reserve(f"{names.KEEPALIVED_GROUP} {key}", obj.virtual_ips)
                self._update_nodes(self._reported.reporting(before, obj))
                self._choose_default()
                if not isinstance(before, KeepalivedGroup) or scope_of(before) != scope_of(obj):
                    self._choose_again(self._membership.choosers(key))
                if not isinstance(before, KeepalivedGroup) or before.spec is not obj.spec:
                    self._update_leaving()
        return False

    def drop(self, kind: str, key: str) -> None:
        """Remove the object of *kind* with *key*, if there is one."""
        before = self._stores[kind].pop(key, None)
        self._leaving.forget(kind, key)
        if kind == names.KEEPALIVED_GROUP:
            self.outside.pop(key, None)
        match kind:
            case names.SERVICE:
                self._index_service(key, None)
                self._update_nodes(self._reported.reporting(before))
            case names.VIP_POOL:
                self.ledger.cooldown.learn(key, None)
                self._configure_pools()
            case names.NETWORK | names.SERVICE_CIDR:
                self._configure_pools()
            case names.NAMESPACE:
                self._membership.invalidate_namespace(key)
                self._choose_again(self._membership.choosers_in(key))
            case names.ENDPOINT_SLICE if isinstance(before, EndpointSlice):
                self._index_slice(key, before, None)
            case names.NODE:
                self._reported.observe(key, None)
                self._update_node(key)
                self.pod_ranges.observe(key, None)
            case names.KEEPALIVED_GROUP:
                self._membership.forget(key)
                self._memories.pop(key, None)
                self.ledger.reserve(f"{kind} {key}", ())
                self._update_nodes(self._reported.reporting(before))
                self._choose_default()
                self._choose_again(self._membership.choosers(key))
                self._update_leaving()

    def publish(self, group: str, text: str) -> list[tuple[Object, Object]]:
        """Record the *text* that *group* runs, "": none; returns objects in deletion that changed, before and after."""
        if text == self._leaving.text(group):
            return []
        self._leaving.publish(group, text)
        return self._update_leaving(group)

    def _update_leaving(self, group: str = "") -> list[tuple[Object, Object]]:
        """Determine again what Services in deletion hold, and *group* if it is in deletion."""
        changes: list[tuple[Object, Object]] = []
        for each in self._leaving.affected_by(group):
            store, key = self._stores[KINDS[type(each)]], each.key
            before, now = store[key], self._leaving.held_part(each)
            if before != now:
                self._enter(each)
                changes.append((before, store[key]))
        return changes

    def _configure_pools(self) -> None:
        """Parse the pools that have changed, and let the ledger count over the new ones."""
        barred = (*rejected_ranges(self.network), *service_ranges(self.service_ranges.values()))
        before = self.parsed_pools
        self.parsed_pools = Pools.of(self.pools.values(), barred=barred, before=before)
        self.changes.add_ranges(self.parsed_pools.differing(before))
        self.pod_ranges.set_pools(self.parsed_pools)
        self._membership.renew(self.ledger.configure(self.parsed_pools))

    def _index_service(self, key: str, service: Service | None) -> None:
        declared = service.declared_group if service is not None and is_candidate(service) else None
        recorded = read_record(service).group if service is not None and declared == "" else ""
        self._membership.observe(key, declared, recorded)
        self.followed.discard(key)
        if service is not None and declared is not None and service.needs_slices:
            self.followed.add(key)
        self._enter_in_ledger(key, service)

    def _enter_in_ledger(self, key: str, service: Service | None) -> None:
        """Enter what *service* holds; it shares addresses within the group that serves it."""
        self.ledger.observe(key, service, group=(self.group_of(service) if service is not None else "") or "")

    def _choose_again(self, keys: Collection[str]) -> None:
        """The groups that kavip chose for the Services *keys* may serve them no longer, or again."""
        self._membership.invalidate(keys)
        self._share_again(keys)

    def _share_again(self, keys: Collection[str]) -> None:
        """The Services *keys* may share addresses within other groups now."""
        for service in map(self.services.__getitem__, keys):
            if service.metadata.annotation(names.SHARING_KEY_ANNOTATION):
                self._enter_in_ledger(service.key, service)

    def _update_nodes(self, nodes: Iterable[str]) -> None:
        """Determine again which addresses are the own ones of *nodes*, because other objects have changed."""
        for key in nodes:
            before = self.nodes.get(key)
            self._update_node(key)
            if addresses_of(before) != addresses_of(self.nodes.get(key)):
                self.changes.add_node(key)

    def _update_node(self, key: str) -> None:
        if (node := self._reported.without_vips(key)) is not None:
            self.nodes[key] = node
        self._group_nodes.clear()
        self.ledger.reserve(f"{names.NODE} {key}", addresses_of(node))

    def _holders(self, address: Address) -> Iterator[Service | KeepalivedGroup]:
        found = (self.services.get(terms.key) for terms in self.ledger.claims.claimants(address))
        yield from (each for each in found if each is not None and is_candidate(each))
        kind, _, key = self.ledger.owner(address).partition(" ")
        if kind == names.KEEPALIVED_GROUP and key in self.groups:
            yield self.groups[key]

    def _index_slice(self, key: str, before: EndpointSlice | None, after: EndpointSlice | None) -> None:
        self._endpoints.observe(key, before, after)
        if names.API_SERVER_SERVICE in {each.service for each in (before, after) if each is not None}:
            self.api_server_addresses = self._endpoints.addresses_of(names.API_SERVER_SERVICE)
            self.ledger.reserve(names.API_SERVER, self.api_server_addresses)

    def _choose_default(self) -> None:
        labelled = (group for group in self.groups.values() if group.is_default)
        before, self._default = self._default, min(labelled, key=lambda group: group.metadata.age_key, default=None)
        default = self._default
        if before is None or default is None or (before.key, before.spec) != (default.key, default.spec):
            self._membership.set_default_group(default.key if default else "")
            if before is None or default is None or scope_of(before) != scope_of(default):
                self._choose_again(self._membership.choosers_in())
        if default is not None and self.ledger.set_default_group(default.key):  # without one they go on sharing
            self._share_again(self._membership.candidates(""))

    # --- reading --------------------------------------------------------------------------------------------------
    @property
    def network(self) -> Network | None:
        """OpenShift's Network ``cluster``, or None on other clusters."""
        return self.networks.get("cluster")

    def platform_router_ids(self, group: KeepalivedGroup) -> frozenset[int]:
        """The VRIDs that OpenShift's own keepalived uses on the segment of *group*."""
        return openshift.platform_ids(self.infrastructures.get("cluster"), group)

    @property
    def default_group(self) -> KeepalivedGroup | None:
        """The oldest group that is labelled as the default one."""
        return self._default

    def has_groups(self, namespace: str) -> bool:
        """Whether kavip serves groups in *namespace* (setting ``group_namespaces``)."""
        return not self.group_namespaces or namespace in self.group_namespaces

    def any_group(self, key: str) -> KeepalivedGroup | None:
        """The group with *key*, even if kavip does not serve it."""
        return self.groups.get(key) or self.outside.get(key)

    @property
    def every_group(self) -> list[KeepalivedGroup]:
        """All groups, including those that kavip does not serve, sorted by key."""
        return [group for _, group in sorted({**self.groups, **self.outside}.items())]

    def memory(self, group: str) -> Memory:
        """Where calculations for *group* keep results for the next decision; nothing is kept without the group."""
        if (found := self._memories.get(group)) is not None:
            return found
        return self._memories.setdefault(group, Memory()) if self.any_group(group) else KEEPS_NOTHING

    def namespace_labels(self, name: str) -> dict[str, str]:
        """The labels of namespace *name*; none if it is unknown."""
        found = self.namespaces.get(name)
        return (found.metadata.labels if found else None) or {}

    def allows(self, group: KeepalivedGroup, namespace: str) -> bool:
        """Whether Services of *namespace* may use *group* (``spec.allowedNamespaces``; absent: all)."""
        selector = group.spec.allowed_namespaces
        return selector is None or selector.matches(self.namespace_labels(namespace))

    def _is_served_by(self, key: str, service: Service) -> bool:
        """Whether the group *key* exists and serves the namespace of *service*."""
        found = self.any_group(key)
        return found is not None and self.allows(found, service.metadata.namespace)

    def group_of(self, service: Service) -> str | None:
        """
        The key of the group that *service* belongs to, which may not exist; None if kavip does not manage the Service.

        "": its class makes kavip manage it, and there is no group that it could use. A Service that names no group
        stays with the one that kavip chose for it, while that group exists and serves it. Otherwise the default group
        adopts it; without a default group that serves it, it waits for that group and keeps its address.
        """
        return choose_group(service, self.default_group, is_served_by=self._is_served_by, has_groups=self.has_groups)

    def derived(
        self, group: str, spec: object, make: Callable[[Service], D | None], share_of: ShareOf
    ) -> Mapping[str, tuple[D, ...]]:
        """
        The results of *make* for the members of *group*, in shares by *share_of* of the key; without results None.

        A result is kept until the Service, the labels of its namespace, the interface of an address or *spec* change;
        *share_of* may depend on *spec* only. A share in which no result has changed is the same object as before.
        """
        return self._membership.derived(group, spec, make, share_of)

    def interface_of(self, address: Address) -> PoolInterface | None:
        """The interface that the pool of *address* names; None: it is that of the group."""
        return self.parsed_pools.interface_of(address)

    def members(self, group: str) -> Sequence[Service]:
        """The Services that belong to the group with key *group*, sorted by key."""
        return self._membership.members(group)

    def parts(self, group: str) -> Mapping[str, tuple[Service, ...]]:
        """The same in small shares; a share in which no Service has changed is the same object as before."""
        return self._membership.parts(group)

    def candidates(self, declared: str) -> list[Service]:
        """The Services that kavip may manage and whose group annotation says *declared*, sorted by key."""
        return list(map(self.services.__getitem__, sorted(self._membership.candidates(declared))))

    def choosers(self, group: str) -> tuple[str, ...]:
        """The Services that name no group and for which kavip chose *group*, which may not exist any more; sorted."""
        return self._membership.choosers(group)

    def neighbours(self, group: KeepalivedGroup) -> list[KeepalivedGroup]:
        """The other groups of the same segment, sorted by key: their VRIDs are in use."""
        return [other for other in self.every_group if other.key != group.key and other.segment == group.segment]

    def companions(self, group: KeepalivedGroup) -> list[KeepalivedGroup]:
        """The other groups that run on a node of *group*, including those that kavip does not serve, sorted by key."""
        nodes = {node.metadata.name for node in self.group_nodes(group)}
        others = (other for other in self.every_group if other.key != group.key)
        return [one for one in others if not nodes.isdisjoint(node.metadata.name for node in self.group_nodes(one))]

    def group_nodes(self, group: KeepalivedGroup) -> tuple[Node, ...]:
        """The nodes on which the group's DaemonSet runs, sorted by name."""
        return self.placed(group).nodes

    def ready_nodes(self, group: KeepalivedGroup) -> tuple[str, ...]:
        """The names of those nodes that are ready."""
        return self.placed(group).ready

    def keeping_nodes(self, group: KeepalivedGroup) -> frozenset[str]:
        """The names of the nodes on which an existing pod stays, even if no new one may be scheduled there."""
        return self.placed(group).keeping

    def placed(self, group: KeepalivedGroup) -> GroupNodes:
        """All three at once."""
        stored = self.any_group(group.key)
        is_stored = stored is not None and stored.spec is group.spec
        return self._group_nodes.of(group.spec) if is_stored else self._group_nodes.compute(group.spec)

    def endpoint_nodes(self, service: str) -> frozenset[str]:
        """The nodes on which kube-proxy answers for *service*, according to its EndpointSlices."""
        return self._endpoints.nodes_of(service)


def _without_status(pool: Object | None) -> object:
    """What decisions read of a pool: kavip itself writes the status."""
    return (pool.spec, pool.metadata.age_key) if isinstance(pool, VIPPool) else None
