"""
``python -m bench.spread``: the figures of docs/explanation/spread.md, which are counts and not times.

The first table: Services whose VIPs are not maximally spread, by the hash alone and by the rule. The second: VIPs of a
Service that move when a node joins. Then the VIPs that move when a dead node leaves the group, and with one more VIP.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kavip.vrrp.priorities import priorities
from kavip.vrrp.spread import Lead, SpreadVIP, leads, most

SPREAD: Final = ((2, 2), (2, 3), (3, 3), (5, 5))
JOINS: Final = ((2, 2), (2, 3), (3, 3), (3, 5), (5, 5), (8, 3), (8, 12))
SERVICES: Final = 2000


def vips_of(service: int, count: int) -> tuple[SpreadVIP, ...]:
    """The VIPs of a Service."""
    return tuple(SpreadVIP(f"lb/edge shop/s{service}/192.0.2.{number}", 4) for number in range(count))


def orders(vips: Sequence[SpreadVIP], nodes: Collection[str], chosen: Mapping[str, Lead]) -> list[list[str]]:
    """The *nodes* of each VIP, by priority; the *chosen* ones rank first."""
    drawn = [dict(priorities(vip.seed, nodes, lead=tuple(chosen.get(vip.seed, ())))) for vip in vips]
    return [sorted(each, key=lambda node: -each[node]) for each in drawn]


def masters(vips: Sequence[SpreadVIP], nodes: Collection[str], dead: str = "") -> list[str]:
    """The node of each VIP."""
    return [next(node for node in order if node != dead) for order in orders(vips, nodes, leads(vips, {4: nodes}))]


def nodes_of(count: int) -> list[str]:
    """The names of nodes."""
    return [f"n{number}" for number in range(count)]


def not_spread(vips: int, size: int) -> tuple[float, float]:
    """The shares of Services with more VIPs on a node than necessary: by the hash alone, and by the rule."""
    nodes, alone, rule = nodes_of(size), 0, 0
    for number in range(SERVICES):
        some = vips_of(number, vips)
        by_hash = Counter(order[0] for order in orders(some, nodes, {}))
        alone += max(by_hash.values()) > most(vips, size)
        rule += max(Counter(masters(some, nodes)).values()) > most(vips, size)
    return alone / SERVICES, rule / SERVICES


def joined(vips: int, size: int) -> tuple[float, float, float]:
    """The VIPs of a Service that move to the node that joins and to others, and those that must."""
    taken = others = needed = 0
    for number in range(SERVICES):
        some = vips_of(number, vips)
        before, after = masters(some, nodes_of(size)), masters(some, nodes_of(size + 1))
        moved = [node for old, node in zip(before, after, strict=True) if old != node]
        taken += moved.count(f"n{size}")
        others += len(moved) - moved.count(f"n{size}")
        needed += sum(max(0, count - most(vips, size + 1)) for count in Counter(before).values())
    return taken / SERVICES, others / SERVICES, needed / SERVICES


def left(vips: int, size: int) -> float:
    """The VIPs of a Service that move again when a dead node leaves the group."""
    dead, *alive = nodes_of(size)
    pairs = [
        (masters(vips_of(n, vips), [dead, *alive], dead), masters(vips_of(n, vips), alive)) for n in range(SERVICES)
    ]
    return sum(old != new for before, after in pairs for old, new in zip(before, after, strict=True)) / SERVICES


def grown(vips: int, size: int) -> float:
    """The VIPs of a Service that move when it has one more."""
    pairs = [
        (masters(vips_of(n, vips), nodes_of(size)), masters(vips_of(n, vips + 1), nodes_of(size)))
        for n in range(SERVICES)
    ]
    return sum(old != new for before, after in pairs for old, new in zip(before, after, strict=False)) / SERVICES


def main() -> None:
    """Print the figures."""
    print("VIPs  nodes  not spread: by hash  by rule")
    for vips, size in SPREAD:
        alone, rule = not_spread(vips, size)
        print(f"{vips:4}  {size:5}  {alone:19.0%}  {rule:7.0%}")
    print("\nVIPs  nodes  a node joins: to it  to another  needed")
    for vips, size in JOINS:
        taken, others, needed = joined(vips, size)
        print(f"{vips:4}  {size:5}  {taken:19.2f}  {others:10.2f}  {needed:6.2f}")
    print(f"\na dead node of three leaves: {left(3, 3):.2f} of three VIPs move again")
    print(f"a fourth VIP: {grown(3, 3):.2f} of three VIPs on three nodes move, {grown(3, 5):.2f} on five")


if __name__ == "__main__":
    main()
