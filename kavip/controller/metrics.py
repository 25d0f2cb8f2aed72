"""
The metrics that are read off the ledger when somebody asks: pools, waiters, contests.

Each label set is shown for as long as what it is about exists: a pool that is gone leaves no line behind.
"""

from collections import Counter
from collections.abc import Mapping

from prometheus_client import Gauge

from kavip import telemetry
from kavip.names import Contest
from kavip.snapshot import Snapshot

Labels = tuple[str, ...]


class Addresses:
    """What :class:`~kavip.ipam.ledger.ledger.Ledger` counts, as metrics."""

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self._pools: frozenset[Labels] = frozenset()
        self._waiting: frozenset[Labels] = frozenset()
        self._contests: Counter[Contest] = Counter()

    def measure(self, snapshot: Snapshot, *, leads: bool) -> None:
        """Set them all; only who *leads* knows who waits."""
        pools = snapshot.parsed_pools
        usage: dict[Labels, int] = {
            (pool.name, f"ipv{family}", state): number
            for pool in pools.in_force
            for family, each in snapshot.ledger.usage(pool.name).items()
            for state, number in each.clamped()._asdict().items()
        }
        self._pools = show(telemetry.POOL_ADDRESSES, usage, self._pools)
        waiting: Counter[Labels] = Counter()
        for (pool, reason), number in snapshot.ledger.waiters.tally.items() if leads else ():
            waiting[pool if pools.get(pool) else "", reason] += number
        self._waiting = show(telemetry.SERVICES_WAITING, waiting, self._waiting)
        for contest, number in snapshot.ledger.contests.items():
            telemetry.ADDRESS_CONFLICTS.labels(contest).inc(number - self._contests[contest])
            self._contests[contest] = number


def show(gauge: Gauge, values: Mapping[Labels, int], before: frozenset[Labels]) -> frozenset[Labels]:
    """Let *gauge* have *values* and nothing else of what it had *before*; the label sets that it has now."""
    for labels, number in values.items():
        gauge.labels(*labels).set(number)
    now = frozenset(values)
    for labels in before - now:
        gauge.remove(*labels)
    return now
