"""
What the nodes of a group need of the pools in which its VIPs are.
"""

from kavip.api.address import Address
from kavip.api.agentconfig import ReturnRoute
from kavip.api.spans import Span
from kavip.ipam.pool import Pool
from kavip.reconcile.rollout.poollinks import PoolLinks
from kavip.snapshot import Snapshot
from kavip.vrrp.sharding import Shards


def links_of(snapshot: Snapshot, members: Shards) -> PoolLinks:
    """The interfaces and routes that the pools of *members* name, sorted."""
    pools = (snapshot.parsed_pools.read(name) for name in sorted(members.routed_by))
    return PoolLinks(
        tuple(sorted(members.pool_interfaces)),
        tuple(route for pool in pools if pool is not None and (route := _route(pool))),
    )


def _route(pool: Pool) -> ReturnRoute | None:
    if pool.routing is None:
        return None
    families = {gateway.family for gateway in pool.routing.gateways}
    spans = (span for span in pool.ranges if span.family in families)
    return ReturnRoute(
        pool=pool.name,
        interface=pool.interface,
        table=pool.routing.table,
        gateways=tuple(map(str, pool.routing.gateways)),
        addresses=tuple(str(Span(Address(each.family, each.first), Address(each.family, each.last))) for each in spans),
    )
