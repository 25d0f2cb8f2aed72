"""
The keys of the objects whose plan a change may alter. Pure; the Snapshot contains the change already.

Other keys are not enqueued. An address that kavip has just written enqueues the group and the pool, but not the Service
that it was decided for. A heartbeat of a node enqueues nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.cluster import Infrastructure, Namespace, Node
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice
from kavip.ipam.ledger.cooldown import CoolingAddress, read_cooling
from kavip.ipam.ranges import Range, find
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from kavip.reconcile.predicate import is_own_write
from kavip.snapshot import Object, Snapshot, is_candidate

_OURS: Final = f"{names.KAVIP_GROUP}/"


class Start(NamedTuple):
    """
    Every key there is. *settled*: Services that are in the ledger and hold what they request, oldest first.

    These have nothing to do, so they come last.
    """

    first: tuple[Key, ...]
    settled: tuple[Key, ...]


def start(snapshot: Snapshot) -> Start:
    """The keys that a new leader enqueues: first the Services that may lack something, oldest first."""
    ours = sorted(filter(may_be_ours, snapshot.services.values()), key=lambda each: each.metadata.age_key)
    settled = {each.key: _service(each.key) for each in ours if _is_satisfied(snapshot, each)}
    first = (_service(each.key) for each in ours if each.key not in settled)
    pools = (Key(KeyKind.POOL, name) for name in sorted(snapshot.pools))
    return Start((*first, *_groups(snapshot), *pools), tuple(settled.values()))


def everything(snapshot: Snapshot) -> Iterator[Key]:
    """Every key there is, in the order of :func:`start`."""
    return chain.from_iterable(start(snapshot))


def of(snapshot: Snapshot, old: Object | None, new: Object | None, *, sent: StatusPatch | None = None) -> Iterator[Key]:
    """
    The keys that the change from *old* to *new* concerns; a key may occur twice, because the queue folds duplicates.

    *sent*: kavip's status write that may have caused the change.
    """
    match new if new is not None else old:
        case Service():
            yield from _of_service(snapshot, old, new, sent)
        case KeepalivedGroup():
            yield from _of_group(snapshot, old, new)
        case VIPPool():
            yield from _of_pool(snapshot, old, new)
        case Node():
            if _node_inputs(old) != _node_inputs(new):
                yield from _groups(snapshot)
                yield from _pools_of(snapshot, _own(old) ^ _own(new))
                if _pod_ranges(old) != _pod_ranges(new) and _may_overlap(snapshot, old, new):
                    yield from _pools(snapshot)
        case Namespace() as namespace:
            if _labels(old) != _labels(new):
                yield from _of_namespace(snapshot, namespace.metadata.name)
        case EndpointSlice():
            yield from _of_slice(snapshot, old, new)
        case Infrastructure():  # the VRIDs that OpenShift uses
            yield from _groups(snapshot)
        case _:  # ServiceCIDR, OpenShift's Network: whether the platform assigns, and what no pool may assign
            yield from _all_addresses(snapshot)
    yield from _groups_at(snapshot, snapshot.changes.drain_nodes())
    yield from _groups_in(snapshot, snapshot.changes.drain_ranges())
    yield from _pools_of(snapshot, snapshot.ledger.drain_undone())
    disputing = map(snapshot.services.get, snapshot.ledger.drain_disputes())
    yield from _groups_of(snapshot, filter(None, disputing))  # each renders what no other group has
    yield from (_service(key) for key in snapshot.ledger.drain_requeues())


def _of_service(snapshot: Snapshot, old: Object | None, new: Object | None, sent: StatusPatch | None) -> Iterator[Key]:
    before, after = _as_service(old), _as_service(new)
    ours = [each for each in (after, before) if each is not None and may_be_ours(each)]
    if ours and not (is_own_write(sent, before, after) and _is_settled(snapshot, before, after)):
        yield _service(ours[0].key)
    had, has = (each.virtual_ips if each is not None else () for each in (before, after))
    if had == has and _shape(before) == _shape(after):
        if ours and before and after and snapshot.group_of(before) != snapshot.group_of(after):
            yield from _groups_of(snapshot, (before, after))  # the condition that records the group has changed
        return
    yield from _groups_of(snapshot, filter(None, (before, after)))
    yield from _pools_of(snapshot, {*had, *has})


def _is_settled(snapshot: Snapshot, before: Service | None, after: Service | None) -> bool:
    """
    Whether nothing is left to decide after kavip's own write.

    A Service that has lost an address may no longer belong to its group (``group_of``), nor to kavip.
    """
    if before is None or after is None or not set(before.virtual_ips) <= set(after.virtual_ips):
        return False
    return snapshot.group_of(before) == snapshot.group_of(after)


def _of_group(snapshot: Snapshot, old: Object | None, new: Object | None) -> Iterator[Key]:
    before = old if isinstance(old, KeepalivedGroup) else None
    after = new if isinstance(new, KeepalivedGroup) else None
    changed = after or before
    if changed is None:
        return
    yield Key(KeyKind.GROUP, changed.key)
    if before and after and _group_inputs(before) == _group_inputs(after):
        if before.status.router_ids != after.status.router_ids:
            yield from (Key(KeyKind.GROUP, group.key) for group in snapshot.neighbours(after))
        return
    yield from _groups(snapshot)
    is_leaving = bool(changed.metadata.deletion_timestamp)  # then it holds only what its nodes run
    yield from _pools_of(snapshot, _own(old) | _own(new) if is_leaving else _own(old) ^ _own(new))
    if any(group is not None and group.is_default for group in (before, after)):
        yield from (_service(service.key) for service in snapshot.candidates(""))
    yield from map(_service, snapshot.choosers(changed.key))
    yield from (_service(service.key) for service in snapshot.candidates(changed.key))


def _group_inputs(group: KeepalivedGroup) -> object:
    """The parts of a group that can change the plans of its Services, including the start of its deletion."""
    return group.spec, group.metadata.labels, bool(group.metadata.deletion_timestamp)


def _of_pool(snapshot: Snapshot, old: Object | None, new: Object | None) -> Iterator[Key]:
    before = old if isinstance(old, VIPPool) else None
    after = new if isinstance(new, VIPPool) else None
    if before and after and before.spec == after.spec:
        yield Key(KeyKind.POOL, after.name)
        yield from (_service(each.service) for each in sorted(_withdrawn(after) - _withdrawn(before)))
        return
    concerned = {each.name for each in (before, after) if each} | _problematic(snapshot)
    yield from (Key(KeyKind.POOL, name) for name in sorted(concerned))
    yield from (_service(key) for key in snapshot.ledger.waiters.by_age())
    for key, service in sorted(snapshot.services.items()):  # each may become stranded, or no longer be it
        if service.virtual_ips or snapshot.ledger.held(key):  # the watch may not show the last write yet
            yield _service(key)


def _of_namespace(snapshot: Snapshot, namespace: str) -> Iterator[Key]:
    """
    The Services of *namespace*, and the groups that it may leave or join by its labels.

    A Service that names no group may go between groups with ``spec.allowedNamespaces`` and the default one.
    """
    prefix = f"{namespace}/"
    services = [service for key, service in sorted(snapshot.services.items()) if key.startswith(prefix)]
    yield from (_service(service.key) for service in services)
    if services:
        default = snapshot.default_group
        for group in snapshot.every_group:
            if group.spec.allowed_namespaces is not None or group is default:
                yield Key(KeyKind.GROUP, group.key)
        yield from _groups_of(snapshot, services)


def _withdrawn(pool: VIPPool) -> set[CoolingAddress]:
    """The addresses in the status of *pool* that another machine has: their Services give them up now."""
    return {each for each in read_cooling(pool.status.cooling or ()) if each.is_withdrawn}


def _groups_in(snapshot: Snapshot, ranges: Sequence[Range]) -> Iterator[Key]:
    """The groups that announce an address in *ranges*, which are sorted and disjoint."""
    yield from _groups_of(snapshot, filter(None, map(snapshot.services.get, snapshot.ledger.claimants_in(ranges))))
    for group in snapshot.every_group if ranges else ():
        if any(find(ranges, address) for address in group.virtual_ips):
            yield Key(KeyKind.GROUP, group.key)


def _of_slice(snapshot: Snapshot, old: Object | None, new: Object | None) -> Iterator[Key]:
    """
    The group whose VIPs follow these endpoints, if their nodes changed; for the API server's endpoints, the pools.
    """
    seen = [each for each in (old, new) if isinstance(each, EndpointSlice)]
    if len({(each.service, each.ready_nodes, each.draining_nodes) for each in seen}) != 1 or len(seen) == 1:
        yield from _groups_of(snapshot, filter(None, map(snapshot.services.get, {each.service for each in seen})))
    yield from _pools_of(snapshot, _own(old) ^ _own(new))


def _all_addresses(snapshot: Snapshot) -> Iterator[Key]:
    """Every Service and every pool: another range is barred."""
    yield from (_service(key) for key in sorted(snapshot.services))
    yield from _pools(snapshot)


def _pools(snapshot: Snapshot) -> Iterator[Key]:
    return (Key(KeyKind.POOL, name) for name in sorted(snapshot.pools))


def _pod_ranges(obj: Object | None) -> object:
    """What decides which pod ranges pools report."""
    return (obj.spec.pod_cidrs, obj.host_addresses) if isinstance(obj, Node) else None


def _may_overlap(snapshot: Snapshot, *versions: Object | None) -> bool:
    """
    Whether a pod range of a node overlaps a pool, or did with these *versions* of a node.

    A range that has the address of any node counts for no pool.
    """
    nodes = (each for each in versions if isinstance(each, Node))
    return snapshot.pod_ranges.have_overlaps or any(map(snapshot.pod_ranges.touches_pools, nodes))


def _problematic(snapshot: Snapshot) -> set[str]:
    """The pools that are not in force, or whose status says so: an edit of another pool may change that."""
    rejected = (name for name, pool in snapshot.pools.items() if not _is_accepted(pool))
    return {*snapshot.parsed_pools.problems, *rejected}


def _is_accepted(pool: VIPPool) -> bool:
    found = conditions.find(pool.status.conditions, names.ConditionType.ACCEPTED)
    return found is not None and found.status == "True"


def _is_satisfied(snapshot: Snapshot, service: Service) -> bool:
    """Whether *service* holds everything that it requests, and no other Service claims it."""
    if not snapshot.ledger.is_satisfied(service.key) or service.metadata.annotation(names.REASSIGN_ANNOTATION):
        return False
    held, pool_name = service.ingress_addresses, service.metadata.annotation(names.POOL_ANNOTATION)
    if len(held) < len(service.spec.ip_families or ()) * (service.address_count or 1):
        return False
    pools = (snapshot.parsed_pools.pool_of(address) for address in held)
    return not pool_name or {pool.name for pool in pools if pool} == {pool_name}


def may_be_ours(service: Service) -> bool:
    """Whether *service* may have a plan that is not empty: most Services of a cluster are ClusterIP and have none."""
    return is_candidate(service) or any(each.type.startswith(_OURS) for each in service.status.conditions or ())


def _service(key: str) -> Key:
    return Key(KeyKind.SERVICE, key)


def _groups(snapshot: Snapshot) -> Iterator[Key]:
    return (Key(KeyKind.GROUP, group.key) for group in snapshot.every_group)


def _groups_of(snapshot: Snapshot, services: Iterable[Service]) -> Iterator[Key]:
    """
    The groups of *services*.

    A group that does not exist is left out: its plan would go through all of its Services, which have nothing to do
    before it comes. Its creation and its deletion enqueue them.
    """
    found = {snapshot.group_of(each) for each in services}
    yield from (Key(KeyKind.GROUP, key) for key in sorted(filter(None, found)) if snapshot.any_group(key) is not None)


def _groups_at(snapshot: Snapshot, nodes: Collection[str]) -> Iterator[Key]:
    """The groups that run on one of *nodes*."""
    for group in snapshot.every_group if nodes else ():
        if any(node.metadata.name in nodes for node in snapshot.group_nodes(group)):
            yield Key(KeyKind.GROUP, group.key)


def _pools_of(snapshot: Snapshot, addresses: Collection[Address]) -> Iterator[Key]:
    """The pools of *addresses*: their counts may have changed."""
    found = {pool.name for address in addresses if (pool := snapshot.parsed_pools.pool_of(address))}
    return (Key(KeyKind.POOL, name) for name in sorted(found))


def _own(obj: Object | None) -> frozenset[Address]:
    """The addresses of a node, a group or the API server itself: no pool assigns them."""
    match obj:
        case EndpointSlice() if obj.service == names.API_SERVER_SERVICE:
            return obj.addresses
        case Node():
            return frozenset(obj.addresses())
        case KeepalivedGroup():
            return frozenset(obj.virtual_ips)
    return frozenset()


def _as_service(obj: Object | None) -> Service | None:
    return obj if isinstance(obj, Service) else None


def _shape(service: Service | None) -> object:
    """The parts of a Service that matter to groups and pools, besides its VIPs: everything except the conditions."""
    if service is None:
        return None
    metadata = service.metadata
    return service.spec, metadata.annotations, metadata.deletion_timestamp, metadata.uid


def _node_inputs(obj: Object | None) -> object:
    """The parts of a Node that matter: everything that plans read, but not the time of its last heartbeat."""
    if not isinstance(obj, Node):
        return None
    drain = obj.metadata.annotation(names.DRAIN_ANNOTATION)
    return obj.metadata.labels, drain, obj.spec, obj.status.addresses, obj.is_ready


def _labels(obj: Object | None) -> object:
    return obj.metadata.labels if obj is not None else None
