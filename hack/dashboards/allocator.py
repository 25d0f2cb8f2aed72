"""The dashboard of pools and of the Services that get addresses from them."""

from typing import Final

from hack.dashboards.model import Dashboard, Panel, Query, Row, Unit, Variable, legend, quantiles, rate

_POOL: Final = Variable(name="pool", series="kavip_pool_addresses", label="pool", everything=".*")
_OF_POOL: Final = 'pool=~"$pool"'

ALLOCATOR: Final = Dashboard(
    name="allocator",
    title="kavip / Allocator",
    description="The addresses of the pools, and how Services get them.",
    variables=(_POOL,),
    rows=(
        Row(
            "Pools",
            (
                Panel(
                    title="Free share of a pool",
                    description="Free addresses of a pool divided by all of them. Addresses that cool down are not "
                    "free.",
                    queries=(
                        Query(
                            f'max by (pool, family) (kavip_pool_addresses{{{_OF_POOL},state="available"}})'
                            f' / max by (pool, family) (kavip_pool_addresses{{{_OF_POOL},state="total"}})',
                            legend("pool", "family"),
                        ),
                    ),
                    unit=Unit.SHARE,
                    alerts=("KavipPoolNearlyExhausted",),
                ),
                Panel(
                    title="Addresses in use",
                    description="Addresses that Services have, and addresses that cool down: they stay reserved for "
                    "the Service that had them.",
                    queries=(
                        Query(
                            "max by (pool, family, state) "
                            f'(kavip_pool_addresses{{{_OF_POOL},state=~"assigned|cooling"}})',
                            legend("pool", "family", "state"),
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Services",
            (
                Panel(
                    title="Services that wait",
                    description="Services that get no address, by the first pool that they wait for (none: by no "
                    "pool) and by the reason of their condition kavip.io/AddressAssigned.",
                    queries=(
                        Query(
                            f"sum by (pool, reason) (kavip_services_waiting{{{_OF_POOL}}})", legend("pool", "reason")
                        ),
                    ),
                    alerts=("KavipPoolExhausted", "KavipServicesWaiting"),
                ),
                Panel(
                    title="Allocations",
                    description="Services per second that got addresses, in all pools.",
                    queries=(Query("sum(rate(kavip_allocation_seconds_count[$__rate_interval]))", "allocations"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Duration of an allocation",
                    description="The median and the 99th percentile of the time from the request, or from when "
                    "addresses were freed for it, to the write that assigns them; in all pools.",
                    queries=quantiles("kavip_allocation_seconds"),
                    unit=Unit.DURATION,
                ),
                Panel(
                    title="Conflicts about an address",
                    description="Conflicts per second: two Services hold an address, a node or a group has it, too, or "
                    "a write of it was too late. Each replica counts the first two.",
                    queries=(rate("kavip_address_conflicts_total", "reason"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Recovered cool-downs",
                    description="Terms of a leader by how completely the cool-downs from before were recovered. After "
                    "partial and expired a Service may get an address that another one had a moment ago.",
                    queries=(Query("sum by (result) (kavip_cooldown_recoveries_total)", legend("result")),),
                ),
            ),
        ),
    ),
)
