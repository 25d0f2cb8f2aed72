"""
``kavip status``: every VIP with its Service, pool and owner, and the groups, pools and nodes around them.

Pure, and nothing is decided: it is read off what the controller has written. Which node holds the VIP of a Service
stands in the group's status, under the VRID that the Service has there.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import yaml

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.group import InstanceStatus, KeepalivedGroup
from kavip.api.meta import Condition
from kavip.api.pool import Usage, VIPPool
from kavip.api.service import Service
from kavip.cli.views.tables import table
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.service.advertised import IN_VAIN
from kavip.snapshot import Object, Snapshot

_MASTER: Final = "MASTER"
_NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class VirtualIP:
    """One VIP, or a Service that has none yet; *service*: "" where the group names it itself; *node*: "" for none."""

    address: str
    service: str
    group: str
    pool: str
    node: str
    state: str
    message: str

    @property
    def is_well(self) -> bool:
        """Whether exactly one node holds it."""
        return self.state == Reason.MASTER


@dataclass(frozen=True, slots=True)
class Group:
    """A KeepalivedGroup: nodes that it wants, that have a ready pod, that run the newest configuration."""

    group: str
    mode: str
    desired: int
    ready: int
    current: int
    instances: int
    state: str
    message: str


@dataclass(frozen=True, slots=True)
class Pool:
    """A VIPPool, as its status counts it."""

    pool: str
    priority: int
    ipv4: Mapping[str, int] | None
    ipv6: Mapping[str, int] | None
    state: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A node, the groups that it serves, and how many VIPs it holds: one that was drained (*cordoned*) keeps them."""

    node: str
    ready: bool | None
    groups: tuple[str, ...]
    virtual_ips: int
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it, sorted; *notes*: what could not be read."""

    virtual_ips: tuple[VirtualIP, ...]
    groups: tuple[Group, ...]
    pools: tuple[Pool, ...]
    nodes: tuple[Holder, ...]
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit status: 0 every VIP has its master, 1 one has not."""
        return int(not all(each.is_well for each in self.virtual_ips))


@dataclass(frozen=True, slots=True)
class _Seat:
    node: str
    state: str


def overview(objects: Iterable[Object], notes: Iterable[str] = ()) -> Overview:
    """What there is to say of *objects*, of a cluster or of files."""
    snapshot = Snapshot.from_objects(objects)
    seats = _seats(snapshot)
    vips = sorted((*_own(snapshot), *_served(snapshot, seats)), key=_order)
    return Overview(
        virtual_ips=tuple(vips),
        groups=tuple(_group(each) for each in snapshot.every_group),
        pools=tuple(_pool(pool) for _, pool in sorted(snapshot.pools.items())),
        nodes=tuple(_nodes(snapshot, vips)),
        notes=tuple(notes),
    )


def _order(vip: VirtualIP) -> tuple[bool, int, int, str]:
    address = read_address(vip.address)
    return (address is None, *(address or (0, 0)), vip.service)


# --- VIPs -------------------------------------------------------------------------------------------------------------
def _own(snapshot: Snapshot) -> Iterator[VirtualIP]:
    for group in snapshot.every_group:
        told = _group(group).message if group.status.virtual_ips else ""
        for each in group.status.virtual_ips or ():
            state = Reason.MASTER if each.state == _MASTER else each.state or Reason.UNKNOWN
            pool = _pool_of(snapshot, read_address(each.address))
            message = "" if state == Reason.MASTER else told
            yield VirtualIP(each.address, "", group.key, pool, each.node, str(state), message)


def _served(snapshot: Snapshot, seats: Mapping[tuple[str, Address], _Seat]) -> Iterator[VirtualIP]:
    seen = {each.key for each in snapshot.every_group}
    for key, service in sorted(snapshot.services.items()):
        if not any(each.type.startswith(f"{names.KAVIP_GROUP}/") for each in service.status.conditions or ()):
            continue
        group = _group_of(snapshot, service)
        told = _trouble(service)
        for address in service.virtual_ips:
            seat = seats.get((group, address), _Seat("", ""))
            is_held = bool(seat.node) and seat.state == _MASTER
            state = Reason.MASTER.value if is_held else told.reason if told else Reason.UNKNOWN.value
            message = _in_vain(service) if is_held else told.message if told else ""
            if state == Reason.UNKNOWN and group not in seen and (said := _advertised(service)):
                state, message = Reason.MASTER.value, said  # who may not read the group may read this
            yield VirtualIP(str(address), key, group, _pool_of(snapshot, address), seat.node, state, message)
        if not service.virtual_ips and told is not None:
            yield VirtualIP("", key, group, "", "", told.reason, told.message)


def _advertised(service: Service) -> str:
    """What the Service itself says of its masters; "" where it has none."""
    found = conditions.find(service.status.conditions, ConditionType.ADVERTISED)
    return found.message if found is not None and found.status == "True" else ""


def _in_vain(service: Service) -> str:
    """What its condition says beside which nodes hold its VIPs: that nobody answers there."""
    _, found, rest = _advertised(service).partition(IN_VAIN)
    return f"{found}{rest}".removeprefix("; ")


def _trouble(service: Service) -> Condition | None:
    """What keeps the Service from being advertised; what comes first is told first."""
    for kind in (ConditionType.ADDRESS_ASSIGNED, ConditionType.SERVICE_PROGRAMMED, ConditionType.ADVERTISED):
        found = conditions.find(service.status.conditions, kind)
        if found is not None and found.status != "True":
            return found
    return None


def _group_of(snapshot: Snapshot, service: Service) -> str:
    default = snapshot.default_group
    return service.declared_group or (default.key if default else "")


def _seats(snapshot: Snapshot) -> Mapping[tuple[str, Address], _Seat]:
    """Where each VIP of a group is; of Services that share one only the eldest has the instance."""
    by_number = {
        (group.key, each.router_id, each.family): each
        for group in snapshot.every_group
        for each in group.status.instances or ()
    }
    seats: dict[tuple[str, Address], _Seat] = {}
    for service in snapshot.services.values():
        group = snapshot.any_group(_group_of(snapshot, service))
        for address in service.virtual_ips if group else ():
            found = by_number.get((group.key, _router_id(group, service, address), address.family)) if group else None
            if group and found is not None and not seats.get((group.key, address), _Seat("", "")).node:
                seats[group.key, address] = _seat(found)
    return seats


def _router_id(group: KeepalivedGroup, service: Service, address: Address) -> int:
    ids = group.status.router_ids or {}
    return ids.get(f"{service.key}/{address}") or ids.get(service.key, 0)


def _seat(instance: InstanceStatus) -> _Seat:
    return _Seat(instance.node, instance.state)


def _pool_of(snapshot: Snapshot, address: Address | None) -> str:
    pool = snapshot.parsed_pools.pool_of(address) if address else None
    return pool.name if pool else ""


# --- what is around them ----------------------------------------------------------------------------------------------
def _group(group: KeepalivedGroup) -> Group:
    nodes = group.status.nodes
    bad, message = _wrong(group)
    is_known = bool(group.status.conditions)
    return Group(
        group=group.key,
        mode=group.spec.instances.mode,
        desired=nodes.desired if nodes else 0,
        ready=nodes.ready if nodes else 0,
        current=nodes.current if nodes else 0,
        instances=len(group.status.instances or ()),
        state=bad or (Reason.READY.value if is_known else Reason.PENDING.value),
        message=message if bad else _noted(group),
    )


def _wrong(group: KeepalivedGroup) -> tuple[str, str]:
    """Reason and message of what is wrong first; what is only waited for says less than why its pods do not run."""
    kinds = (ConditionType.ACCEPTED, ConditionType.PROGRAMMED, ConditionType.READY)
    found = [each for kind in kinds if (each := conditions.find(group.status.conditions, kind)) and not _is_fine(each)]
    if not found:
        return "", ""
    first, last = found[0], found[-1]
    if first.reason != Reason.PENDING or first.type != ConditionType.PROGRAMMED or last.type != ConditionType.READY:
        return first.reason, first.message
    return last.reason, last.message if last.reason == Reason.NO_NODES else f"{last.message}; {first.message}"


def _noted(group: KeepalivedGroup) -> str:
    """What a group that is well tells beside that: a health check fails on a node, for example."""
    ready = conditions.find(group.status.conditions, ConditionType.READY)
    return ready.message.partition("; ")[2] if ready else ""


def _is_fine(condition: Condition) -> bool:
    return condition.status == "True" and condition.reason != Reason.VRID_COLLISION


def _pool(pool: VIPPool) -> Pool:
    accepted = conditions.find(pool.status.conditions, ConditionType.ACCEPTED)
    ready = conditions.find(pool.status.conditions, ConditionType.READY)
    found = accepted if accepted is not None and accepted.status != "True" else ready
    ipv4, ipv6 = _counts(pool.status.ipv4), _counts(pool.status.ipv6)
    return Pool(pool.name, pool.spec.priority, ipv4, ipv6, found.reason if found else Reason.PENDING.value)


def _counts(usage: Usage | None) -> Mapping[str, int] | None:
    return {"total": usage.total, "assigned": usage.assigned, "available": usage.available} if usage else None


def _nodes(snapshot: Snapshot, vips: Iterable[VirtualIP]) -> Iterator[Holder]:
    """Nodes of groups, and those that hold something although they cannot be read."""
    held = Counter({(each.node, each.address) for each in vips if each.node})
    count = Counter(node for node, _ in held)
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
        yield Holder(name, known.is_ready if known else None, tuple(sorted(keys)), count[name], cordoned=is_cordoned)


# --- as people and programs read it -----------------------------------------------------------------------------------
def text(found: Overview) -> str:
    """Four tables, without colours."""
    parts = [
        table(("ADDRESS", "SERVICE", "GROUP", "POOL", "NODE", "STATE", "MESSAGE"), map(_vip_row, found.virtual_ips)),
        table(("GROUP", "MODE", "NODES", "READY", "CURRENT", "INSTANCES", "STATE", "MESSAGE"), map(_row, found.groups)),
        table(("POOL", "PRIORITY", "IPV4 ASSIGNED", "IPV6 ASSIGNED", "STATE"), map(_pool_row, found.pools)),
        table(("NODE", "READY", "VIPS", "GROUPS"), map(_node_row, found.nodes)),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def data(found: Overview) -> dict[str, Any]:
    """For programs: one object, its lists in the order of the text."""
    told = asdict(found)
    for node in told["nodes"]:
        node["virtualIPs"] = node.pop("virtual_ips")
    told["virtualIPs"] = told.pop("virtual_ips")
    return told


def shown(found: Overview, form: str) -> str:
    """*found* as *form* has it: table, json or yaml."""
    if form == "json":
        return json.dumps(data(found), indent=2, sort_keys=True)
    if form == "yaml":
        plain = json.loads(json.dumps(data(found)))
        return yaml.safe_dump(plain, sort_keys=True, allow_unicode=True, width=200).rstrip("\n")
    return text(found)


def _vip_row(vip: VirtualIP) -> tuple[str, ...]:
    cells = (vip.address, vip.service, vip.group, vip.pool, vip.node, vip.state)
    return (*(cell or _NONE for cell in cells), vip.message)


def _row(group: Group) -> tuple[str, ...]:
    counts = (group.desired, group.ready, group.current, group.instances)
    return (group.group, group.mode, *map(str, counts), group.state, group.message)


def _pool_row(pool: Pool) -> tuple[str, ...]:
    used = (f"{each['assigned']} of {each['total']}" if each else _NONE for each in (pool.ipv4, pool.ipv6))
    return (pool.pool, str(pool.priority), *used, pool.state)


def _node_row(node: Holder) -> tuple[str, ...]:
    ready = _NONE if node.ready is None else "yes" if node.ready else "no"
    ready += ", cordoned" if node.cordoned else ""
    return (node.node, ready, str(node.virtual_ips), ", ".join(node.groups))
