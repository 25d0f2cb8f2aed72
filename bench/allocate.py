"""
Time the allocator in process: ``python -m bench.allocate``.

From a parsed request to addresses with a reason, entered in the ledger; no JSON, no API server. Figures of one run are
compared with each other: a time per allocation that does not grow with what is held is the point of the design.
"""

import sys
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from time import perf_counter

from kavip import names
from kavip.api.address import Address
from kavip.api.meta import Condition, LabelSelector, Metadata
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Ingress, LoadBalancer, Service, ServicePort, ServiceSpec, ServiceStatus
from kavip.ipam.addresses import parse_range
from kavip.ipam.allocate import Allocation, decide
from kavip.ipam.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.request import Request, read_request

NAMESPACES = 4
LABELS = {"env": "prod"}


def main() -> None:
    """Print the table."""
    count = 20_000
    print(f"allocator in process, Python {sys.version.split()[0]}")
    seconds, ledger = allocated(count, "10.64.0.0/16")
    row(f"allocate {count:,} Services from a /16, all rules on", f"{seconds:.3f} s")
    for family, (total, assigned, available, _) in ledger.usage("bench").items():
        row(f"  pool_status, IPv{family}", f"total {total:,}, assigned {assigned:,}, available {available:,}")
    few = grown(1_000, "10.64.0.0/16")
    for size, time in ((1_000, few), (count, grown(count, "10.64.0.0/16")), (100_000, grown(100_000, "10.64.0.0/14"))):
        row(f"  per allocation at {size:,}", f"{time * 1e6:.1f} us, {time / few:.2f} x")
    row("  dual stack, per Service", f"{allocated(count, '10.64.0.0/16', 'fd00::/64')[0] / count * 1e6:.1f} us")
    for length in (24, 20, 16):
        row(f"fail on a full /{length}", f"{failing(length) * 1e6:.1f} us")
    row("next allocation, last address of a /16 beside an empty /8", f"{last_of_two() * 1e6:.1f} us")
    row("free and allocate again at 50,000 held, first and second half", halves(50_000, 100_000))
    row(f"restart: observe {count:,} holders", f"{restarted(count):.3f} s")
    row("overlap check of one pool against 3,000 CIDRs", f"{overlap(3_000) * 1e6:.1f} us")


def row(what: str, figure: str) -> None:
    """Print one line of the table."""
    print(f"{what:<66} {figure}")


def best(times: int, measure: Callable[[], float]) -> float:
    """The least of several measurements: what disturbs a measurement only ever adds to it."""
    return min(measure() for _ in range(times))


def allocated(count: int, *addresses: str) -> tuple[float, Ledger]:
    """The seconds that *count* Services take, and the ledger afterwards."""
    pools = Pools.of([pool("bench", *addresses)])
    ledger, found = Ledger(pools), services(count, dual=len(addresses) > 1)
    requests = entered(found, ledger)
    start = perf_counter()
    for request in requests:
        take(request, pools, ledger)
    return perf_counter() - start, ledger


def grown(count: int, *addresses: str) -> float:
    """The median time per allocation of runs that together do the same work whatever *count* is."""
    return median(allocated(count, *addresses)[0] / count for _ in range(max(100_000 // count, 1)))


def failing(length: int) -> float:
    """The seconds that one more Service takes to fail on a full pool of that prefix length."""
    pools = Pools.of([pool("bench", f"10.64.0.0/{length}")])
    ledger = Ledger(pools)
    *holders, last = entered(services((1 << (32 - length)) + 1), ledger)
    for request in holders:
        take(request, pools, ledger)

    def fail() -> float:
        start = perf_counter()
        outcome = decide(last, pools, ledger, namespace_labels=LABELS)
        assert isinstance(outcome, Refusal)
        return perf_counter() - start

    return best(100, fail)


def last_of_two() -> float:
    """The seconds of the next allocation where a /16 has one address left and a /8 is empty."""
    pools = Pools.of([pool("bench", "10.64.0.0/16"), pool("wide", "11.0.0.0/8", priority=200)])
    ledger = Ledger(pools)
    *holders, last = entered(services(1 << 16), ledger)
    for request in holders:
        take(request, pools, ledger)

    def again() -> float:
        ledger.abandon(last.key)
        start = perf_counter()
        take(last, pools, ledger)
        return perf_counter() - start

    return best(100, again)


def halves(held: int, rounds: int) -> str:
    """Time per round of freeing a random holder and serving it again, early and late."""
    pools = Pools.of([pool("bench", "10.64.0.0/16")])
    ledger, random = Ledger(pools), Random(1)
    found = services(held)
    requests = entered(found, ledger)
    for request in requests:
        take(request, pools, ledger)
    times = []
    for _ in range(2):
        start = perf_counter()
        for _ in range(rounds // 2):
            at = random.randrange(held)
            ledger.observe(found[at].key, None)
            ledger.observe(found[at].key, found[at])
            take(requests[at], pools, ledger)
        times.append((perf_counter() - start) / (rounds // 2))
    return " and ".join(f"{time * 1e6:.1f} us" for time in times)


def restarted(count: int) -> float:
    """The seconds that a new ledger takes to enter all holders."""
    pools = Pools.of([pool("bench", "10.64.0.0/16")])
    first = parse_range("10.64.0.0/16").first
    holders = services(count, held=[Address(4, first + index) for index in range(count)])
    ledger = Ledger(pools)
    start = perf_counter()
    for service in holders:
        ledger.observe(service.key, service)
    return perf_counter() - start


def overlap(count: int) -> float:
    """The seconds that the check of one more pool takes."""
    stored = Pools.of(pool(f"p{index}", f"10.{index >> 8}.{index & 255}.0/24") for index in range(count))
    new = pool("new", "11.0.0.0/24")

    def check() -> float:
        start = perf_counter()
        assert not stored.check(new)
        return perf_counter() - start

    return best(20, check)


def pool(name: str, *addresses: str, priority: int = 100) -> VIPPool:
    """A pool with every rule on."""
    spec = PoolSpec(
        addresses=list(addresses),
        priority=priority,
        service_selector=LabelSelector(match_labels=LABELS),
        namespace_selector=LabelSelector(match_labels=LABELS),
        groups=["lb/edge"],
        max_per_namespace=1 << 30,
    )
    return VIPPool(metadata=Metadata(name=name, creation_timestamp="2026-01-01T00:00:00Z"), spec=spec)


def services(count: int, *, held: Sequence[Address] = (), dual: bool = False) -> list[Service]:
    """Services of one group in a few namespaces, with and without a sharing key of their own."""
    return [_service(index, held[index] if held else None, dual) for index in range(count)]


def entered(found: list[Service], ledger: Ledger) -> list[Request]:
    """What *found*, which *ledger* has seen without addresses, ask for."""
    for service in found:
        ledger.observe(service.key, service)
    return [read_request(service)[0] for service in found]


def take(request: Request, pools: Pools, ledger: Ledger) -> None:
    """Decide and remember, as the controller does."""
    outcome = decide(request, pools, ledger, namespace_labels=LABELS)
    assert isinstance(outcome, Allocation), outcome
    ledger.expect(request.key, outcome.addresses, resource_version="1")


def _service(index: int, held: Address | None, dual: bool) -> Service:
    annotations = {names.GROUP_ANNOTATION: "lb/edge"}
    if index % 10 == 0:
        annotations[names.SHARING_KEY_ANNOTATION] = f"key-{index}"
    condition = Condition(type=names.Condition.ADDRESS_ASSIGNED, status="True", reason=names.Reason.ASSIGNED)
    status = ServiceStatus(load_balancer=LoadBalancer(ingress=[Ingress(ip=str(held))]), conditions=[condition])
    return Service(
        metadata=Metadata(
            name=f"s{index:06}",
            namespace=f"bench-{index % NAMESPACES}",
            creation_timestamp="2026-01-01T00:00:00Z",
            resource_version="1",
            labels=LABELS,
            annotations=annotations,
        ),
        spec=ServiceSpec(
            type="LoadBalancer",
            ports=[ServicePort(port=80)],
            ip_families=["IPv4", "IPv6"] if dual else ["IPv4"],
            ip_family_policy="RequireDualStack" if dual else "SingleStack",
        ),
        status=status if held else ServiceStatus(),
    )


if __name__ == "__main__":
    main()
