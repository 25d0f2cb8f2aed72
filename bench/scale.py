"""
Time the allocator at scale: ``python -m bench.scale``.

Each operation is timed with few and with many pools, waiting Services, or Services that share an address, in process.
The growth counts: no decision may scan all pools, all waiting Services or all sharers of an address.
"""

from collections.abc import Callable

from bench.objects import LABELS, LARGE, SMALL, allocate, enter, first_of, pool, service, services
from bench.timing import MICRO, best, clock, flat, frozen, in_turns, plain, timed
from kavip.api.address import Address
from kavip.api.service import Service
from kavip.ipam.allocate import decide, waits_for
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.request import Request, read_request

TIMES, TURNS = 50, 6
FAR = 900_000
"""The first number of additional Services, above all numbers of the many."""

Operation = Callable[[], object]


def main() -> None:
    """Print the table."""
    print("the allocator in process, at scale")
    row("3,000 pools, only the last selects the Service", selective, few=3, many=3_000)
    row("3,000 pools select the Service, only the last has free addresses", full_pools, few=3, many=3_000)
    row("3,000 full pools select the Service: the refusal", refused, few=110, many=3_000)
    row("free one address while 5,000 Services wait, and take it again", freed_while_others_wait, few=5, many=5_000)
    row("join and leave an address that 1,000 Services share", shared, few=10, many=1_000)
    row("a sharing key with 1,000 addresses, one more Service with the same port", same_key, few=10, many=1_000)
    row("a quota, 50,000 addresses used", quota, few=50, many=50_000)
    row("an explicitly requested address, 50,000 held", named, few=50, many=50_000)
    row("an IPv6 /64, 50,000 held", wide, few=50, many=50_000)
    seconds = best(TIMES, freed_while_others_wait(500, own_keys=True))
    plain("free one while 500 Services wait, each with its own sharing key", f"{seconds * MICRO:.1f} us")
    for held in (5_000, 50_000):
        plain(f"one pool edited, {held:,} Services held (once per edit)", f"{edited(held) * 1e3:.1f} ms")


def row(what: str, prepare: Callable[[int], Operation], *, few: int, many: int) -> None:
    """Print the time of the operation that *prepare* makes, with *few* and with *many*, measured in turns."""
    small, large = prepare(few), prepare(many)
    with frozen():
        little, much = in_turns(clock(small), clock(large), turns=TURNS, times=TIMES)
    plain(what, f"{much * MICRO:.1f} us")
    flat(f"  growth, {many:,} / {few:,}", little, much, most=1.5)


def decision(request: Request, pools: Pools, ledger: Ledger) -> Operation:
    """The decision on *request*, which changes nothing."""
    return lambda: decide(request, pools, ledger, namespace_labels=LABELS)


def selective(count: int) -> Operation:
    """A decision with *count* pools, each of which selects different Services."""
    pools = Pools.of(pool(f"p{index:04}", cidr(index), labels={"team": f"t{index}"}) for index in range(count))
    subject = service(FAR + 1, labels={**LABELS, "team": f"t{count - 1}"})
    ledger = Ledger(pools)
    (request,) = enter([subject], ledger)
    allocate(request, pools, ledger)
    ledger.abandon(request.key)
    return decision(request, pools, ledger)


def full_pools(count: int, *, room: bool = True) -> Operation:
    """A decision with *count* full pools and, with *room*, one pool with free addresses."""
    pools = Pools.of(pool(f"p{index:04}", cidr(index, length=32)) for index in range(count + room))
    ledger = Ledger(pools)
    addresses = [Address(4, each.ranges[0].first) for each in pools.in_force[:count]]
    enter((service(index, held=[address]) for index, address in enumerate(addresses)), ledger)
    (request,) = enter([service(FAR + 1)], ledger)
    return decision(request, pools, ledger)


def refused(count: int) -> Operation:
    """A refusal by *count* full pools."""
    return full_pools(count, room=False)


def freed_while_others_wait(count: int, *, own_keys: bool = False) -> Operation:
    """Free one address of a full pool while *count* Services wait: the oldest is requeued; the holder comes back."""
    pools = Pools.of([pool("bench", "10.64.0.0/24")])
    ledger = Ledger(pools)
    holders = services(256, held=first_of("10.64.0.0/24", 256))
    enter(holders, ledger)
    for number in range(count):
        key = f"k-{number}" if own_keys else ""
        (request,) = enter([service(FAR + 10 * number + 1, sharing_key=key)], ledger)
        outcome = decide(request, pools, ledger, namespace_labels=LABELS)
        ledger.wait(request, waits_for(request, outcome, pools, namespace_labels=LABELS), reason="PoolExhausted")
    ledger.drain_requeues()
    oldest = min(ledger.waiters.by_age())

    def again() -> None:
        ledger.observe(holders[7].key, None)
        assert ledger.drain_requeues() == (oldest,)
        ledger.observe(holders[7].key, holders[7])
        ledger.waiters.answer(oldest)
        assert not ledger.drain_requeues()

    return again


def shared(count: int) -> Operation:
    """Join and leave the address that *count* Services share."""
    pools = Pools.of([pool("bench", SMALL)])
    ledger = Ledger(pools)
    sharers = [service(4 * index, port=index + 1, sharing_key="one") for index in range(count)]
    for request in enter(sharers, ledger):
        allocate(request, pools, ledger)
    assert ledger.usage("bench")[4].assigned == 1
    return add_and_remove(service(4 * FAR, port=60_000, sharing_key="one"), pools, ledger)


def same_key(count: int) -> Operation:
    """Add and remove a Service whose sharing key has *count* addresses; its port is in use on each."""
    pools = Pools.of([pool("bench", SMALL)])
    ledger = Ledger(pools)
    for request in enter((service(4 * index, sharing_key="one") for index in range(count)), ledger):
        allocate(request, pools, ledger)
    assert ledger.usage("bench")[4].assigned == count
    return add_and_remove(service(4 * FAR, sharing_key="one"), pools, ledger)


def add_and_remove(subject: Service, pools: Pools, ledger: Ledger) -> Operation:
    """Observe *subject*, allocate its addresses, and observe its deletion."""
    request, _ = read_request(subject)

    def again() -> None:
        ledger.observe(subject.key, subject)
        allocate(request, pools, ledger)
        ledger.observe(subject.key, None)

    return again


def quota(count: int) -> Operation:
    """Add and remove a Service in a namespace that holds *count* addresses of a pool with a quota."""
    pools = Pools.of([pool("bench", LARGE)])
    return add_and_remove(service(FAR + 4), pools, held(pools, count))


def named(count: int) -> Operation:
    """Add and remove a Service that requests the last address of a pool in which *count* are held."""
    pools = Pools.of([pool("bench", LARGE)])
    return add_and_remove(service(FAR + 4, addresses="10.67.255.255"), pools, held(pools, count))


def wide(count: int) -> Operation:
    """Add and remove a Service with a /64 in which *count* addresses are held."""
    pools = Pools.of([pool("bench", "2001:db8::/64", LARGE)])
    return add_and_remove(service(FAR + 4, dual=True), pools, held(pools, count))


def held(pools: Pools, count: int) -> Ledger:
    """A ledger with *count* holders."""
    ledger = Ledger(pools)
    enter(services(count, held=first_of(LARGE, count)), ledger)
    return ledger


def edited(count: int) -> float:
    """The seconds in which the ledger recounts *count* holders after an edit of a pool."""
    wire = pool("bench", LARGE)
    ledger = held(Pools.of([wire]), count)
    with frozen():
        return min(timed(lambda: ledger.configure(Pools.of([wire]))) for _ in range(3))


def cidr(index: int, *, length: int = 24) -> str:
    """A network of its own for each pool."""
    return f"10.{index >> 8}.{index & 255}.0/{length}"


if __name__ == "__main__":
    main()
