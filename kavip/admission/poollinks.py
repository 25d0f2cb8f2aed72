"""
The rules for ``spec.interface`` and ``spec.routing`` of a VIPPool.

:mod:`kavip.ipam.pool` checks the fields by themselves. The rules here compare the routing tables of pools, count the
VRRP instances that VIPs need on their interface, and say which VIPs an edit moves.
"""

from collections.abc import Collection, Iterator
from typing import Final

from kavip.admission import routeridusage
from kavip.admission.chain import Context, Findings
from kavip.admission.disruption import PAUSE, SWITCHOVER
from kavip.admission.text import counted, listed, quoted
from kavip.admission.verdict import AdmissionWarning
from kavip.api.address import read_address
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import PoolRouting, VIPPool
from kavip.api.refusal import Refusal
from kavip.api.returnroute import MOST_MARKS, is_table, mark_of
from kavip.api.service import Service
from kavip.ipam.pool import Pool, parse_pool
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.vrrp.members import has_own_instances
from kavip.vrrp.sharding import instance_on, shard_of

_TABLE: Final = "spec.routing.table"
_GROUP: Final = "the group's interface"


def routing_table_is_free(pool: VIPPool, context: Context[VIPPool]) -> Findings:
    """No other pool uses the routing table, or its mark on connections, for another gateway."""
    parsed, _ = parse_once(pool, context)
    if parsed is None or parsed.routing is None:
        return
    table, mark = parsed.routing.table, mark_of(parsed.routing.table)
    others = [(each, each.routing) for each in _pools(context.snapshot) if each.name != pool.name and each.routing]
    for other, routing in others:
        if mark_of(routing.table) != mark or _leads_the_same_way(parsed, other):
            continue
        what = "uses it" if routing.table == table else f"uses {routing.table}, which has the same mark,"
        free = _free_table(table, {mark_of(each.table) for _, each in others})
        message = f"pool {other.name} {what} for {listed(routing.gateways)} on {other.interface}; want {free}"
        yield Refusal(Reason.INVALID, f"{_TABLE}: {table}: {message}", _TABLE)
        return


def every_family_has_a_gateway(pool: VIPPool, context: Context[VIPPool]) -> Findings:
    """A pool with ``routing`` has a gateway for each family of its addresses."""
    parsed, _ = parse_once(pool, context)
    if parsed is None or parsed.routing is None:
        return
    routed = {gateway.family for gateway in parsed.routing.gateways}
    for family in sorted({span.family for span in parsed.ranges} - routed):
        field = "spec.routing.gatewayIPv6" if family == 6 else "spec.routing.gateway"
        message = f"the {FAMILY_NAMES[family]} addresses have no gateway; their replies leave by the nodes' own routes"
        yield AdmissionWarning(message, field)


def gateway_is_another_machine(pool: VIPPool, context: Context[VIPPool]) -> Iterator[AdmissionWarning]:
    """The gateway is no address that a node, a group or the API server has."""
    routing = pool.spec.routing or PoolRouting()
    for name, text in (("gateway", routing.gateway), ("gatewayIPv6", routing.gateway_ipv6)):
        gateway = read_address(text)
        if gateway is not None and (owner := context.snapshot.ledger.owner(gateway)):
            message = f"{gateway} is an address of {owner}; want that of a router"
            yield AdmissionWarning(message, f"spec.routing.{name}")


def router_ids_suffice_on_the_interface(pool: VIPPool, context: Context[VIPPool]) -> Findings:
    """Groups in mode Shared have enough VRIDs for the instances that the VIPs of the pool need on its interface."""
    snapshot, parsed = context.snapshot, parse_once(pool, context)[0]
    if parsed is None or not parsed.interface:
        return
    for group, services in _holders(parsed, snapshot):
        if not group.is_shared or parsed.interface == group.spec.interface:
            continue
        shards = {shard_of(each.key, group.spec.instances.count) for each in services if not has_own_instances(each)}
        there = routeridusage.instances_on_interfaces(group, snapshot)
        needed = {instance_on(shard, parsed.interface) for shard in shards} - there
        usage = routeridusage.UsageCounter(snapshot).usage(group)
        if needed and len(needed) > usage.left:
            message = (
                f"group {group.key} needs {counted(len(needed), 'virtual router ID')} for it, and has "
                f"{max(usage.left, 0)} left: {usage}; lower spec.instances.count of the group, or use another group"
            )
            message = f"spec.interface: {quoted(parsed.interface)}: {message}"
            yield Refusal(Reason.ROUTER_IDS_EXHAUSTED, message, "spec.interface")


def running_vips_are_moved(pool: VIPPool, context: Context[VIPPool]) -> Iterator[AdmissionWarning]:
    """An edit of interface or routing disrupts running VIPs."""
    old = context.old
    parsed = parse_once(old, context)[0] if old is not None else None
    if old is None or parsed is None:
        return
    before, after = old.spec, pool.spec
    holders = list(_holders(parsed, context.snapshot))
    moving = [
        service.key
        for group, services in holders
        for service in services
        if (before.interface or group.spec.interface) != (after.interface or group.spec.interface)
    ]
    if moving:
        change = f"{_name(before.interface)} becomes {_name(after.interface)}"
        yield AdmissionWarning(f"{change}: {SWITCHOVER}; {_vips_of(moving)} {PAUSE}", "spec.interface")
    if holders and before.routing != after.routing:
        change = f"{_way(before.routing)} becomes {_way(after.routing)}"
        vips = _vips_of([service.key for _, services in holders for service in services])
        yield AdmissionWarning(f"{change}: {SWITCHOVER}; replies of {vips} take another way", "spec.routing")


def deletion_moves_no_vip(pool: VIPPool, context: Context[VIPPool]) -> Iterator[AdmissionWarning]:
    """Without the pool, its VIPs live on the interfaces of their groups."""
    stored = context.snapshot.pools.get(pool.name)  # of the deleted object only metadata is read
    parsed = parse_once(stored, context)[0] if stored is not None else None
    if parsed is None or not parsed.interface:
        return
    moving = [
        service.key
        for group, services in _holders(parsed, context.snapshot)
        for service in services
        if parsed.interface != group.spec.interface
    ]
    if moving:
        message = f"the VIPs of {listed(sorted(moving), most=3)} move from {parsed.interface} to {_GROUP}"
        yield AdmissionWarning(message, "metadata.name")


def parse_once(pool: VIPPool, context: Context[VIPPool]) -> tuple[Pool | None, tuple[Refusal, ...]]:
    """*pool* as ipam parses it, once a review."""
    if id(pool) not in context.parsed:
        context.parsed[id(pool)] = parse_pool(pool)
    parsed: tuple[Pool | None, tuple[Refusal, ...]] = context.parsed[id(pool)]
    return parsed


def _pools(snapshot: Snapshot) -> Iterator[Pool]:
    """The pools that could be read, in force or not, by name."""
    found = (snapshot.parsed_pools.read(name) for name in sorted(snapshot.pools))
    return (pool for pool in found if pool is not None)


def _free_table(table: int, taken: Collection[int]) -> str:
    """The number of a routing table whose mark is not *taken*, if there is one: the next one after *table*."""
    candidates = (each for each in range(table + 1, table + MOST_MARKS + 1) if is_table(each))
    free = next((each for each in candidates if mark_of(each) not in taken), None)
    return f"another number, such as {free}" if free else f"at most {MOST_MARKS} tables in all"


def _leads_the_same_way(one: Pool, other: Pool) -> bool:
    if one.routing is None or other.routing is None:
        return False
    if (one.routing.table, one.interface) != (other.routing.table, other.interface):
        return False
    theirs = {gateway.family: gateway for gateway in other.routing.gateways}
    return all(theirs.get(each.family, each) == each for each in one.routing.gateways)


def _holders(pool: Pool, snapshot: Snapshot) -> Iterator[tuple[KeepalivedGroup, list[Service]]]:
    """The Services with addresses of *pool*, by the group that serves them, sorted."""
    keys = {terms.key for _, terms, _ in snapshot.ledger.claims_in(pool)}
    found: dict[str, list[Service]] = {}
    for key in sorted(keys & snapshot.services.keys()):
        found.setdefault(snapshot.group_of(snapshot.services[key]) or "", []).append(snapshot.services[key])
    for group, services in sorted(found.items()):
        if group in snapshot.groups:
            yield snapshot.groups[group], services


def _vips_of(services: list[str]) -> str:
    return f"the VIPs of {listed(sorted(services), most=2)}"


def _name(interface: str | None) -> str:
    return quoted(interface) if interface else _GROUP


def _way(routing: PoolRouting | None) -> str:
    if routing is None:
        return "no routing"
    return f"{', '.join(filter(None, (routing.gateway, routing.gateway_ipv6)))} (table {routing.table})"
