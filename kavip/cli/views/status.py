"""
The state of every VIP, with its Service, pool and node, and of the groups, pools and nodes: ``kavip status``.

Everything is read from what the controller has written; nothing is decided again. The node that holds the VIP of a
Service is in the status of its group, at the VRID of the Service.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.cluster import Node
from kavip.api.group import InstanceStatus, KeepalivedGroup
from kavip.api.meta import Condition
from kavip.api.pool import PoolInterface, PoolRouting, Usage, VIPPool
from kavip.api.service import Service
from kavip.names import ConditionType, Reason
from kavip.reconcile.group.inactive import is_ignored
from kavip.snapshot import Object, Snapshot
from kavip.vrrp.drain import drain_signal
from kavip.vrrp.keys import address_key
from kavip.vrrp.sharding import instance_on, shard_count, shard_of

_MASTER: Final = "MASTER"
_HELD_IN_VAIN: Final = (Reason.ADDRESS_CONFLICT, Reason.NO_ENDPOINTS, Reason.ENDPOINTS_OUTSIDE_GROUP)
"""The reasons of Advertised with which a VIP may have a master and does not answer."""
_UNSEEN: Final = "kavip has written no condition yet; kavip doctor says whether its controller runs"

Masters = Mapping[tuple[str, Address], InstanceStatus]
"""The instance of each VIP, by group and address."""

_ASSIGNING: Final = (ConditionType.ADDRESS_ASSIGNED,)
_ANNOUNCING: Final = (ConditionType.SERVICE_PROGRAMMED, ConditionType.ADVERTISED)


@dataclass(frozen=True, slots=True)
class VirtualIPRow:
    """
    A VIP, or a Service that waits for one.

    *service*: "" for a VIP of the group itself; *node*: "" for none. *message*: that of the condition from which
    *state* is. *router_id*: 0 if it is in no instance that an agent reports; *interface*: that of its pool or group.
    """

    address: str
    service: str
    group: str
    pool: str
    node: str
    state: str
    message: str
    router_id: int = 0
    interface: str = ""

    @property
    def is_held(self) -> bool:
        """Whether exactly one node holds it, and answers if the Service has a ready endpoint at all."""
        return self.state in (Reason.MASTER, Reason.NO_ENDPOINTS)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """
    A KeepalivedGroup; *desired* nodes, *ready* pods, and *current* nodes with the newest configuration.

    *drained*: the nodes that its configuration drains.
    """

    group: str
    mode: str
    desired: int
    ready: int
    current: int
    instances: int
    state: str
    message: str
    drained: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A VIPPool, with the numbers of its status. *gateways*: by which replies leave, in the routing table *table*."""

    pool: str
    priority: int
    ipv4: Mapping[str, int] | None
    ipv6: Mapping[str, int] | None
    state: str
    interface: str
    gateways: tuple[str, ...]
    table: int
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRow:
    """
    A node, its groups and the number of VIPs that it holds; a *cordoned* node keeps them, a *drained* one does not.

    *group_virtual_ips*: the number of all VIPs of its groups, of which it has its share.
    """

    node: str
    ready: bool | None
    groups: tuple[str, ...]
    virtual_ips: int
    group_virtual_ips: int = 0
    cordoned: bool = False
    drained: bool = False


@dataclass(frozen=True, slots=True)
class StatusReport:
    """All rows, sorted; *notes*: what could not be read."""

    virtual_ips: tuple[VirtualIPRow, ...]
    groups: tuple[GroupRow, ...]
    pools: tuple[PoolRow, ...]
    nodes: tuple[NodeRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit status: 0 every VIP has exactly one master and no Service waits for one, 1 otherwise."""
        return int(not all(each.is_held for each in self.virtual_ips))


def report(objects: Iterable[Object], notes: Iterable[str] = ()) -> StatusReport:
    """The report about *objects* of a cluster or of files."""
    return report_of(Snapshot.from_objects(objects), notes)


def report_of(snapshot: Snapshot, notes: Iterable[str] = ()) -> StatusReport:
    """The report about the objects of *snapshot*."""
    masters = _masters(snapshot)
    vips = sorted((*_group_vips(snapshot), *_service_vips(snapshot, masters)), key=_by_address)
    return StatusReport(
        virtual_ips=tuple(vips),
        groups=tuple(_group_row(each) for each in snapshot.every_group),
        pools=tuple(_pool_row(pool) for _, pool in sorted(snapshot.pools.items())),
        nodes=tuple(_node_rows(snapshot, vips)),
        notes=tuple(notes),
    )


def _by_address(vip: VirtualIPRow) -> tuple[bool, int, int, str]:
    address = read_address(vip.address)
    return (address is None, *(address or (0, 0)), vip.service)


# --- VIPs -------------------------------------------------------------------------------------------------------------
def _group_vips(snapshot: Snapshot) -> Iterator[VirtualIPRow]:
    """The VIPs that groups themselves name; they have no conditions, so the message is that of the group."""
    for group in snapshot.every_group:
        for each in group.status.virtual_ips or ():
            state = Reason.MASTER if each.state == _MASTER else each.state or Reason.UNKNOWN
            pool = _pool_of(snapshot, read_address(each.address))
            message = "" if state == Reason.MASTER else _group_row(group).message
            yield VirtualIPRow(each.address, "", group.key, pool, each.node, str(state), message)


def _service_vips(snapshot: Snapshot, masters: Masters) -> Iterator[VirtualIPRow]:
    known = {each.key for each in snapshot.every_group}
    for key, service in sorted(snapshot.services.items()):
        group, problem = _group_of(snapshot, service), _first_problem(service, _ANNOUNCING)
        unseen: tuple[str, str] | None = None
        if not any(each.type.startswith(f"{names.KAVIP_GROUP}/") for each in service.status.conditions or ()):
            found = snapshot.any_group(group)
            if group not in known or (service.virtual_ips and found is not None and is_ignored(found)):
                continue
            unseen = _unseen(found)
            if service.is_load_balancer and not service.virtual_ips:
                yield VirtualIPRow("", key, group, "", "", *unseen)
        for address in service.virtual_ips:
            master = masters.get((group, address)) if group in known else None
            node, pool = master.node if master else "", _pool_of(snapshot, address)
            state, message = _state(service, master, problem, is_known=group in known)
            if unseen and state == Reason.UNKNOWN:
                state, message = unseen
            router_id, interface = master.router_id if master else 0, _interface_of(snapshot, group, address)
            yield VirtualIPRow(str(address), key, group, pool, node, state, message, router_id, interface)
        waits = _first_problem(service, _ASSIGNING) or (problem if not service.virtual_ips else None)
        if waits is not None and (waits.status == "False" or not service.virtual_ips):
            yield VirtualIPRow("", key, group, "", "", waits.reason, waits.message)


def _state(
    service: Service, master: InstanceStatus | None, problem: Condition | None, *, is_known: bool
) -> tuple[str, str]:
    """
    The state of a VIP and the message for it.

    A VIP that is held needs no message, unless another machine has it too, or no node of the group has a ready endpoint
    (``externalTrafficPolicy: Local``). Where the user may not read the group, the Service's own condition names the
    master.
    """
    advertised = conditions.find(service.status.conditions, ConditionType.ADVERTISED)
    message = advertised.message if advertised is not None and advertised.status == "True" else ""
    if advertised is not None and advertised.reason in _HELD_IN_VAIN:
        return advertised.reason, advertised.message
    if master is not None and master.node and master.state == _MASTER:
        return Reason.MASTER.value, ""
    if problem is not None:
        return problem.reason, problem.message
    return (Reason.MASTER.value, message) if message and not is_known else (Reason.UNKNOWN.value, "")


def _unseen(group: KeepalivedGroup | None) -> tuple[str, str]:
    """
    The state of a Service of *group* without a condition of kavip, and the message for it.

    A default group that kavip ignores adopts no Service, so the controller writes nothing about it.
    """
    if group is None or not is_ignored(group):
        return Reason.PENDING, _UNSEEN
    _, message = _group_state(group)
    return Reason.GROUP_NOT_FOUND, f"kavip does not serve KeepalivedGroup {group.key}: {message}"


def _first_problem(service: Service, kinds: Iterable[ConditionType]) -> Condition | None:
    """The first condition of *kinds* that is not True."""
    for kind in kinds:
        found = conditions.find(service.status.conditions, kind)
        if found is not None and found.status != "True":
            return found
    return None


def _group_of(snapshot: Snapshot, service: Service) -> str:
    return snapshot.group_of(service) or ""


def _masters(snapshot: Snapshot) -> Masters:
    """The instance of each VIP; of Services that share one, only the oldest has the instance."""
    by_router_id = {
        (group.key, each.router_id, each.family): each
        for group in snapshot.every_group
        for each in group.status.instances or ()
    }
    found: dict[tuple[str, Address], InstanceStatus] = {}
    for service in snapshot.services.values():
        group = snapshot.any_group(_group_of(snapshot, service))
        if group is None:
            continue
        for address in service.virtual_ips:
            before = found.get((group.key, address))
            ids = _router_ids(group, service, address, interface=snapshot.interface_of(address))
            instances = (by_router_id.get((group.key, router_id, address.family)) for router_id in ids)
            instance = next(filter(None, instances), None)
            if instance is not None and (before is None or not before.node):
                found[group.key, address] = instance
    return found


def _router_ids(
    group: KeepalivedGroup, service: Service, address: Address, *, interface: PoolInterface | None
) -> Iterator[int]:
    """The VRIDs of *address*: that of its own instance, which starts with a switch, and that of its Service's."""
    router_ids, keys = group.status.router_ids or {}, [address_key(service.key, address)]
    if group.is_shared and not service.is_local:
        shard = shard_of(service.key, shard_count(group))
        keys += [instance_on(shard, interface.interface), shard] if interface else [shard]
    else:
        keys.append(service.key)
    yield from (router_ids[key] for key in keys if key in router_ids)


def _interface_of(snapshot: Snapshot, group: str, address: Address) -> str:
    """The interface of *address*: that of its pool, else that of its group."""
    own, found = snapshot.interface_of(address), snapshot.any_group(group)
    return own.interface if own else (found.spec.interface or "" if found else "")


def _pool_of(snapshot: Snapshot, address: Address | None) -> str:
    pool = snapshot.parsed_pools.pool_of(address) if address else None
    return pool.name if pool else ""


# --- groups, pools, nodes ---------------------------------------------------------------------------------------------
def _group_row(group: KeepalivedGroup) -> GroupRow:
    nodes = group.status.nodes
    state, message = _group_state(group)
    return GroupRow(
        group=group.key,
        mode=group.spec.instances.mode,
        desired=nodes.desired if nodes else 0,
        ready=nodes.ready if nodes else 0,
        current=nodes.current if nodes else 0,
        instances=len(group.status.instances or ()),
        state=state,
        message=message,
        drained=tuple(group.status.drained_nodes or ()),
    )


def _group_state(group: KeepalivedGroup) -> tuple[str, str]:
    """The reason and message of the first problem; of Ready if there is none."""
    kinds = (ConditionType.ACCEPTED, ConditionType.PROGRAMMED, ConditionType.READY)
    found = [each for kind in kinds if (each := conditions.find(group.status.conditions, kind))]
    bad = [each for each in found if each.status != "True" or each.reason == Reason.VRID_COLLISION]
    if not bad:
        ready = [each for each in found if each.type == ConditionType.READY]
        return (Reason.READY if found else Reason.PENDING).value, ready[0].message if ready else ""
    first, last = bad[0], bad[-1]
    if first.reason != Reason.PENDING or first.type != ConditionType.PROGRAMMED or last.type != ConditionType.READY:
        return first.reason, first.message
    # why its pods do not run is more than that a configuration is pending
    return last.reason, last.message if last.reason == Reason.NO_NODES else f"{last.message}; {first.message}"


def _pool_row(pool: VIPPool) -> PoolRow:
    accepted = conditions.find(pool.status.conditions, ConditionType.ACCEPTED)
    ready = conditions.find(pool.status.conditions, ConditionType.READY)
    found = accepted if accepted is not None and accepted.status != "True" else ready
    ipv4, ipv6 = _counts(pool.status.ipv4), _counts(pool.status.ipv6)
    state, routing = found.reason if found else Reason.PENDING.value, pool.spec.routing or PoolRouting()
    gateways = tuple(filter(None, (routing.gateway, routing.gateway_ipv6)))
    interface, addresses = pool.spec.interface or "", tuple(pool.spec.addresses)
    return PoolRow(pool.name, pool.spec.priority, ipv4, ipv6, state, interface, gateways, routing.table, addresses)


def _counts(usage: Usage | None) -> Mapping[str, int] | None:
    return {"total": usage.total, "assigned": usage.assigned, "available": usage.available} if usage else None


def _is_drained(snapshot: Snapshot, node: Node, groups: Collection[str]) -> bool:
    """Whether one of *groups*, by its own signals, treats *node* as drained."""
    found = (snapshot.groups[key].spec for key in groups if key in snapshot.groups)
    return any(drain_signal(node, spec) for spec in found)


def _node_rows(snapshot: Snapshot, vips: Sequence[VirtualIPRow]) -> Iterator[NodeRow]:
    """The nodes of groups, and nodes that hold a VIP but cannot be read."""
    held = Counter({(each.node, each.address) for each in vips if each.node})
    count = Counter(node for node, _ in held)
    addresses: defaultdict[str, set[str]] = defaultdict(set)
    for each in vips:
        addresses[each.group] |= {each.address} - {""}
    groups: dict[str, set[str]] = {}
    for group in snapshot.every_group:
        for node in snapshot.group_nodes(group):
            groups.setdefault(node.metadata.name, set()).add(group.key)
    for each in vips:
        if each.node:
            groups.setdefault(each.node, set()).add(each.group)
    for name, keys in sorted(groups.items()):
        known = snapshot.nodes.get(name)
        is_cordoned = known is not None and any(each.key == names.CORDONED_TAINT for each in known.spec.taints or ())
        yield NodeRow(
            name,
            known.is_ready if known else None,
            tuple(sorted(keys)),
            count[name],
            sum(len(addresses[key]) for key in keys),
            cordoned=is_cordoned,
            drained=known is not None and _is_drained(snapshot, known, keys),
        )
